# strata_folder(NAME [TORCH] DEPENDS folder... LIBRARIES target... [LABEL pure|cpu] [SHARDS count] [ALONE])
#
# Makes the static library strata_NAME of the sources of the current folder and, of its
# *_test.cpp, the program NAME_test, registered with ctest under the label of its need.
# TORCH: the folder sees libtorch; its sources share one precompiled header.
# SHARDS: its tests are divided among so many entries of ctest, which may run side by side.
# ALONE: nothing runs beside its tests, because they look at the clock.
function(strata_folder name)
  cmake_parse_arguments(ARG "TORCH;ALONE" "LABEL;SHARDS" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "*.cpp")
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|main)\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")

  list(TRANSFORM ARG_DEPENDS PREPEND strata_)
  add_library(strata_${name} STATIC ${sources})
  target_include_directories(strata_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(strata_${name} PUBLIC ${ARG_DEPENDS} ${ARG_LIBRARIES} Threads::Threads)
  set_target_properties(strata_${name} PROPERTIES UNITY_BUILD ${STRATA_UNITY} UNITY_BUILD_BATCH_SIZE 16)
  if(ARG_TORCH)
    target_link_libraries(strata_${name} PUBLIC strata_torch_pch)
    target_precompile_headers(strata_${name} REUSE_FROM strata_torch_pch)
  endif()

  if(STRATA_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE strata_${name} GTest::gtest GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE STRATA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    if(ARG_TORCH)
      target_precompile_headers(${name}_test REUSE_FROM strata_torch_pch)
    endif()
    if(NOT ARG_SHARDS)
      set(ARG_SHARDS 1)
    endif()
    foreach(shard RANGE 1 ${ARG_SHARDS})
      set(test ${name})
      if(ARG_SHARDS GREATER 1)
        set(test ${name}_${shard})
      endif()
      math(EXPR index "${shard} - 1")
      add_test(NAME ${test} COMMAND ${name}_test --gtest_brief=1)
      set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 1500 RUN_SERIAL "${ARG_ALONE}"
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
  endif()
endfunction()
