# Finds the CUDA toolkit (13), cuDNN (9) and NCCL (2.28) as NVIDIA installs them, next to each other
# or inside the toolkit, and cuDNN's C++ headers as scripts/cuda_tools installs them.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # Ampere, Hopper, Blackwell, and code that a driver can compile for later ones.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual 100-real)
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
enable_language(CUDA)
# nvcc has C++20 from 12.0 on, but CMake 3.25 does not know that.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
find_package(CUDAToolkit 13 REQUIRED)

# trident_cuda_library(NAME HEADER LIBRARY): an imported target for a library next to the toolkit.
function(trident_cuda_library name header library)
  find_path(${name}_INCLUDE_DIR ${header} HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
  find_library(${name}_LIBRARY ${library} HINTS ${CUDAToolkit_LIBRARY_DIR}
               ${CUDAToolkit_TARGET_DIR} PATH_SUFFIXES lib lib64 REQUIRED)
  add_library(${name}::${library} UNKNOWN IMPORTED)
  set_target_properties(${name}::${library} PROPERTIES
                        IMPORTED_LOCATION ${${name}_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${${name}_INCLUDE_DIR})
endfunction()
trident_cuda_library(CUDNN cudnn.h cudnn)
trident_cuda_library(NCCL nccl.h nccl)

file(GLOB tools $ENV{TRIDENT_CUDA_TOOLS_DIR}/cuda-tools-*/include
     $ENV{XDG_CACHE_HOME}/trident/cuda-tools-*/include
     $ENV{HOME}/.cache/trident/cuda-tools-*/include)
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${tools})
if(NOT CUDNN_FRONTEND_INCLUDE_DIR)
  message(FATAL_ERROR "cudnn_frontend.h is missing: scripts/cuda_tools installs it")
endif()
