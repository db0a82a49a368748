#include "parallel/transport/planning.h"

#include <utility>

#include "core/error.h"
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
  bool reduces(ReduceOp op) const override { return nccl_reduces(options_, op); }
  void check() const override {}
  void fail(std::exception_ptr) noexcept override {}
  void abort(const std::string&) noexcept override {}

 private:
  [[noreturn]] static void refuse() {
    throw Error("planning transport: a message on a device that computes");
  }
  int rank_, size_;
  bool staging_;
  TransportOptions options_;
};

class PlanningTransport final : public Transport {
 public:
  explicit PlanningTransport(std::shared_ptr<Endpoint> endpoint)
      : endpoint_(endpoint), world_(make_world_group(std::move(endpoint))) {}
  ProcessGroup world() const override { return world_; }
  Nodes nodes() const override { return endpoint_->nodes(); }
  void abort(const std::string&) noexcept override {}
  void fail(std::exception_ptr) noexcept override {}

 private:
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
