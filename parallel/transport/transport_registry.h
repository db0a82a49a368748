// The transports' table. A new one is a file that makes its Transport and a row.
#pragma once

#include <functional>
#include <vector>

#include "parallel/transport/transport.h"
#include "settings/constraints.h"

namespace trident {

struct TransportKind : TransportConstraints {
  using Body = std::function<void(Transport&)>;
  // Runs `body` on ranks that are threads of this process, and on the one that this process is;
  // null where its ranks can't be that.
  void (*run_threads)(int ranks, const TransportOptions&, const Body&) = nullptr;
  void (*run_process)(const TransportOptions&, const Body&) = nullptr;
  // Operations that add or exchange take memory for what they receive (Category::communication).
  bool needs_staging = false;
  // What carries tensors of GPUs (TransportOptions::library); null: the transport itself.
  const CommunicatorLibraryKind* library = nullptr;
};

// Those of this library.
const std::vector<TransportKind>& transport_registry();

}  // namespace trident
