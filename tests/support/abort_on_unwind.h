// Aborts the world when an exception leaves its scope: in a test's body after its Context, which
// finishes the stream's work when it goes, and that could wait for peers that don't know yet.
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
