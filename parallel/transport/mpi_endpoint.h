// Messages over MPI. Every message carries an envelope with its descriptor. A small payload travels
// with the envelope; a large one follows under the same tag.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "parallel/transport/endpoint.h"
#include "parallel/transport/host_memory.h"
#include "parallel/transport/mpi_control.h"

namespace trident {

class MpiEndpoint final : public Endpoint {
 public:
  // Collective over MPI_COMM_WORLD.
  explicit MpiEndpoint(const TransportOptions& options);
  ~MpiEndpoint() override;
  // Reports to the others that this rank has ended, and waits for all to end. No message may
  // follow.
  void close();

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Nodes nodes() const override { return *nodes_; }
  const TransportOptions& options() const override { return options_; }
  void open_group(std::uint64_t id, const std::string& name) override;
  // Only for members on one node; null otherwise.
  std::unique_ptr<SharedRendezvous> open_rendezvous(std::uint64_t group,
                                                    const std::vector<int>& members) override;
  bool shares_memory() const override { return true; }

  std::unique_ptr<Request> post_send(int peer, int channel, const Descriptor& descriptor,
                                     const void* data, std::size_t bytes,
                                     std::shared_ptr<QueueSide> side) override;
  std::unique_ptr<Request> post_receive(int peer, int channel, const Descriptor& expected,
                                        void* data, std::size_t bytes,
                                        std::shared_ptr<QueueSide> side) override;
  std::unique_ptr<Request> post_receive_view(int peer, int channel, const Descriptor& expected,
                                             void* staging, std::size_t bytes) override {
    return post_receive(peer, channel, expected, staging, bytes, nullptr);
  }
  bool reduces(DType dtype, ReduceOp op) const override;
  void open_reductions(std::uint64_t group, const std::vector<int>& members) override;
  std::unique_ptr<Request> post_all_reduce(std::uint64_t group, int peer, void* data,
                                           std::int64_t n, DType dtype, ReduceOp op) override;
  FileTimes* file_times() override { return &control_->file_times(); }
  bool files_hold_up() override { return control_->files_hold_up(); }
  std::string waits_of(int rank) override { return control_->waits_of(rank); }
  bool needs_staging() const override { return true; }

  void check() const override {}  // an aborted job does not get here
  void fail(std::exception_ptr error) noexcept override;
  void abort(const std::string& reason) noexcept override;

  // Used by requests.
  MPI_Comm communicator() const { return messages_; }
  bool spins() const { return spins_; }
  bool closed() const { return closed_.load(); }
  bool ended(int peer) { return control_->ended(peer); }
  void watch() { control_->watch(); }
  void unwatch() { control_->unwatch(); }
  WaitTable& waits() { return control_->waits(); }

 private:
  int tag_of(std::uint64_t group, int channel) const;
  void find_hosts(std::vector<int>& hosts, std::vector<std::string>& names);
  void share_memory(MPI_Comm host);

  TransportOptions options_;
  int rank_ = 0;
  int size_ = 0;
  std::optional<Nodes> nodes_;
  std::uint64_t group_slots_ = 0;  // tags hold a group's slot and a channel
  MPI_Comm messages_ = MPI_COMM_NULL;
  std::shared_ptr<HostMemory> host_memory_;  // null: none
  bool fetches_ = false;                     // its ranks may copy from each other's memory
  bool spins_ = false;                       // every rank of this host has a core
  std::unique_ptr<MpiControl> control_;
  std::atomic<bool> closed_{false};

  std::mutex groups_mutex_;
  std::map<int, std::pair<std::uint64_t, std::string>> groups_;  // by slot
  std::map<std::uint64_t, MPI_Comm> reductions_;                 // by group
};

}  // namespace trident
