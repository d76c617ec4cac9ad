# Finds libtorch 2.11 or later and makes the target strata::torch of it.
#
# STRATA_TORCH (variable or environment): the folder that holds include/ and lib/. Otherwise
# `pip install` takes the PyTorch of its Python, and every other build the wheel in .venv, which
# tools/bootstrap.sh installs.

if(NOT STRATA_TORCH)
  if(DEFINED ENV{STRATA_TORCH} AND NOT "$ENV{STRATA_TORCH}" STREQUAL "")
    set(STRATA_TORCH "$ENV{STRATA_TORCH}")
  elseif(SKBUILD)
    execute_process(COMMAND "${Python_EXECUTABLE}" -c
        "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE STRATA_TORCH OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  else()
    file(GLOB STRATA_TORCH_WHEEL "${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
    if(STRATA_TORCH_WHEEL)
      list(GET STRATA_TORCH_WHEEL 0 STRATA_TORCH)
    endif()
  endif()
endif()
if(NOT EXISTS "${STRATA_TORCH}/include/ATen/ATen.h")
  message(FATAL_ERROR "no libtorch at '${STRATA_TORCH}': run tools/bootstrap.sh or set STRATA_TORCH")
endif()

# The version's header moved between releases.
set(STRATA_TORCH_VERSION 0)
foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(EXISTS "${STRATA_TORCH}/include/${header}")
    file(READ "${STRATA_TORCH}/include/${header}" torch_version_text)
    if(torch_version_text MATCHES "VERSION_MAJOR ([0-9]+).*VERSION_MINOR ([0-9]+)")
      set(STRATA_TORCH_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
      break()
    endif()
  endif()
endforeach()
if(STRATA_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "libtorch ${STRATA_TORCH_VERSION} at '${STRATA_TORCH}': Strata needs 2.11 or later")
endif()

# TorchConfig.cmake is not used: it requires the compiler, MKL and CUDA setup of the wheel's build.
add_library(strata_torch INTERFACE)
add_library(strata::torch ALIAS strata_torch)
target_include_directories(strata_torch SYSTEM INTERFACE
  "${STRATA_TORCH}/include" "${STRATA_TORCH}/include/torch/csrc/api/include")
# Headers of libtorch include the operators that they need, one by one, and not all of them.
target_compile_definitions(strata_torch INTERFACE AT_PER_OPERATOR_HEADERS)
target_link_directories(strata_torch INTERFACE "${STRATA_TORCH}/lib")
target_link_options(strata_torch INTERFACE "-Wl,-rpath,${STRATA_TORCH}/lib")
# libstdc++ comes first: the CUDA wheel of 2.11 exports pieces of std::filesystem that jump to null,
# and the loader takes the first definition it meets.
target_link_options(strata_torch INTERFACE "LINKER:--push-state,--no-as-needed,-lstdc++,--pop-state")
target_link_libraries(strata_torch INTERFACE torch torch_cpu c10)
# Before 2.12 headers have function templates that clang 18 and later mangles differently from the
# g++ that built the wheel (undefined TensorBase::const_data_ptr at link).
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND STRATA_TORCH_VERSION VERSION_LESS 2.13)
  target_compile_options(strata_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fclang-abi-compat=17>)
endif()

set(STRATA_CUDA "" CACHE STRING "Build with CUDA: ON, OFF, or empty for what libtorch has")
set(STRATA_TORCH_CUDA OFF)
if(EXISTS "${STRATA_TORCH}/lib/libtorch_cuda.so")
  set(STRATA_TORCH_CUDA ON)
endif()
if(STRATA_CUDA STREQUAL "")
  set(STRATA_CUDA ${STRATA_TORCH_CUDA})
elseif(STRATA_CUDA AND NOT STRATA_TORCH_CUDA)
  message(FATAL_ERROR "libtorch at '${STRATA_TORCH}' has no CUDA: set STRATA_TORCH to one that has")
endif()
if(STRATA_CUDA)
  include(cmake/cuda.cmake)
  # --no-as-needed: the CUDA kernels register themselves when the library loads.
  target_link_libraries(strata_torch INTERFACE
    "-Wl,--no-as-needed,-ltorch_cuda,--as-needed" c10_cuda strata::cuda)
endif()
message(STATUS "Strata: libtorch ${STRATA_TORCH_VERSION} at ${STRATA_TORCH} (CUDA: ${STRATA_CUDA})")
