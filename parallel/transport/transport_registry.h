// The transport registry. A new transport is a file that makes its Transport, and a row.
#pragma once

#include <functional>
#include <vector>

#include "parallel/transport/transport.h"
#include "settings/constraints.h"

namespace trident {

struct TransportKind : TransportConstraints {
  using Body = std::function<void(Transport&)>;
  // run_threads() runs `body` on ranks that are threads of this process, run_process() on the rank
  // that this process is. Null where the transport's ranks can't be that.
  void (*run_threads)(int ranks, const TransportOptions&, const Body&) = nullptr;
  void (*run_process)(const TransportOptions&, const Body&) = nullptr;
  // Operations that add or exchange take memory for the data that they receive
  // (Category::communication).
  bool needs_staging = false;
  // The library that carries tensors of GPUs (TransportOptions::library); null: the transport
  // carries them itself.
  const CommunicatorLibraryKind* library = nullptr;
};

// The transports of this library.
const std::vector<TransportKind>& transport_registry();

}  // namespace trident
