# The options that clang needs to compile the library for its fuzzers (tests/fuzz). Other builds use
# g++ and have the warnings. clang has no omp.h of its own, and can't capture structured bindings
# with OpenMP on, so the team's loops run on one thread here.
execute_process(COMMAND g++ -print-file-name=include/omp.h OUTPUT_VARIABLE omp_header
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND g++ -print-file-name=libgomp.so OUTPUT_VARIABLE omp_library
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
cmake_path(GET omp_header PARENT_PATH omp_folder)
# clang 16 doesn't know the name of one processor feature. No fuzzer asks for it.
add_compile_options(-w -idirafter ${omp_folder}
                    "-D__builtin_cpu_supports(name)=(__builtin_strlen(name)==0)" "-D__malloc__(...)=")
add_library(OpenMP::OpenMP_CXX UNKNOWN IMPORTED)
set_target_properties(OpenMP::OpenMP_CXX PROPERTIES IMPORTED_LOCATION ${omp_library})
# The checks of virtual tables and object sizes take long to compile, and the other sanitizer builds
# have them.
set(TRIDENT_FUZZ_OPTIONS -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all
                         -fno-sanitize=vptr,object-size -fno-omit-frame-pointer)
