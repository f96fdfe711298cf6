# tailcast_module(NAME [INTERNAL] [COMPUTES]
#   PUBLIC_HEADERS x.h ...   the headers that users of the package include; they are installed
#   HEADERS x.h ...          the further headers that other modules may include; not installed
#   SOURCE_HEADERS x.h ...   headers that only sources of other modules may include; not installed
#   TEST_HEADERS x_conformance.h ...   headers for tests and benches only, those of other modules too
#   SOURCES x.cc ...         without any source the module is header-only
#   DEPS base storage ...    the modules whose headers this module's files include
#   EXTERNAL absl::...       libraries whose headers appear in this module's headers
#   PRIVATE_EXTERNAL ...     libraries used in sources only
#   TESTS x_test.cc ...      each becomes the test program <module>_<x_test>
#   TEST_DEPS sim ...        modules that only the tests include
#   TEST_EXTERNAL ...        libraries that only the tests use
#   FUZZERS x_fuzz.cc ...    fuzz targets (src/fuzz): each becomes the program <module>_<x_fuzz>, and a
#                            test of 10 s; they are tests in all other respects
#   FUZZED x.cc ...          the sources of the module that they are guided through by coverage
#   BENCHES x_bench.cc ...   each becomes <module>_<x_bench>
#   BENCH_SOURCES x.cc ...   further sources of each of them
#   BENCH_DEPS sim ...       modules that only the benches include
#   BENCH_EXTERNAL ...)      libraries that only the benches use
# COMPUTES: its tests wait for nothing; they run at low priority, beside tests of running processes.
# INTERNAL: no archive of it is installed. Of the other modules one is, because the libraries that users link are made
# of them; what is public is PUBLIC_HEADERS.
#
# A module is the library tailcast_NAME, alias tailcast::NAME. Its headers are included as
# "tailcast/NAME/x.h", which is a path of the tree: include/tailcast is a link to src. Every module's
# headers can be found; cmake/house.py holds that those included are declared here. DEPS are linked
# PUBLIC, so what they depend on comes with them: the program NAME_link, which has all of the module
# and links with no other, shows that no function is missing, and that none is called of a module
# above this one.
function(tailcast_module NAME)
  cmake_parse_arguments(ARG "INTERNAL;COMPUTES" "" "PUBLIC_HEADERS;HEADERS;SOURCE_HEADERS;TEST_HEADERS;SOURCES;DEPS;EXTERNAL;PRIVATE_EXTERNAL;TESTS;TEST_DEPS;TEST_EXTERNAL;FUZZERS;FUZZED;BENCHES;BENCH_SOURCES;BENCH_DEPS;BENCH_EXTERNAL" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tailcast_module(${NAME}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  set(target tailcast_${NAME})
  list(TRANSFORM ARG_DEPS PREPEND tailcast:: OUTPUT_VARIABLE deps)
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:tailcast_options> ${ARG_PRIVATE_EXTERNAL})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(tailcast::${NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${NAME})
  target_include_directories(${target} ${scope}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_compile_features(${target} ${scope} cxx_std_20)
  target_link_libraries(${target} ${scope} ${deps} ${ARG_EXTERNAL})
  if(NOT ARG_INTERNAL)
    install(TARGETS ${target} EXPORT tailcast_targets ARCHIVE DESTINATION lib)
    if(ARG_PUBLIC_HEADERS)
      install(FILES ${ARG_PUBLIC_HEADERS} DESTINATION include/tailcast/${NAME})
    endif()
  endif()

  if(TAILCAST_TESTS AND ARG_SOURCES)
    add_executable(${NAME}_link ${PROJECT_SOURCE_DIR}/cmake/link_test.cc)
    target_link_libraries(${NAME}_link PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,${target}> tailcast_options)
    target_link_options(${NAME}_link PRIVATE -s)
    set_target_properties(${NAME}_link PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/link)
  endif()
  if(TAILCAST_TESTS)
    list(TRANSFORM ARG_TEST_DEPS PREPEND tailcast:: OUTPUT_VARIABLE test_deps)
    foreach(source ${ARG_TESTS})
      get_filename_component(stem ${source} NAME_WE)
      set(test ${NAME}_${stem})
      add_executable(${test} ${source})
      target_link_libraries(${test} PRIVATE ${target} ${test_deps} tailcast_options
                            ${ARG_TEST_EXTERNAL} GTest::gmock GTest::gtest_main)
      set_target_properties(${test} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
      if(ARG_COMPUTES)
        tailcast_computing_test(${test} 600 $<TARGET_FILE:${test}> --gtest_brief=1)
      else()
        add_test(NAME ${test} COMMAND ${test} --gtest_brief=1)
        tailcast_time_limit(${test} 120)
      endif()
    endforeach()
  endif()
  # Not under the thread sanitizer: decoders have no threads.
  if(TAILCAST_TESTS AND ARG_FUZZERS AND NOT TAILCAST_SANITIZE STREQUAL "thread")
    set(guide -fsanitize-coverage=trace-pc,trace-cmp)
    if(ARG_FUZZED)
      # The same sources once more; linked first, so the module's own are not pulled in.
      add_library(${target}_fuzzed STATIC EXCLUDE_FROM_ALL ${ARG_FUZZED})
      target_compile_options(${target}_fuzzed PRIVATE ${guide})
      target_link_libraries(${target}_fuzzed PRIVATE ${target} tailcast_options ${ARG_PRIVATE_EXTERNAL})
      set(fuzzed $<TARGET_FILE:${target}_fuzzed>)
    endif()
    foreach(source ${ARG_FUZZERS})
      get_filename_component(stem ${source} NAME_WE)
      set(fuzzer ${NAME}_${stem})
      add_executable(${fuzzer} ${source})
      target_compile_options(${fuzzer} PRIVATE ${guide})
      target_link_libraries(${fuzzer} PRIVATE ${fuzzed} tailcast::fuzz tailcast_fuzz_main ${target}
                            ${test_deps} tailcast_options ${ARG_TEST_EXTERNAL})
      if(ARG_FUZZED)
        add_dependencies(${fuzzer} ${target}_fuzzed)
      endif()
      set_target_properties(${fuzzer} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
      set_property(TARGET tailcast_fuzz_main APPEND PROPERTY TAILCAST_FUZZERS ${fuzzer})
      tailcast_computing_test(${fuzzer} 60 $<TARGET_FILE:${fuzzer}> --seconds 10 --seed 1)
      set_tests_properties(${fuzzer} PROPERTIES LABELS fuzz)
    endforeach()
  endif()
  if(TAILCAST_BENCHES)
    list(TRANSFORM ARG_BENCH_DEPS PREPEND tailcast:: OUTPUT_VARIABLE bench_deps)
    foreach(source ${ARG_BENCHES})
      get_filename_component(stem ${source} NAME_WE)
      add_executable(${NAME}_${stem} EXCLUDE_FROM_ALL ${source} ${ARG_BENCH_SOURCES})
      target_link_libraries(${NAME}_${stem} PRIVATE ${target} ${bench_deps} tailcast_options
                            ${ARG_BENCH_EXTERNAL} benchmark::benchmark benchmark::benchmark_main)
      set_target_properties(${NAME}_${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
    endforeach()
  endif()
endfunction()
