/// Widens the tensor types of GGUF files, most of them blocks of small integers with common scales,
/// to fp32.
///
/// Source  ggml's formulas for each type; `quants.dequantize` of the Python package `gguf` gives
///         the same bits (tests/parity/gguf_test.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace strata {

/// A row of a tensor is a sequence of whole blocks.
struct BlockType {
  std::uint32_t id;  ///< in the file
  const char* name;
  std::int64_t elements;
  std::int64_t bytes;
  void (*widen)(const std::byte* block, float* values);
};

inline constexpr std::int64_t kMaxBlockElements = 256;

const BlockType* find_block_type(std::uint32_t id);  ///< null: not supported

std::string tensor_type_name(std::uint32_t id);  ///< also of types that are not supported
std::string supported_tensor_types();            ///< "F32, F16, ..."

}  // namespace strata
