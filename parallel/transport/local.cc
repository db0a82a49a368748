// run_local(): runs the ranks as threads of this process.
#include <exception>
#include <string>
#include <thread>

#include "base/error.h"
#include "core/threads.h"
#include "parallel/process_group_impl.h"
#include "parallel/transport/local_world.h"
#include "parallel/transport/transport.h"

namespace trident {
namespace {

class LocalTransport final : public Transport {
 public:
  explicit LocalTransport(std::shared_ptr<Endpoint> endpoint)
      : endpoint_(std::move(endpoint)), world_(make_world_group(endpoint_)) {}
  ProcessGroup world() const override { return world_; }
  Nodes nodes() const override { return endpoint_->nodes(); }
  void abort(const std::string& reason) noexcept override { endpoint_->abort(reason); }
  void fail(std::exception_ptr error) noexcept override { endpoint_->fail(error); }

 private:
  std::shared_ptr<Endpoint> endpoint_;
  ProcessGroup world_;
};

void run_rank(const std::shared_ptr<local::World>& world, int rank,
              const std::function<void(Transport&)>& body) {
  std::exception_ptr error;
  try {
    LocalTransport transport(local::make_endpoint(world, rank));
    body(transport);
  } catch (...) {
    error = std::current_exception();
  }
  world->end(rank, error);
}

}  // namespace

void run_local(int ranks, const TransportOptions& options,
               const std::function<void(Transport&)>& body) {
  if (ranks < 1) {
    throw RequestError("run_local: " + std::to_string(ranks) + " ranks; at least 1 is needed");
  }
  check_options(options);
  const auto world = std::make_shared<local::World>(ranks, options);
  {
    std::vector<std::jthread> threads;  // joined at the end of the block, whatever happens
    try {
      for (int r = 0; r < ranks; ++r) threads.emplace_back(run_rank, std::cref(world), r, body);
    } catch (...) {
      world->abort(0, "the threads of all ranks could not be started");
      if (threads.size() == static_cast<std::size_t>(ranks)) throw;
      throw Error("run_local: " + std::to_string(ranks) + " ranks need as many threads; rank " +
                  std::to_string(threads.size()) +
                  "'s could not be started: " + thread_limit_text());
    }
  }
  if (const auto error = world->first_error()) std::rethrow_exception(error);
}

}  // namespace trident
