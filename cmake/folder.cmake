# Tests must not read what was measured on this machine, and users must not read what tests measure
# under load.
set(STRATA_TEST_ENVIRONMENT "XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/test_cache;XDG_CONFIG_HOME=${CMAKE_BINARY_DIR}/test_config")

# strata_folder(NAME [TORCH] DEPENDS folder... LIBRARIES target... [LABEL pure|cpu] [SHARDS count]
# [ALONE])
#
# Makes the static library strata_NAME of the sources of the current folder and, of its
# *_test.cpp, the program NAME_test, registered with ctest under the label of its need. A subfolder
# with a CMakeLists.txt is a target of its own.
# TORCH: the folder sees libtorch; its sources share one precompiled header, and its tests another.
# SHARDS: divides its tests among so many entries of ctest, which may run in parallel.
# ALONE: no other test runs in parallel with its tests, because they read the clock.
#
# If the folder has tests *_simt_test.cpp, its kernels (*.cu) are also compiled as C++
# (strata/device/simt/simt.h) into the library strata_NAME_on_host. The program NAME_simt_test
# compares it with the host's own kernels; in a build with CUDA NAME_cuda_test does the same on a
# GPU.
function(strata_folder name)
  cmake_parse_arguments(ARG "TORCH;ALONE" "LABEL;SHARDS" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS "*.cpp" "*.cu")
  file(GLOB own_targets RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS "*/CMakeLists.txt")
  foreach(own_target ${own_targets})
    cmake_path(GET own_target PARENT_PATH subfolder)
    list(FILTER files EXCLUDE REGEX "^${subfolder}/")
  endforeach()
  strata_cuda_sources(all ${files})
  set(sources ${all_sources} ${all_stand_ins})
  if(STRATA_CUDA)
    set(sources ${all_sources} ${all_cuda})
  endif()
  set(tests ${all_tests})
  # Object files of their own, which the linker omits if the ones that they replace exist
  # (cuda_link.py), and kernels, which share names: CMake joins CUDA sources, too, from 3.31 on.
  set(alone ${all_stand_ins} ${all_sources} ${all_cuda})
  list(FILTER alone INCLUDE REGEX "_no_(cuda|nccl)\\.cpp$|\\.cu$")
  set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

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
      target_precompile_headers(${name}_test REUSE_FROM strata_torch_test_pch)
    endif()
    if(NOT ARG_SHARDS)
      set(ARG_SHARDS 1)
    endif()
    set(timeout 1500)
    if(STRATA_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
      set(timeout 7200)  # up to ten times slower
    endif()
    foreach(shard RANGE 1 ${ARG_SHARDS})
      set(test ${name})
      if(ARG_SHARDS GREATER 1)
        set(test ${name}_${shard})
      endif()
      math(EXPR index "${shard} - 1")
      add_test(NAME ${test} COMMAND ${name}_test --gtest_brief=1)
      set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${timeout} RUN_SERIAL "${ARG_ALONE}"
        ENVIRONMENT "${STRATA_TEST_ENVIRONMENT};GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
  endif()

  if(STRATA_TESTS AND STRATA_CUDA AND (all_cuda_tests OR all_simt_tests))
    add_executable(${name}_cuda_test ${all_cuda_tests} ${all_simt_tests} ${CMAKE_SOURCE_DIR}/strata/device/cuda_test_main.cpp)
    target_link_libraries(${name}_cuda_test PRIVATE strata_${name} strata_device GTest::gtest)
    target_compile_definitions(${name}_cuda_test PRIVATE STRATA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    target_precompile_headers(${name}_cuda_test REUSE_FROM strata_torch_test_pch)
    add_dependencies(cuda_tests ${name}_cuda_test)
    add_test(NAME ${name}_cuda COMMAND ${name}_cuda_test --gtest_brief=1)
    set_tests_properties(${name}_cuda PROPERTIES LABELS cuda TIMEOUT 600 RUN_SERIAL ON SKIP_RETURN_CODE 77
      ENVIRONMENT "${STRATA_TEST_ENVIRONMENT}")
  endif()

  if(STRATA_TESTS AND all_simt_tests)
    strata_kernels_on_host(${name} ${files})
    add_executable(${name}_simt_test ${all_simt_tests})
    # First in the link order: precedes the kernels of nvcc in the folder's own library.
    target_link_libraries(${name}_simt_test
      PRIVATE strata_${name}_on_host strata_${name} GTest::gtest GTest::gtest_main)
    add_test(NAME ${name}_simt COMMAND ${name}_simt_test --gtest_brief=1)
    set_tests_properties(${name}_simt PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 600)
  endif()
endfunction()

# strata_kernels_on_host(NAME FILE...): for each X.cu among the folder's files, X_on_host.cpp if it
# exists, and those of earlier folders.
function(strata_kernels_on_host name)
  strata_cuda_sources(all ${ARGN})
  set(sources ${all_on_host})
  list(FILTER all_cuda INCLUDE REGEX "\\.cu$")
  foreach(kernel ${all_cuda})
    string(REGEX REPLACE "\\.cu$" "" path "${kernel}")
    if(NOT "${path}_on_host.cpp" IN_LIST sources)
      set(source "${CMAKE_CURRENT_BINARY_DIR}/on_host/${path}.cpp")
      file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${CMAKE_CURRENT_SOURCE_DIR}/${kernel}\"\n")
      list(APPEND sources "${source}")
    endif()
  endforeach()
  add_library(strata_${name}_on_host STATIC ${sources})
  target_include_directories(strata_${name}_on_host PUBLIC ${CMAKE_SOURCE_DIR})
  foreach(folder device comm nn)
    if(TARGET strata_${folder}_on_host AND NOT folder STREQUAL name)
      target_link_libraries(strata_${name}_on_host PUBLIC strata_${folder}_on_host)
    endif()
  endforeach()
endfunction()
