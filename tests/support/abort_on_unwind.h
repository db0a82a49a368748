// A guard that aborts the world when an exception leaves its scope. A test's body declares it after
// its Context: the Context's destructor finishes the stream's work, which could otherwise wait for
// peers that don't know of the failure yet.
#pragma once

#include <exception>

#include "parallel/transport/transport.h"

namespace trident {

class AbortOnUnwind {
 public:
  explicit AbortOnUnwind(Transport& transport) : transport_(transport) {}
  ~AbortOnUnwind() {
    if (std::uncaught_exceptions() > exceptions_) transport_.abort("an exception ended its work");
  }
  AbortOnUnwind(const AbortOnUnwind&) = delete;
  AbortOnUnwind& operator=(const AbortOnUnwind&) = delete;

 private:
  Transport& transport_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace trident
