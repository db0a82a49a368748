# CTest runs this script: cmake --install, then it configures, builds and runs a project outside the
# tree with the installed copy.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "exit ${code}: ${ARGN}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
file(COPY ${CONSUMER_DIR}/ DESTINATION ${WORK_DIR}/source)
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
# Every installed header compiles with the installed headers alone.
file(GLOB_RECURSE headers RELATIVE ${WORK_DIR}/prefix/include/trident
     ${WORK_DIR}/prefix/include/trident/*.h)
list(TRANSFORM headers REPLACE "(.+)" "#include \"\\1\"\n")
list(JOIN headers "" includes)
file(WRITE ${WORK_DIR}/source/headers.cc ${includes})
run(${CMAKE_COMMAND} -S ${WORK_DIR}/source -B ${WORK_DIR}/build -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DEVERY_HEADER=headers.cc)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/consumer ${WORK_DIR}/run)
if(NOT EXISTS ${WORK_DIR}/prefix/bin/trident)
  message(FATAL_ERROR "the trident program was not installed")
endif()
run(${WORK_DIR}/prefix/bin/trident --help)
# Machines are found by name from any working directory.
if(NOT EXISTS ${WORK_DIR}/prefix/share/trident/machines/dgx_a100.json)
  message(FATAL_ERROR "the machines' files were not installed")
endif()
run(${WORK_DIR}/prefix/bin/trident simulate ${CONSUMER_DIR}/../../../configs/gpt_1t.json
    --machine dgx_a100 --set activation_checkpointing.granularity=full)
