// Errors of Trident. An error names the place, what was got and what is needed.
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

// A device has no memory left; names what was asked for and, from the allocator, who holds what.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// The request is wrong: config, arguments or an input file (exit code 2). Nothing was started or
// written. Carries every problem found, one a line of what().
class RequestError : public Error {
 public:
  explicit RequestError(const std::string& problem) : RequestError(std::vector{problem}) {}
  explicit RequestError(std::vector<std::string> problems)
      : Error(join(problems)), problems_(std::move(problems)) {}
  const std::vector<std::string>& problems() const { return problems_; }
  // The same problems, each with `place` before it.
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

// Ranks disagree, one is late, or a peer failed. Names group, ranks, operation, sequence number.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

// This rank was stopped because another rank failed first; shown only if no first error is known.
class AbortedError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

}  // namespace trident
