// This process as one rank of an MPI job.
#include <exception>
#include <string>

#include "base/error.h"
#include "parallel/process_group_impl.h"
#include "parallel/transport/mpi_endpoint.h"
#include "parallel/transport/mpi_parts.h"
#include "parallel/transport/transport.h"

namespace trident {
namespace {

// MPI between its first and last use. It leaves MPI alone where the program itself has initialised
// it.
class MpiLibrary {
 public:
  MpiLibrary() = default;
  ~MpiLibrary() {
    if (owner_) MPI_Finalize();
  }
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

 private:
  bool owner_ = initialise_mpi();
};

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(const TransportOptions& options)
      : endpoint_(std::make_shared<MpiEndpoint>(options)), world_(make_world_group(endpoint_)) {}
  ~MpiTransport() override {
    // The other ranks wait for this one, so an orderly end would hang.
    if (std::uncaught_exceptions() > exceptions_) abort("an exception ended its work");
    endpoint_->close();
  }
  ProcessGroup world() const override { return world_; }
  Nodes nodes() const override { return endpoint_->nodes(); }
  void abort(const std::string& reason) noexcept override { endpoint_->abort(reason); }
  void fail(std::exception_ptr error) noexcept override { endpoint_->fail(error); }

 private:
  MpiLibrary library_;  // destroyed after the endpoint's close
  std::shared_ptr<MpiEndpoint> endpoint_;
  ProcessGroup world_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace

std::unique_ptr<Transport> make_linked_mpi_transport(const TransportOptions& options) {
  return std::make_unique<MpiTransport>(options);
}

const MpiParts trident_mpi_parts{make_linked_mpi_job, make_linked_mpi_transport};

}  // namespace trident
