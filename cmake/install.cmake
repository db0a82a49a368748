# `cmake --install` installs the library, its headers, the program and a CMake package, so that
# find_package(trident) and target_link_libraries(... trident::trident) work; tests/install tests
# it. There are two components: `runtime` for users who run the program, `development` for users who
# link with the library (packages.cmake).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(TRIDENT_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/trident)

# trident_options is linked privately, but a static library's export has to name it.
install(TARGETS trident trident_options EXPORT trident-targets RUNTIME_DEPENDENCY_SET libraries
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
                NAMELINK_COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/machines
        DESTINATION ${CMAKE_INSTALL_DATADIR}/trident COMPONENT runtime)
install(EXPORT trident-targets NAMESPACE trident:: DESTINATION ${TRIDENT_PACKAGE_DIR}
        COMPONENT development)
include(cmake/public_headers.cmake)
foreach(header IN LISTS TRIDENT_PUBLIC_HEADERS TRIDENT_INCLUDED_HEADERS)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trident/${folder}
          COMPONENT development)
endforeach()

get_property(app_targets DIRECTORY app PROPERTY BUILDSYSTEM_TARGETS)
foreach(target IN LISTS app_targets)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    install(TARGETS ${target} RUNTIME_DEPENDENCY_SET libraries
            RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  endif()
endforeach()

get_target_property(type trident TYPE)
if(type STREQUAL "STATIC_LIBRARY")
  set(TRIDENT_STATIC ON)
else()
  set(TRIDENT_STATIC OFF)
  # The program finds the library wherever the folder is moved.
  set_target_properties(${app_targets} PROPERTIES
                        INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(trident PROPERTIES
                        VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()
if(TARGET trident_mpi)
  install(TARGETS trident_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/trident COMPONENT runtime)
  # The library opens the module by its file name alone.
  set_target_properties(trident PROPERTIES BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN;$ORIGIN/trident")
endif()
configure_package_config_file(cmake/trident-config.cmake.in
                              ${PROJECT_BINARY_DIR}/package/trident-config.cmake
                              INSTALL_DESTINATION ${TRIDENT_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/trident-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/trident-config.cmake
              ${PROJECT_BINARY_DIR}/package/trident-config-version.cmake
        DESTINATION ${TRIDENT_PACKAGE_DIR} COMPONENT development)
