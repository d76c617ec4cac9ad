# The preset cuda-compile: compiles every CUDA source against a libtorch without CUDA, and links
# them with the objects of a finished CPU build as far as possible (tools/cuda_link.py). The result
# cannot run.
#
# STRATA_CPU_BUILD: folder of that build, with the program strata in it.
set(STRATA_CPU_BUILD "${CMAKE_SOURCE_DIR}/build/release" CACHE PATH "A finished CPU build")

add_library(strata_torch_pch STATIC cmake/torch_pch.cpp)
find_package(GTest REQUIRED)
target_link_libraries(strata_torch_pch PUBLIC strata::torch strata::cuda GTest::gtest)
target_precompile_headers(strata_torch_pch PRIVATE cmake/torch_test_pch.h)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# cuda_FOLDER and cuda_FOLDER_test: object files only.
function(strata_cuda_objects target)
  if(NOT ARGN)
    return()
  endif()
  add_library(${target} OBJECT ${ARGN})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE strata_torch_pch GTest::gtest)
  target_compile_definitions(${target} PRIVATE STRATA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_precompile_headers(${target} REUSE_FROM strata_torch_pch)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${STRATA_UNITY} UNITY_BUILD_BATCH_SIZE 16)
  set_property(GLOBAL APPEND PROPERTY STRATA_CUDA_TARGETS ${target})
endfunction()

add_library(cuda_test_main OBJECT strata/device/cuda_test_main.cpp)
target_include_directories(cuda_test_main PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(cuda_test_main PRIVATE strata_torch_pch GTest::gtest)
target_precompile_headers(cuda_test_main REUSE_FROM strata_torch_pch)
set(objects "")
set(test_objects $<TARGET_OBJECTS:cuda_test_main>)
set(left_out "")
set(count 0)
file(GLOB folders RELATIVE ${CMAKE_SOURCE_DIR}/strata CONFIGURE_DEPENDS strata/*)
foreach(folder ${folders})
  file(GLOB_RECURSE files RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS strata/${folder}/*.cpp strata/${folder}/*.cu)
  strata_cuda_sources(all ${files})
  strata_without_missing_headers(kept ${CMAKE_SOURCE_DIR} ${all_cuda})
  list(APPEND left_out ${kept_left_out})
  strata_cuda_objects(cuda_${folder} ${kept})
  set(kernels ${kept})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${kernels} ${all_simt_tests} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  strata_without_missing_headers(kept_tests ${CMAKE_SOURCE_DIR} ${all_cuda_tests} ${all_simt_tests})
  list(APPEND left_out ${kept_tests_left_out})
  strata_cuda_objects(cuda_${folder}_test ${kept_tests})
  foreach(file ${kept} ${kept_tests})
    math(EXPR count "${count} + 1")
  endforeach()
  if(kept)
    list(APPEND objects $<TARGET_OBJECTS:cuda_${folder}>)
  endif()
  if(kept_tests)
    list(APPEND test_objects $<TARGET_OBJECTS:cuda_${folder}_test>)
  endif()
endforeach()

strata_cuda_objects(cuda_bench bench/gpu/gpu_facts.cpp)
math(EXPR count "${count} + 1")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/bench_objects.txt CONTENT "$<TARGET_OBJECTS:cuda_bench>\n")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/objects.txt CONTENT "$<JOIN:${objects},\n>\n")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/test_objects.txt CONTENT "$<JOIN:${test_objects},\n>\n")
get_property(targets GLOBAL PROPERTY STRATA_CUDA_TARGETS)
# Each time: the CPU build may have changed.
add_custom_target(cuda_link ALL
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/cuda_link.py --cpu-build ${STRATA_CPU_BUILD}
    --toolkit ${STRATA_CUDA_TOOLKIT} --out ${CMAKE_BINARY_DIR} --sources ${count}
    --architectures "${CMAKE_CUDA_ARCHITECTURES}" --left-out ${left_out}
  USES_TERMINAL VERBATIM)
add_dependencies(cuda_link cuda_test_main ${targets})
