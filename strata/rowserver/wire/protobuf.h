// Parses messages of rows.proto out of frames.
//
// Errors  SystemError: bytes that are no such message.
#pragma once

#include <climits>
#include <cstddef>
#include <span>
#include <string>

#include "strata/rowserver/codec/byte_codec.h"

namespace strata {

/// `where`: the place that an error names.
template <typename Message>
Message parse_message(std::span<const std::byte> bytes, const std::string& where) {
  Message message;
  if (bytes.size() > INT_MAX ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    ByteReader({}, where).refuse("its fields are no message of protobuf");
  return message;
}

}  // namespace strata
