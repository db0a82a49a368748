#include "parallel/transport/transport.h"

#include "core/error.h"
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

int exit_code_of(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const RequestError&) {
    return 2;
  } catch (...) {
    return 3;
  }
}

}  // namespace trident
