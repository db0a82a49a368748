# Warnings and sanitizers for every target of ours. No flag may tie the build to one processor, as
# kernels/cpu/simd picks the instruction set when the program runs. -Wno-missing-field-initializers:
# designated initialisers leave members at their defaults; writing `= {}` on nested ones instead
# makes g++ 12 see uninitialised reads at -O3. -Wno-restrict: the warning is wrong about std::string
# (GCC bug 105329).
add_library(trident_options INTERFACE)
# Files compiled together may shadow each other's names.
set(shadow $<$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wshadow>)
set(warnings -Wall -Wextra ${shadow} -Wno-missing-field-initializers -Wno-restrict -Werror)
target_compile_options(trident_options INTERFACE
                       "$<$<COMPILE_LANGUAGE:CXX>:${warnings};-fno-math-errno>")
if(TRIDENT_PRECOMPILE)
  # The first option lets ccache see which headers were precompiled. The warnings are wrong about
  # std::string in such headers, and about files compiled together (subobject-linkage); other builds
  # have them.
  set(wrong -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds -Wno-subobject-linkage)
  target_compile_options(trident_options INTERFACE
                         "$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess;${wrong}>")
endif()
if(TRIDENT_CUDA OR TRIDENT_CUDA_PROGRAM)
  # nvcc rewrites the host's half of a kernel's file, so fewer warnings apply to it.
  target_compile_options(trident_options INTERFACE
                         "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")
endif()
if(TRIDENT_SANITIZE STREQUAL "address")
  target_compile_options(trident_options INTERFACE -fsanitize=address -fno-omit-frame-pointer)
  target_link_options(trident_options INTERFACE -fsanitize=address,undefined)
  # Only the library is checked for undefined behaviour. In tests and the command line, which use
  # other libraries' templates, the checks double the compile time.
  set(TRIDENT_LIBRARY_OPTIONS -fsanitize=undefined -fno-sanitize-recover=all)
  if(NOT TRIDENT_SANITIZE_POINTERS)
    list(APPEND TRIDENT_LIBRARY_OPTIONS -fno-sanitize=null,alignment,object-size,vptr)
  endif()
elseif(TRIDENT_FUZZ)
  set(TRIDENT_LIBRARY_OPTIONS ${TRIDENT_FUZZ_OPTIONS} -fsanitize=fuzzer-no-link)
elseif(TRIDENT_SANITIZE STREQUAL "thread")
  target_compile_options(trident_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  # Threads split the work alike for every instruction set.
  target_compile_definitions(trident_options INTERFACE TRIDENT_ONLY_SSE2)
  target_link_options(trident_options INTERFACE -fsanitize=thread)
endif()
# The options of kernels/ and parallel/ come after others, as the last -O counts. Sanitizer builds
# optimise these loops; fuzzers run none of them.
set(TRIDENT_KERNEL_OPTIONS ${TRIDENT_LIBRARY_OPTIONS})
if(TRIDENT_SANITIZE)
  list(APPEND TRIDENT_KERNEL_OPTIONS -O1)
elseif(TRIDENT_FUZZ)
  set(TRIDENT_KERNEL_OPTIONS -O0)
endif()
