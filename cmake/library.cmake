# liblapis for C programs: static and shared, from the objects of the module, with what pkg-config and CMake find it by.
include(CMakePackageConfigHelpers)

foreach(kind static shared)
  string(TOUPPER ${kind} KIND)
  add_library(lapis_${kind} ${KIND} $<TARGET_OBJECTS:kernels>)
  set_target_properties(lapis_${kind} PROPERTIES OUTPUT_NAME lapis EXPORT_NAME ${kind} LINKER_LANGUAGE C)
  target_include_directories(lapis_${kind} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/csrc> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(NOT WIN32)
    target_link_libraries(lapis_${kind} PRIVATE Threads::Threads m)
  endif()
endforeach()
set_target_properties(lapis_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})

add_executable(lapis-run examples/c/lapis_run.c)
target_link_libraries(lapis-run PRIVATE lapis_static)

# Relative, so that an installed tree may be moved.
file(RELATIVE_PATH prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/lapis.pc.in lapis.pc @ONLY)
configure_package_config_file(cmake/lapis-config.cmake.in lapis-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lapis)
write_basic_package_version_file(lapis-config-version.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS lapis_static lapis_shared lapis-run EXPORT lapis-targets)
install(FILES csrc/lapis.h csrc/lapis.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lapis.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lapis-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/lapis-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lapis)
install(EXPORT lapis-targets NAMESPACE lapis:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lapis)

# ctest --test-dir build/library: the golden vectors of docs/format.md on every instruction set of this processor.
enable_testing()
add_executable(golden tests/c/golden.c)
set_target_properties(golden PROPERTIES C_STANDARD 11)
target_include_directories(golden PRIVATE csrc)
target_link_libraries(golden PRIVATE lapis_static)
add_test(NAME golden COMMAND golden ${CMAKE_CURRENT_SOURCE_DIR})
