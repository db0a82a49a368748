#include "parallel/transport/transport.h"

#include <system_error>

#include "base/error.h"
#include "core/threads.h"
#include "parallel/process_group_impl.h"
#include "parallel/transport/endpoint.h"
#include "parallel/transport/mpi_parts.h"

namespace trident {

std::string message_of(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again) return e.what();
    return "a thread could not be started, the system allows no more: " + thread_limit_text();
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

std::unique_ptr<MpiJob> make_mpi_job() {
  return mpi_parts().make_job();
}

std::unique_ptr<Transport> make_mpi_transport(const TransportOptions& options) {
  check_options(options);
  return mpi_parts().make_transport(options);
}

void run_mpi(const TransportOptions& options, const std::function<void(Transport&)>& body) {
  const auto transport = make_mpi_transport(options);
  end_all_on_error(*transport, [&] { body(*transport); });
}

}  // namespace trident
