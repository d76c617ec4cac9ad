# Makes CUDA a language of the build, and strata::cuda of what CUDA sources need in addition to
# libtorch.
#
# STRATA_CUDA_TOOLKIT (or environment): folder of bin/nvcc; else the machine's
# (tools/cuda_toolkit.sh). Headers and libraries of cuBLAS and NCCL come from there or from the
# wheels next to PyTorch's (site-packages/nvidia/*). PyTorch's libraries take precedence over the
# toolkit's: a process loads one library of a name, and PyTorch's cuBLAS needs the cuBLASLt that it
# was built with.
#
# If libtorch has no CUDA, its sources can still be compiled: PyTorch's CPU wheel contains the
# headers. The preset cuda-compile does so (cmake/cuda_compile.cmake).

if(NOT STRATA_CUDA_TOOLKIT)
  set(STRATA_CUDA_TOOLKIT "$ENV{STRATA_CUDA_TOOLKIT}")
endif()
if(NOT STRATA_CUDA_TOOLKIT)
  execute_process(COMMAND "${CMAKE_SOURCE_DIR}/tools/cuda_toolkit.sh" --no-install
    OUTPUT_VARIABLE STRATA_CUDA_TOOLKIT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
set(CMAKE_CUDA_COMPILER "${STRATA_CUDA_TOOLKIT}/bin/nvcc" CACHE FILEPATH "CUDA compiler")
set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}" CACHE FILEPATH "Compiles the host's half of .cu files")
set(CMAKE_CUDA_ARCHITECTURES 90a CACHE STRING "GPUs to compile for; 90a: H100, H200")
if(STRATA_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${STRATA_CCACHE})
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc supports C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
endif()
# As for C++: -isystem /usr/include hides <math.h> from libstdc++'s <cmath>, and packages name that
# folder.
list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
# PyTorch's runtime, linked below: one in a process.
set(CMAKE_CUDA_RUNTIME_LIBRARY None)

# The wheels of CUDA 13 share one folder; NCCL has its own.
file(GLOB wheels "${STRATA_TORCH}/../nvidia/*")
set(include_folders "${STRATA_CUDA_TOOLKIT}/include" "${STRATA_CUDA_TOOLKIT}/../nccl/include")
set(library_folders "")
foreach(wheel ${wheels})
  list(APPEND include_folders "${wheel}/include")
  list(APPEND library_folders "${wheel}/lib")
endforeach()
list(APPEND library_folders "${STRATA_CUDA_TOOLKIT}/lib64" "${STRATA_CUDA_TOOLKIT}/lib")

add_library(strata_cuda INTERFACE)
add_library(strata::cuda ALIAS strata_cuda)

# STRATA_CUDA_HEADER_name.h: its folder, or nothing.
foreach(header cuda_runtime.h nccl.h cublasLt.h)
  unset(folder)
  find_path(folder ${header} PATHS ${include_folders} NO_DEFAULT_PATH NO_CACHE)
  set(STRATA_CUDA_HEADER_${header} "")
  if(folder)
    set(STRATA_CUDA_HEADER_${header} "${folder}")
    # nvcc has its own in front.
    target_compile_options(strata_cuda INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-isystem ${folder}>")
  endif()
endforeach()
if(NOT STRATA_CUDA_HEADER_cuda_runtime.h)
  message(FATAL_ERROR "no cuda_runtime.h in '${STRATA_CUDA_TOOLKIT}': set STRATA_CUDA_TOOLKIT")
endif()

# No contraction, as on the host: kernels write fma where they mean it. Constexpr functions are
# usable on the device. Warnings are errors where sources are checked, not where users build with
# other compilers. -Werror also applies to the host compiler: clang counts CUDA's headers as source
# (functions that it does not use), and nvcc passes it designated initialisers in an older form. A
# kernel whose values do not fit its registers is an error, too: it would be slow, and only a GPU's
# profiler would show that.
set(strict "-Werror all-warnings -Xptxas=--warn-on-spills,--warn-on-local-memory-usage")
if(STRATA_CUDA)
  set(strict "")
endif()
target_compile_options(strata_cuda INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-fmad=false --expt-relaxed-constexpr -lineinfo ${strict} -Xcompiler=-fPIC,-Wall,-Wno-unused-function,-Wno-gnu-designator,-ffp-contract=off>")

if(NOT STRATA_CUDA)
  # Replaces a header of PyTorch that its CPU wheel lacks.
  target_compile_definitions(strata_cuda INTERFACE C10_CUDA_NO_CMAKE_CONFIGURE_FILE)
  if(STRATA_CUDA_HEADER_nccl.h)
    set(STRATA_NCCL ON)
  endif()
  return()
endif()

# Wheels have no links for development: libnccl.so.2.
foreach(name cudart cublasLt nccl)
  set(library "")
  foreach(folder ${library_folders})
    file(GLOB found "${folder}/lib${name}.so" "${folder}/lib${name}.so.[0-9]*")
    if(found AND NOT library)
      list(GET found 0 library)
      target_link_libraries(strata_cuda INTERFACE "${library}")
      target_link_options(strata_cuda INTERFACE "-Wl,-rpath,${folder}")
    endif()
  endforeach()
  set(STRATA_CUDA_LIBRARY_${name} "${library}")
  if(NOT library AND NOT name STREQUAL nccl)
    message(FATAL_ERROR "no lib${name} beside PyTorch or in '${STRATA_CUDA_TOOLKIT}'")
  endif()
endforeach()
# libtorch_cuda.so needs more libraries than we call.
foreach(folder ${library_folders})
  if(EXISTS "${folder}")
    target_link_options(strata_cuda INTERFACE "-Wl,-rpath-link,${folder}")
  endif()
endforeach()
if(STRATA_CUDA_LIBRARY_nccl AND STRATA_CUDA_HEADER_nccl.h)
  set(STRATA_NCCL ON)
else()
  message(STATUS "Strata: no NCCL beside PyTorch or in '${STRATA_CUDA_TOOLKIT}'")
endif()
