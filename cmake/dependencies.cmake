# Everything comes from the distribution's packages; scripts/packages.txt lists them.
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(MPI REQUIRED COMPONENTS CXX)
if(TRIDENT_FUZZ)
  include(cmake/fuzz.cmake)
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc>=2)  # the program's alone
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)  # its header alone, in the system's place
# Debian's oneDNN ships no CMake package, so it is found by its header and library.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl UNKNOWN IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                                            INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
# Neither does its ISA-L (sums of checkpoints' blocks).
find_path(ISAL_INCLUDE_DIR isa-l/crc64.h REQUIRED)
find_library(ISAL_LIBRARY isal REQUIRED)
add_library(ISAL::isal UNKNOWN IMPORTED)
set_target_properties(ISAL::isal PROPERTIES IMPORTED_LOCATION ${ISAL_LIBRARY}
                                            INTERFACE_INCLUDE_DIRECTORIES ${ISAL_INCLUDE_DIR})
if(TRIDENT_TESTS)
  find_package(GTest REQUIRED)
endif()
if(TRIDENT_BENCH)
  find_package(benchmark REQUIRED)
endif()
