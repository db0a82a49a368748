// The transports by name, with what each can do. Who needs to know something of a transport asks
// its row, not its name.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "parallel/transport/transport.h"

namespace trident {

struct TransportKind {
  using Body = std::function<void(Transport&)>;

  std::string_view name;  // as in a config
  std::string_view doc;
  // Runs so many ranks as threads of this process; null: it can't.
  void (*run_threads)(int ranks, const TransportOptions&, const Body&) = nullptr;
  // Runs this process as one rank of the job that has started it; null: it can't.
  void (*run_process)(const TransportOptions&, const Body&) = nullptr;
  bool carries_gpu_tensors = false;
  bool gpu_for_each_rank = false;  // ranks can't share a GPU
  // Operations that add or exchange take memory for what they receive (Category::communication).
  bool needs_staging = false;
  bool nccl = false;  // TransportOptions::nccl
};

// local, mpi and nccl.
std::span<const TransportKind> transports();
// Null where no row has that name.
const TransportKind* find_transport(std::string_view name);

}  // namespace trident
