/// Calls a function with the C++ type of a datatype's elements.
#pragma once

#include <cstdint>

#include "strata/kserve/model/tensor.h"

namespace strata {

/// Calls `use` with a 0 of the type: use(std::int32_t{0}). False, without a call, for FP16, BF16
/// and BYTES, whose elements have no such type.
template <typename Use>
bool visit_numbers(Datatype datatype, const Use& use) {
  using enum Datatype;
  switch (datatype) {
    case kBool:
      return use(false), true;
    case kUint8:
      return use(std::uint8_t{0}), true;
    case kUint16:
      return use(std::uint16_t{0}), true;
    case kUint32:
      return use(std::uint32_t{0}), true;
    case kUint64:
      return use(std::uint64_t{0}), true;
    case kInt8:
      return use(std::int8_t{0}), true;
    case kInt16:
      return use(std::int16_t{0}), true;
    case kInt32:
      return use(std::int32_t{0}), true;
    case kInt64:
      return use(std::int64_t{0}), true;
    case kFp32:
      return use(0.0F), true;
    case kFp64:
      return use(0.0), true;
    case kFp16:
    case kBf16:
    case kBytes:
      break;
  }
  return false;
}

}  // namespace strata
