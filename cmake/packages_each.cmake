# cpack reads this file before each generator's packages.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_ALL runtime development)
  set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
else()
  set(CPACK_COMPONENTS_ALL runtime development bundled)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
  execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../scripts/least_glibc
                          ${CPACK_PACKAGE_DIRECTORY}/../trident
                  OUTPUT_VARIABLE glibc OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(CPACK_PACKAGE_FILE_NAME "trident-${CPACK_PACKAGE_VERSION}-linux-x86_64-glibc${glibc}")
endif()
