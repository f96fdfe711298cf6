# Warnings, sanitizers, linker and compiler cache: the same for every target of the project.
add_library(tailcast_options INTERFACE)
target_compile_options(tailcast_options INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wno-missing-field-initializers
  # gcc 12 warns within its own std::string at -O3 (gcc bug 105329).
  $<$<CONFIG:Release>:-Wno-restrict>
  # The one-sided read path validates with SSE4.2's crc32 instruction; every x86-64 server of
  # the last twelve years has it, and src/base/crc32c.cc falls back to tables elsewhere.
  -fno-omit-frame-pointer)
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  # Elsewhere gcc rounds a product and a sum together, unless it is told not to: the simulator's
  # hashes would differ between processors.
  target_compile_options(tailcast_options INTERFACE -ffp-contract=off)
endif()
if(NOT TAILCAST_FAULT_POINTS)
  target_compile_definitions(tailcast_options INTERFACE TAILCAST_FAULT_POINTS=0)
endif()
# How many times longer a test may take than in the dev preset.
set(TAILCAST_TIME_FACTOR 1)
if(TAILCAST_SANITIZE STREQUAL "address")
  set(TAILCAST_TIME_FACTOR 4)
  set(sanitizers -fsanitize=address,undefined,float-cast-overflow)
  target_compile_options(tailcast_options INTERFACE
    ${sanitizers} -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS)
  target_link_options(tailcast_options INTERFACE ${sanitizers})
elseif(TAILCAST_SANITIZE STREQUAL "thread")
  set(TAILCAST_TIME_FACTOR 10)
  # gcc warns that fences are not modelled; our fences are paired with atomics that are.
  target_compile_options(tailcast_options INTERFACE -fsanitize=thread -Wno-tsan)
  target_link_options(tailcast_options INTERFACE -fsanitize=thread)
elseif(TAILCAST_SANITIZE)
  message(FATAL_ERROR "TAILCAST_SANITIZE is '${TAILCAST_SANITIZE}'; use address, thread or nothing")
endif()

# Ends TEST after SECONDS, which are those of the dev preset on a busy machine.
function(tailcast_time_limit TEST SECONDS)
  math(EXPR limit "${SECONDS} * ${TAILCAST_TIME_FACTOR}")
  set_tests_properties(${TEST} PROPERTIES TIMEOUT ${limit})
endfunction()

# A test that computes and waits for nothing, so it may run beside tests of running processes: they have the processor first.
function(tailcast_computing_test TEST SECONDS)
  add_test(NAME ${TEST} COMMAND nice -n 19 ${ARGN})
  tailcast_time_limit(${TEST} ${SECONDS})
endfunction()

find_program(TAILCAST_CCACHE ccache)
if(TAILCAST_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${TAILCAST_CCACHE})
endif()
find_program(TAILCAST_MOLD mold)
if(TAILCAST_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
