#include "parallel/transport/transport.h"

#include "parallel/transport/endpoint.h"

namespace trident {

std::string message_of(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

AbortOnUnwind::~AbortOnUnwind() {
  if (std::uncaught_exceptions() > exceptions_) transport_.abort("an exception ended its work");
}

}  // namespace trident
