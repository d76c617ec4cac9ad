# Warnings, optimisation, linker, cache and sanitizers, the same for every target.

find_program(STRATA_CCACHE ccache)
if(STRATA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers need these; nothing in the sources depends on time stamps.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${STRATA_CCACHE})
endif()

# Designated initialisers omit members that keep their defaults.
set(host "$<COMPILE_LANGUAGE:C,CXX>")  # nvcc has other flags (cuda.cmake)
add_compile_options("$<${host}:-Wall;-Wextra;-Wno-unused-parameter;-Wno-missing-field-initializers>")
# A switch over an enum without a default must name every value, so that code with a new value does
# not compile until each switch handles it: an Op missing in the ledger would make its promise of
# completeness false.
add_compile_options("$<${host}:-Werror=switch>")
# g++ 12 warns of copies inside std::string's operator+ that never happen (GCC bug 105651), in three
# ways; of floats of a vector beyond any size; of empty vectors that a designated initialiser omits;
# and of an else after an if with one of GoogleTest's macros, which close theirs in a switch
# (clang++ detects that).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  foreach(warning restrict stringop-overflow stringop-overread array-bounds maybe-uninitialized dangling-else)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-${warning}>)
  endforeach()
endif()
# -g1: line tables are enough for backtraces, and full debug information of ATen is gigabytes.
add_compile_options("$<${host}:-g1>")
# The same for libraries and programs, so that they share a precompiled header.
add_compile_options("$<${host}:-fPIC>")
# ATen's flags, so that our kernels contract a*b+c only where we write it.
add_compile_options("$<${host}:-ffp-contract=off>")
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  find_program(STRATA_LLD NAMES ld.lld-19 ld.lld)
  if(STRATA_LLD)
    add_link_options(--ld-path=${STRATA_LLD})
  endif()
endif()

if(STRATA_SANITIZE)
  add_compile_options("$<${host}:-fsanitize=${STRATA_SANITIZE};-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=${STRATA_SANITIZE})
  # Ten times slower: tests that repeat one thing for minutes repeat it less often.
  add_compile_definitions(STRATA_SANITIZED)
endif()
if(STRATA_FUZZ)
  add_compile_options("$<${host}:-fsanitize=fuzzer-no-link>")
endif()
