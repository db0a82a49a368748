// The functions that the rest of the library takes from the files that call MPI. These files are
// linked with the library, or are a module of their own (CMake's TRIDENT_MPI_MODULE) that is opened
// when it is first needed. A program built for other machines then runs where there is no MPI.
#pragma once

#include <memory>

#include "parallel/transport/mpi_job.h"
#include "parallel/transport/transport.h"

namespace trident {

std::unique_ptr<MpiJob> make_linked_mpi_job();
std::unique_ptr<Transport> make_linked_mpi_transport(const TransportOptions& options);

struct MpiParts {
  decltype(&make_linked_mpi_job) make_job;
  decltype(&make_linked_mpi_transport) make_transport;
};

// The module's functions. The loader looks them up by this name, hence C linkage.
extern "C" const MpiParts trident_mpi_parts;

// Throws RequestError, with the loader's reason, where the module or the MPI library that it was
// built for is not found. (parallel/transport/mpi_linked.cc, parallel/transport/mpi_opened.cc)
const MpiParts& mpi_parts();

}  // namespace trident
