# strata_embed(TARGET HEADER NAME=FILE[+FILE...]...)
#
# Compiles files into a target as text: NAME, which HEADER declares as an extern std::string_view
# with its namespace, holds the bytes of all its files, in order. A changed file is compiled again.

if(CMAKE_SCRIPT_MODE_FILE)
  # The build's own call: writes OUTPUT from HEADER, NAME (with its namespace) and FILES.
  string(REPLACE "+" ";" FILES "${FILES}")
  set(text "")
  foreach(file IN LISTS FILES)
    file(READ "${file}" part)
    string(APPEND text "${part}")
  endforeach()
  file(WRITE "${OUTPUT}" "#include \"${HEADER}\"\n\nconst std::string_view ${NAME} = "
       "R\"strata_asset(${text})strata_asset\";\n")
  return()
endif()

set(STRATA_EMBED_SCRIPT "${CMAKE_CURRENT_LIST_FILE}")

function(strata_embed target header)
  foreach(asset ${ARGN})
    string(REGEX MATCH "^([^=]+)=(.+)$" ignored "${asset}")
    set(name "${CMAKE_MATCH_1}")
    string(REPLACE "+" ";" files "${CMAKE_MATCH_2}")
    list(TRANSFORM files PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    list(JOIN files "+" joined)
    string(MAKE_C_IDENTIFIER "${name}" stem)
    set(output "${CMAKE_CURRENT_BINARY_DIR}/${stem}.cpp")
    add_custom_command(
      OUTPUT "${output}"
      COMMAND "${CMAKE_COMMAND}" -D "FILES=${joined}" -D "OUTPUT=${output}" -D "NAME=${name}"
              -D "HEADER=${header}" -P "${STRATA_EMBED_SCRIPT}"
      DEPENDS ${files} "${STRATA_EMBED_SCRIPT}"
      VERBATIM)
    target_sources(${target} PRIVATE "${output}")
  endforeach()
endfunction()
