# `cpack` in the build folder makes the packages (scripts/package):
#   DEB   trident and libtrident-dev, which take their libraries from the distribution
#   TGZ   an archive that contains its libraries, except the C library and MPI
# install.cmake defines the components `runtime` and `development`; `bundled` has the libraries.
if(NOT TRIDENT_MPI_MODULE)
  message(FATAL_ERROR "TRIDENT_PACKAGES needs TRIDENT_MPI_MODULE")
endif()

# A RUNPATH holds for a file's own libraries alone. An RPATH also holds for the libraries of these,
# unless they have a RUNPATH.
target_link_options(trident_program PRIVATE -Wl,--disable-new-dtags)
target_link_options(trident PRIVATE -Wl,--disable-new-dtags)

# The program's manual page and completions.
set(pages ${PROJECT_BINARY_DIR}/pages)
file(MAKE_DIRECTORY ${pages})
add_custom_command(OUTPUT ${pages}/trident.1.gz ${pages}/trident ${pages}/trident.fish ${pages}/_trident
                   COMMAND trident_program man | gzip -9n > ${pages}/trident.1.gz
                   COMMAND trident_program completion bash > ${pages}/trident
                   COMMAND trident_program completion fish > ${pages}/trident.fish
                   COMMAND trident_program completion zsh > ${pages}/_trident
                   DEPENDS trident_program)
add_custom_target(trident_pages ALL DEPENDS ${pages}/trident.1.gz)
install(FILES ${pages}/trident.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime)
install(FILES ${pages}/trident DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        COMPONENT runtime)
install(FILES ${pages}/trident.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT runtime)
install(FILES ${pages}/_trident DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions
        COMPONENT runtime)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT runtime)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libtrident-dev RENAME copyright
        COMPONENT development)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/trident COMPONENT runtime
        PATTERN machines EXCLUDE)

# The C and C++ library are the system's, at least as new as scripts/least_glibc prints.
install(RUNTIME_DEPENDENCY_SET libraries
        PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|stdc\\+\\+|gcc_s)\\.so"
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT bundled EXCLUDE_FROM_ALL)
install(CODE "execute_process(
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/library_licenses \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}
            \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}/licenses
    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT bundled EXCLUDE_FROM_ALL)

set(CPACK_PACKAGE_NAME trident)
set(CPACK_PACKAGE_VENDOR Trident)
set(CPACK_PACKAGE_CONTACT "Trident developers <trident@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
    "pretrains transformers with data, tensor and pipeline parallelism")
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION
    "${CPACK_PACKAGE_DESCRIPTION_SUMMARY}\n One JSON file names the model, the layout of ranks and the data; any layout trains the same model.")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
    "headers and CMake package of trident\n For programs that add models, schedules, optimizers or transports of their own.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_THREADS 0)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/packages_each.cmake)

set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME trident)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtrident-dev)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})  # libtrident.so
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "trident (= ${PROJECT_VERSION}), nlohmann-json3-dev (>= 3.11), libfmt-dev (>= 9)")
include(CPack)
cpack_add_component(runtime)
cpack_add_component(development DEPENDS runtime)
cpack_add_component(bundled)
