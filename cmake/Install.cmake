# cmake --install BUILD --prefix P; then find_package(tailcast) gives tailcast::producer and
# tailcast::consumer with everything they need.
include(CMakePackageConfigHelpers)
install(EXPORT tailcast_targets NAMESPACE tailcast:: DESTINATION lib/cmake/tailcast
        FILE tailcast-targets.cmake)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tailcast-config.cmake.in
  ${PROJECT_BINARY_DIR}/tailcast-config.cmake INSTALL_DESTINATION lib/cmake/tailcast)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tailcast-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tailcast-config.cmake
              ${PROJECT_BINARY_DIR}/tailcast-config-version.cmake
        DESTINATION lib/cmake/tailcast)
