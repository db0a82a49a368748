// Collects the problems of several checks of a request and throws them together.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace trident {

class RequestProblems {
 public:
  // Runs `check`. If it throws a RequestError, keeps the problems of that error.
  template <class Check>
  void collect(Check check) {
    try {
      check();
    } catch (const RequestError& error) {
      problems_.insert(problems_.end(), error.problems().begin(), error.problems().end());
    }
  }
  // Throws a RequestError with the kept problems, if any.
  void raise() const {
    if (!problems_.empty()) throw RequestError(problems_);
  }

 private:
  std::vector<std::string> problems_;
};

}  // namespace trident
