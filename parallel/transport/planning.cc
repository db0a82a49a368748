#include "parallel/transport/planning.h"

#include <utility>

#include "base/error.h"
#include "parallel/process_group_impl.h"
#include "parallel/transport/endpoint.h"

namespace trident {
namespace {

class PlanningEndpoint final : public Endpoint {
 public:
  PlanningEndpoint(int rank, int size, bool staging, const TransportOptions& options)
      : rank_(rank), size_(size), staging_(staging), options_(options) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Nodes nodes() const override {
    return Nodes::consecutive(size_, options_.ranks_per_node > 0 ? options_.ranks_per_node : size_);
  }
  const TransportOptions& options() const override { return options_; }
  bool exchanges() const override { return false; }
  std::unique_ptr<Request> post_send(int, int, const Descriptor&, const void*, std::size_t,
                                     std::shared_ptr<QueueSide>) override {
    refuse();
  }
  std::unique_ptr<Request> post_receive(int, int, const Descriptor&, void*, std::size_t,
                                        std::shared_ptr<QueueSide>) override {
    refuse();
  }
  std::unique_ptr<Request> post_receive_view(int, int, const Descriptor&, void*,
                                             std::size_t) override {
    refuse();
  }
  bool needs_staging() const override { return staging_; }
  void check() const override {}
  void fail(std::exception_ptr) noexcept override {}
  void abort(const std::string&) noexcept override {}

 private:
  [[noreturn]] static void refuse() {
    throw Error("planning transport: a message to or from a rank that does not exist");
  }
  int rank_, size_;
  bool staging_;
  TransportOptions options_;
};

// Answers which reductions the library would do itself; it makes no communicators.
class PlanningLibrary final : public CommunicatorLibrary {
 public:
  PlanningLibrary(const CommunicatorLibraryKind& kind, bool deterministic)
      : kind_(kind), deterministic_(deterministic) {}
  std::size_t key_bytes() const override { return 0; }
  std::vector<std::byte> make_key() override { return {}; }
  std::shared_ptr<Communicator> open(const std::vector<std::byte>&, const std::string&, int, int,
                                     Device&, Carries) override {
    throw Error("planning transport: a communicator with ranks that do not exist");
  }
  bool reduces(ReduceOp op) const override { return kind_.reduces(op, deterministic_); }

 private:
  const CommunicatorLibraryKind& kind_;
  bool deterministic_;
};

class PlanningTransport final : public Transport {
 public:
  explicit PlanningTransport(std::shared_ptr<Endpoint> endpoint)
      : endpoint_(endpoint), world_(make_world_group(std::move(endpoint), library())) {}
  ProcessGroup world() const override { return world_; }
  Nodes nodes() const override { return endpoint_->nodes(); }
  void abort(const std::string&) noexcept override {}
  void fail(std::exception_ptr) noexcept override {}

 private:
  std::shared_ptr<CommunicatorLibrary> library() const {
    const TransportOptions& options = endpoint_->options();
    if (options.library == nullptr) return nullptr;
    return std::make_shared<PlanningLibrary>(*options.library, options.deterministic);
  }
  std::shared_ptr<Endpoint> endpoint_;
  ProcessGroup world_;
};

}  // namespace

std::unique_ptr<Transport> make_planning_transport(int rank, int size, bool staging,
                                                   const TransportOptions& options) {
  return std::make_unique<PlanningTransport>(
      std::make_shared<PlanningEndpoint>(rank, size, staging, options));
}

}  // namespace trident
