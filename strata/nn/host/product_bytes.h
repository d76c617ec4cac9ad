/// Says what products in 16 bit take beside operands and result, so that plans can count it.
///
/// Widened: the weight in fp32 and a piece of the rows before and after. In the processor's own 16
/// bit: a weight gradient until it is added to the fp32 one. fp32: nothing.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace strata {

/// Whether products of this type are made of operands widened to fp32 on this processor.
bool widens_products(c10::ScalarType dtype);

/// Of a product of so many rows, in either direction.
std::int64_t host_product_bytes(c10::ScalarType dtype, std::int64_t rows, std::int64_t in,
                                std::int64_t out);
std::int64_t host_weight_gradient_bytes(c10::ScalarType dtype, std::int64_t rows, std::int64_t in,
                                        std::int64_t out);

/// For tests of both ways: decides it on every processor while it lives.
class WidenProducts {
 public:
  explicit WidenProducts(bool widen);
  ~WidenProducts();
  WidenProducts(const WidenProducts&) = delete;
  WidenProducts& operator=(const WidenProducts&) = delete;
};

}  // namespace strata
