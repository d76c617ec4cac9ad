# strata_version: a library of one small source that states the version and, in a git checkout, the
# commit.
#
# Every build queries git; only a changed commit rewrites the source and compiles it.

if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
  # The build's own call: writes OUTPUT from VERSION and the commit of the checkout SOURCE, if it is
  # one.
  find_program(git git)
  if(git AND EXISTS "${SOURCE}/.git")
    execute_process(COMMAND "${git}" -C "${SOURCE}" rev-parse --short=12 HEAD
      OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    # Does not take git's lock, which the user's own git may need.
    execute_process(COMMAND "${git}" --no-optional-locks -C "${SOURCE}" status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changes ERROR_QUIET)
  endif()
  if(commit)
    string(APPEND VERSION ", commit ${commit}")
    if(changes)
      string(APPEND VERSION " with changes")
    endif()
  endif()
  file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT
    "#include \"strata/cli/version.h\"\n\nconst char* const strata::kVersion = \"${VERSION}\";\n")
  return()
endif()

set(output "${CMAKE_BINARY_DIR}/version.cpp")
add_custom_target(version_source
  COMMAND "${CMAKE_COMMAND}" -D "VERSION=${PROJECT_VERSION}" -D "SOURCE=${CMAKE_SOURCE_DIR}" -D "OUTPUT=${output}"
          -P "${CMAKE_CURRENT_LIST_FILE}"
  BYPRODUCTS "${output}"
  COMMENT "Asking git which commit this is"
  VERBATIM)
add_library(strata_version STATIC "${output}")
target_include_directories(strata_version PUBLIC "${CMAKE_SOURCE_DIR}")
add_dependencies(strata_version version_source)
