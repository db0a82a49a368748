// make_mpi_transport: this process as one rank of an MPI job.
#include <signal.h>

#include <exception>
#include <string>

#include "core/error.h"
#include "parallel/process_group_impl.h"
#include "parallel/transport/mpi_endpoint.h"
#include "parallel/transport/nccl/nccl.h"
#include "parallel/transport/transport.h"

namespace trident {
namespace {

// True where this call has initialised MPI, false where the program has before.
bool initialise_mpi() {
  int finalized = 0, initialized = 0, provided = MPI_THREAD_SINGLE;
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw Error("mpi: MPI is already finalised in this process; it can't be started again");
  }
  MPI_Initialized(&initialized);
  if (initialized != 0) {
    MPI_Query_thread(&provided);
  } else {
    // The library's threads inherit the mask: SIGINT and SIGTERM are for whoever waits for them.
    sigset_t stops, before;
    sigemptyset(&stops);
    for (const int s : {SIGINT, SIGTERM}) sigaddset(&stops, s);
    pthread_sigmask(SIG_BLOCK, &stops, &before);
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    check_mpi(code, "MPI_Init_thread");
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    throw Error("mpi: this MPI library does not grant MPI_THREAD_MULTIPLE");
  }
  return initialized == 0;
}

// MPI between its first and last use. Left alone where the program itself has initialised it.
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
      : endpoint_(std::make_shared<MpiEndpoint>(options)),
        world_(make_world_group(options.nccl ? with_nccl(endpoint_) : endpoint_)) {}
  ~MpiTransport() override {
    // The others wait for this rank: an orderly end would hang.
    if (std::uncaught_exceptions() > exceptions_) abort("an exception ended its work");
    endpoint_->close();
  }
  ProcessGroup world() const override { return world_; }
  Nodes nodes() const override { return endpoint_->nodes(); }
  void abort(const std::string& reason) noexcept override { endpoint_->abort(reason); }

 private:
  MpiLibrary library_;  // ends after the endpoint's close
  std::shared_ptr<MpiEndpoint> endpoint_;
  ProcessGroup world_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const TransportOptions& options) {
  check_options(options);
  return std::make_unique<MpiTransport>(options);
}

std::int64_t MpiJob::least(std::int64_t value) {
  begun_ = initialise_mpi() || begun_;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD),
            "MPI_Allreduce");
  return value;
}

void MpiJob::finish() {
  if (begun_) MPI_Finalize();
  begun_ = false;
}

}  // namespace trident
