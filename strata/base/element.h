/// Names the element types of tensors, for code that accesses their bytes without torch.
#pragma once

#include <cstdint>

namespace strata::kernels {

enum class Element : std::uint8_t { kFp32, kBf16, kFp16 };

// Only the bits: code that computes with them widens them first.
struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};

constexpr std::int64_t bytes_of(Element element) { return element == Element::kFp32 ? 4 : 2; }

}  // namespace strata::kernels

/// Runs statements in which `T` is the C++ type of `element`.
#define STRATA_WITH_ELEMENT(element, ...)     \
  switch (element) {                          \
    case ::strata::kernels::Element::kFp32: { \
      using T = float;                        \
      __VA_ARGS__;                            \
      break;                                  \
    }                                         \
    case ::strata::kernels::Element::kBf16: { \
      using T = ::strata::kernels::Bf16;      \
      __VA_ARGS__;                            \
      break;                                  \
    }                                         \
    case ::strata::kernels::Element::kFp16: { \
      using T = ::strata::kernels::Fp16;      \
      __VA_ARGS__;                            \
      break;                                  \
    }                                         \
  }
