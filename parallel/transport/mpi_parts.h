// All that the rest of the library takes from the files that call MPI. They are linked with it, or
// are a module of their own (CMake's TRIDENT_MPI_MODULE), which is opened when it is first needed:
// so a program made for other machines runs where there is no MPI.
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

// Of the module, by this name; with C's linkage, as it is looked up by it.
extern "C" const MpiParts trident_mpi_parts;

// Throws RequestError, with the loader's reason, where the module or the MPI library it was built
// for is not to be found. (mpi_linked.cc, mpi_opened.cc)
const MpiParts& mpi_parts();

}  // namespace trident
