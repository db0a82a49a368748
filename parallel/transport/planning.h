// A seat in a world that is not there: groups have their members and sizes, operations exchange
// nothing and are entered in the context's trace. For the plan, on a planning device
// (core/device.h); on one that computes a rank of any world runs by itself, and what would come
// from others is noise.
#pragma once

#include <memory>

#include "parallel/transport/transport.h"

namespace trident {

// `staging`: operations take the memory that a transport by messages needs (mpi), or none (local).
std::unique_ptr<Transport> make_planning_transport(int rank, int size, bool staging,
                                                   const TransportOptions& options);

}  // namespace trident
