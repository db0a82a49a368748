// The MPI module is opened when it is first needed.
#include <dlfcn.h>

#include <string>

#include "base/error.h"
#include "parallel/transport/mpi_parts.h"

namespace trident {
namespace {

const MpiParts& open_parts() {
  // The loader finds the module by the library's own RPATH, which names the module's folder.
  // RTLD_GLOBAL: MPI opens modules of its own that look for its symbols.
  void* module = ::dlopen("trident_mpi.so", RTLD_NOW | RTLD_GLOBAL);
  void* parts = module == nullptr ? nullptr : ::dlsym(module, "trident_mpi_parts");
  if (parts == nullptr)
    throw RequestError(std::string("MPI can't be loaded: ") + ::dlerror() +
                       "; this program was built for " TRIDENT_MPI_VERSION
                       ", and runs without it as one process, where no mpirun or srun starts it "
                       "(runtime.transport \"local\")");
  return *static_cast<const MpiParts*>(parts);
}

}  // namespace

const MpiParts& mpi_parts() {
  static const MpiParts& parts = open_parts();
  return parts;
}

}  // namespace trident
