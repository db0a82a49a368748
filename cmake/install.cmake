# `cmake --install` gives the library, its headers, the program and a CMake package, so that
# find_package(trident) and target_link_libraries(... trident::trident) work; tests/install does it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(TRIDENT_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/trident)

# trident_options is linked privately, but a static library's export has to name it.
install(TARGETS trident trident_options EXPORT trident-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/machines
        DESTINATION ${CMAKE_INSTALL_DATADIR}/trident)
install(EXPORT trident-targets NAMESPACE trident:: DESTINATION ${TRIDENT_PACKAGE_DIR})
include(cmake/public_headers.cmake)
foreach(header IN LISTS TRIDENT_PUBLIC_HEADERS TRIDENT_INCLUDED_HEADERS)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trident/${folder})
endforeach()

get_property(app_targets DIRECTORY app PROPERTY BUILDSYSTEM_TARGETS)
foreach(target IN LISTS app_targets)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

get_target_property(type trident TYPE)
if(type STREQUAL "STATIC_LIBRARY")
  set(TRIDENT_STATIC ON)
else()
  set(TRIDENT_STATIC OFF)
endif()
configure_package_config_file(cmake/trident-config.cmake.in
                              ${PROJECT_BINARY_DIR}/package/trident-config.cmake
                              INSTALL_DESTINATION ${TRIDENT_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/trident-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/trident-config.cmake
              ${PROJECT_BINARY_DIR}/package/trident-config-version.cmake
        DESTINATION ${TRIDENT_PACKAGE_DIR})
