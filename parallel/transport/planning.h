// A transport of one rank in a world that does not exist. Its groups have their members and sizes.
// Operations exchange nothing and are recorded in the context's trace. Plans use it on a planning
// device (core/device.h). On a device that computes, one rank of any world runs by itself, and the
// values that other ranks would send are noise.
#pragma once

#include <memory>

#include "parallel/transport/transport.h"

namespace trident {

// `staging`: operations take the memory that a transport by messages needs (mpi); without it, none
// (local).
std::unique_ptr<Transport> make_planning_transport(int rank, int size, bool staging,
                                                   const TransportOptions& options);

}  // namespace trident
