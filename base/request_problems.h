// Problems of a request from several checks, thrown together.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace trident {

class RequestProblems {
 public:
  // What `check` throws as a RequestError is kept.
  template <class Check>
  void collect(Check check) {
    try {
      check();
    } catch (const RequestError& error) {
      problems_.insert(problems_.end(), error.problems().begin(), error.problems().end());
    }
  }
  // Throws those that were kept, if any.
  void raise() const {
    if (!problems_.empty()) throw RequestError(problems_);
  }

 private:
  std::vector<std::string> problems_;
};

}  // namespace trident
