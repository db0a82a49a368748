# All dependencies are packages of the distribution; scripts/packages.txt lists them.
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(CLI11 REQUIRED)
set(MPI_DETERMINE_LIBRARY_VERSION ${TRIDENT_MPI_MODULE})
find_package(MPI REQUIRED COMPONENTS CXX)
if(TRIDENT_FUZZ)
  include(cmake/fuzz.cmake)
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc>=2)  # only the program uses it
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)  # only the header, in the system's folder
# Libraries without a CMake package are found by a header and the library:
# trident_plain_library(NAME HEADER LIBRARY) makes NAME::LIBRARY.
function(trident_plain_library name header library)
  find_path(${name}_INCLUDE_DIR ${header} REQUIRED)
  find_library(${name}_LIBRARY ${library} REQUIRED)
  add_library(${name}::${library} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${name}::${library} PROPERTIES
                        IMPORTED_LOCATION ${${name}_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${${name}_INCLUDE_DIR})
endfunction()
trident_plain_library(DNNL oneapi/dnnl/dnnl.hpp dnnl)
trident_plain_library(ISAL isa-l/crc64.h isal)        # sums of checkpoints' blocks
trident_plain_library(ONIGURUMA oniguruma.h onig)     # regular expressions of tokenizers
trident_plain_library(UTF8PROC utf8proc.h utf8proc)   # normal forms of texts
trident_plain_library(ZLIB zlib.h z)                  # texts in .gz
trident_plain_library(ZSTD zstd.h zstd)               # and .zst
set(TRIDENT_PLAIN_LIBRARIES DNNL::dnnl ISAL::isal ONIGURUMA::onig UTF8PROC::utf8proc ZLIB::z
                            ZSTD::zstd)
if(TRIDENT_TESTS)
  find_package(GTest REQUIRED)
endif()
if(TRIDENT_BENCH)
  find_package(benchmark REQUIRED)
endif()
