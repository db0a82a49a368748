# Warnings and sanitizers, for every target of ours. Never a flag that ties the build to one
# processor: kernels/cpu/simd picks the instruction set when the program runs.
# -Wno-missing-field-initializers: designated initialisers leave members at their defaults; writing
# `= {}` on nested ones instead makes g++ 12 see uninitialised reads at -O3. -Wno-restrict: it is
# wrong about std::string there (GCC bug 105329).
add_library(trident_options INTERFACE)
# Files compiled together may shadow each other's names.
set(shadow $<$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wshadow>)
set(warnings -Wall -Wextra ${shadow} -Wno-missing-field-initializers -Wno-restrict -Werror)
target_compile_options(trident_options INTERFACE
                       "$<$<COMPILE_LANGUAGE:CXX>:${warnings};-fno-math-errno>")
if(TRIDENT_PRECOMPILE)
  # The first so that ccache sees which headers were precompiled. The warnings are wrong about
  # std::string in such headers, and about files compiled together (subobject-linkage); other
  # builds have them.
  set(wrong -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds -Wno-subobject-linkage)
  target_compile_options(trident_options INTERFACE
                         "$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess;${wrong}>")
endif()
if(TRIDENT_CUDA OR TRIDENT_CUDA_PROGRAM)
  # The host's half of a kernel's file comes out of nvcc, not as we wrote it.
  target_compile_options(trident_options INTERFACE
                         "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")
endif()
if(TRIDENT_SANITIZE STREQUAL "address")
  target_compile_options(trident_options INTERFACE -fsanitize=address -fno-omit-frame-pointer)
  target_link_options(trident_options INTERFACE -fsanitize=address,undefined)
  # Undefined behaviour is looked for in the library; in tests and the command line, made of other
  # libraries' templates, it doubles the compile time.
  set(TRIDENT_LIBRARY_OPTIONS -fsanitize=undefined -fno-sanitize-recover=all)
  if(NOT TRIDENT_SANITIZE_POINTERS)
    list(APPEND TRIDENT_LIBRARY_OPTIONS -fno-sanitize=null,alignment,object-size,vptr)
  endif()
elseif(TRIDENT_FUZZ)
  set(TRIDENT_LIBRARY_OPTIONS ${TRIDENT_FUZZ_OPTIONS} -fsanitize=fuzzer-no-link)
elseif(TRIDENT_SANITIZE STREQUAL "thread")
  target_compile_options(trident_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(trident_options INTERFACE -fsanitize=thread)
endif()
# Of kernels/ and parallel/, after others, as the last -O counts: sanitizer builds optimise their loops,
# and fuzzers run nothing of theirs.
set(TRIDENT_KERNEL_OPTIONS ${TRIDENT_LIBRARY_OPTIONS})
if(TRIDENT_SANITIZE)
  list(APPEND TRIDENT_KERNEL_OPTIONS -O1)
elseif(TRIDENT_FUZZ)
  set(TRIDENT_KERNEL_OPTIONS -O0)
endif()
