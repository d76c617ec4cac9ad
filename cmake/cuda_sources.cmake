# strata_cuda_sources(PREFIX FILE...)
#
# Sorts sources, whose paths are relative to a folder of strata/, by what they need, which their
# names state:
#
#   PREFIX_cuda        *.cu, *_cuda.cpp, cuda/*.cpp, nccl_*.cpp: compiled in a build with CUDA
#   PREFIX_cuda_tests  tests among these: they need a GPU (label cuda)
#   PREFIX_tests       *_test.cpp of every build
#   PREFIX_stand_ins   *_no_cuda.cpp: what refuses in a build without CUDA
#   PREFIX_on_host     *_on_host.cpp: what stands for an X.cu where kernels are compiled as C++
#   PREFIX_simt_tests  *_simt_test.cpp: tests of kernels compiled as C++ (strata_kernels_on_host)
#   PREFIX_sources     all others but *_main.cpp
#
# *_no_nccl.cpp replaces nccl_*.cpp in builds without NCCL, with or without CUDA: it is among the
# sources unless STRATA_NCCL is on. *_no_cublaslt.cpp replaces *_cublaslt.cpp in a build with CUDA
# but without cuBLASLt's headers.
function(strata_cuda_sources prefix)
  foreach(kind sources tests cuda cuda_tests stand_ins on_host simt_tests)
    set(${kind} "")
  endforeach()
  foreach(file ${ARGN})
    set(kind sources)
    if(file MATCHES "_no_cuda\\.cpp$")
      set(kind stand_ins)
    elseif(file MATCHES "(^|/)cuda/[^/]*_test\\.cpp$|_cuda_test\\.cpp$|(^|/)nccl_[^/]*_test\\.cpp$")
      set(kind cuda_tests)
    elseif(file MATCHES "_simt_test\\.cpp$")
      set(kind simt_tests)
    elseif(file MATCHES "_on_host\\.cpp$")
      set(kind on_host)
    elseif(file MATCHES "_test\\.cpp$")
      set(kind tests)
    elseif(STRATA_CUDA_HEADER_cublasLt.h AND file MATCHES "_no_cublaslt\\.cpp$")
      continue()
    elseif(file MATCHES "(^|/|_)main\\.cpp$" OR (STRATA_NCCL AND file MATCHES "_no_nccl\\.cpp$"))
      continue()
    elseif(file MATCHES "\\.cu$|_cuda\\.cpp$|(^|/)cuda/[^/]*\\.cpp$|(^|/)nccl_[^/]*\\.cpp$")
      set(kind cuda)
    endif()
    list(APPEND ${kind} "${file}")
  endforeach()
  foreach(kind sources tests cuda cuda_tests stand_ins on_host simt_tests)
    set(${prefix}_${kind} "${${kind}}" PARENT_SCOPE)
  endforeach()
endfunction()

# strata_without_missing_headers(OUT FOLDER FILE...)
#
# Removes from a list the sources that include a missing header of NVIDIA's libraries; prints which.
function(strata_without_missing_headers out folder)
  set(kept "")
  set(missing "")
  foreach(file ${ARGN})
    file(STRINGS "${folder}/${file}" includes REGEX "^ *# *include *<(nccl|cublasLt)\\.h>")
    set(lacks "")
    foreach(include ${includes})
      string(REGEX REPLACE ".*<(.*)>.*" "\\1" header "${include}")
      if(NOT STRATA_CUDA_HEADER_${header})
        set(lacks "${header}")
      endif()
    endforeach()
    if(lacks)
      message(STATUS "Strata: ${file} is left out: no ${lacks} here")
      list(APPEND missing "${folder}/${file}")
    else()
      list(APPEND kept "${file}")
    endif()
  endforeach()
  set(${out} "${kept}" PARENT_SCOPE)
  set(${out}_left_out "${missing}" PARENT_SCOPE)
endfunction()
