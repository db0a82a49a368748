// MPI is linked with the library.
#include "parallel/transport/mpi_parts.h"

namespace trident {

const MpiParts& mpi_parts() {
  return trident_mpi_parts;
}

}  // namespace trident
