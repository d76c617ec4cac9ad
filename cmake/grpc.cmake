# strata_grpc_library(NAME PROTO): makes the static library NAME of the messages and the services of a file of
# protobuf. Only sources that need its headers may link it: torch's include folder carries another protobuf.
function(strata_grpc_library name proto)
  if(NOT TARGET PkgConfig::GRPC)
    pkg_check_modules(GRPC REQUIRED IMPORTED_TARGET GLOBAL grpc++ protobuf)
  endif()
  find_program(STRATA_PROTOC protoc REQUIRED)
  find_program(STRATA_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
  cmake_path(ABSOLUTE_PATH proto BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  cmake_path(GET proto PARENT_PATH folder)
  cmake_path(GET proto STEM stem)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/proto)
  file(MAKE_DIRECTORY ${out})
  add_custom_command(
    OUTPUT ${out}/${stem}.pb.cc ${out}/${stem}.pb.h ${out}/${stem}.grpc.pb.cc ${out}/${stem}.grpc.pb.h
    COMMAND ${STRATA_PROTOC} --proto_path=${folder} --cpp_out=${out} --grpc_out=${out}
            --plugin=protoc-gen-grpc=${STRATA_GRPC_PLUGIN} ${stem}.proto
    DEPENDS ${proto}
    VERBATIM)
  add_library(${name} STATIC ${out}/${stem}.pb.cc ${out}/${stem}.grpc.pb.cc)
  target_include_directories(${name} SYSTEM PUBLIC ${out})
  target_link_libraries(${name} PUBLIC PkgConfig::GRPC)
  target_compile_options(${name} PRIVATE -w)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
endfunction()
