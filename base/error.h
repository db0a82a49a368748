// The exceptions of Trident. A message names the place, the value found and the value needed.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace trident {

// A failure while running (exit code 3).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A device has no memory left. The message names the requested size and, from the allocator, the
// bytes that each category of the rank's memory holds.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// A wrong request: config, arguments or an input file (exit code 2). It is thrown before anything
// is started or written. It carries all problems found, one on each line of what().
class RequestError : public Error {
 public:
  explicit RequestError(const std::string& problem) : RequestError(std::vector{problem}) {}
  explicit RequestError(std::vector<std::string> problems)
      : Error(join(problems)), problems_(std::move(problems)) {}
  const std::vector<std::string>& problems() const { return problems_; }
  // The same problems, each prefixed with `place`.
  RequestError at(const std::string& place) const {
    std::vector<std::string> placed = problems_;
    for (std::string& problem : placed) problem.insert(0, place);
    return RequestError(std::move(placed));
  }

 private:
  static std::string join(const std::vector<std::string>& problems) {
    std::string text;
    for (const auto& p : problems) text += (text.empty() ? "" : "\n") + p;
    return text;
  }
  std::vector<std::string> problems_;
};

// Ranks disagree, a rank is late, or a peer failed. The message names the group, the ranks, the
// operation and the sequence number.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

// This rank was stopped because another rank failed first. The error is shown only if no first
// error is known.
class AbortedError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

}  // namespace trident
