// Products are cut by rows of the output, and each piece runs single-threaded on a thread of the
// pool. Tested with MKL's kernels for AVX2 and AVX-512: rows of a product computed separately have
// the same bits if there are at least 64, widths and rows are multiples of 16 and sums are at least
// 64 long. If few_rows.h finds no difference on this processor, the rows may be any number. Rows of
// a weight gradient have the same bits from 192 on (its sums are longer, and MKL blocks them by the
// shape), its columns do not. Other products are not cut. In 16 bit, and for gradients by oneDNN,
// the cuts are constants, so that bits don't depend on the threads. Every piece packs the other
// operand again (with two pieces per thread a training step took 1.1 times as long), so a thread
// has one piece if all threads run freely, and two if one is delayed.
//
// Libraries add up one to three rows in another order than more rows. A token of a text that is
// being generated must have the bits of the same token in a whole sample, so few rows are computed
// by a kernel of the library's order, or as four, the missing ones zeros, where that kernel's bits
// differ (few_rows.h); in 16 bit as so many that the library multiplies them. Up to 64 rows the
// kernel is also faster: it packs a weight once, not rows and weight for each product. Few rows are
// cut by columns of the output: they take as long as reading their weight. Tested as above, on the
// same instruction sets: columns computed separately have the same bits if they begin at multiples
// of 16.
//
// Widened operands exist for one piece, so that they stay in the cache.
//
// Products of few rows by a weight in 8 or 4 bits read its bytes, and have the bits of products by
// its values; those of many rows are products by its values, which exist for one product.
//
// Products write their results in place. Scratch memory of libraries is not charged: MKL and the
// system's oneDNN allocate it outside libtorch. libtorch's oneDNN, which multiplies 16 bit,
// allocates a tensor whose size depends on the processor's caches (up to 1.4 MB per thread on an
// EPYC), so no plan could know it.
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/device/fast_products.h"
#include "strata/device/parallel.h"
#include "strata/nn/host/elements.h"
#include "strata/nn/host/few_rows.h"
#include "strata/nn/host/host_primitives.h"
#include "strata/nn/host/sgemm.h"
#include "strata/nn/kernels/decoding.h"
#include "strata/nn/kernels/quantised_columns.h"
#include "strata/nn/primitives/quantised_weight.h"

namespace strata {
namespace {

constexpr std::int64_t kLeastRows = 64, kLeastSum = 64, kLeastBlock = 192, kUnit = 16;
constexpr std::int64_t kSameOrder = 4;  // from so many rows on, each row has the same bits
constexpr std::int64_t kMostOwnWork = 16 * 16 * 16;  // rows x in x out that ATen multiplies itself
constexpr std::int64_t kConstantRows = 256;          // rows per piece with constant cuts
constexpr std::int64_t kConstantRead = 1 << 22;  // elements of a weight per such piece of columns
constexpr std::int64_t kLeastRead = 1 << 16;     // so many take longer than to wake a thread

enum class Decision { kProcessor, kYes, kNo };
std::atomic<Decision> widening{Decision::kProcessor}, by_onednn{Decision::kProcessor};

Decision decided(bool yes) { return yes ? Decision::kYes : Decision::kNo; }

bool processor_wants_onednn() {
  static const bool wants =
      mkl_leaves_avx512() && at::get_cpu_capability() == "AVX512" && has_onednn();
  return wants;
}

bool is_fp32(const at::Tensor& x) { return x.scalar_type() == at::kFloat; }

std::int64_t products_per_thread() { return thread_pool().balanced() ? 1 : 2; }

bool may_cut(std::int64_t in, std::int64_t out) { return in % kUnit == 0 && out % kUnit == 0; }

// Calls f(begin, count) for pieces of n rows that begin at multiples of 16.
template <typename F>
void for_pieces(std::int64_t n, std::int64_t pieces, F f) {
  const std::int64_t units = n / kUnit;
  thread_pool().run(n > 0 ? pieces : 0, [&](std::int64_t i) {
    const std::int64_t begin = units * i / pieces * kUnit;
    const std::int64_t end = i + 1 == pieces ? n : units * (i + 1) / pieces * kUnit;
    f(begin, end - begin);
  });
}

bool cuts_are_constants(const at::Tensor& x) { return !is_fp32(x) || multiplies_by_onednn(); }

// Where the rows of a product may be cut without a change of bits.
enum class RowCuts {
  kConstant,  // only at constants
  kUnits,     // at multiples of 16, if the number of rows is one, too
  kAny,       // at multiples of 16, for any number of rows
};

RowCuts cuts_of_product(const at::Tensor& x) {
  if (!is_fp32(x)) return RowCuts::kConstant;
  if (any_rows_hold()) return RowCuts::kAny;
  return multiplies_by_onednn() ? RowCuts::kConstant : RowCuts::kUnits;
}

RowCuts cuts_of_gradient(const at::Tensor& dy) {
  return cuts_are_constants(dy) ? RowCuts::kConstant : RowCuts::kUnits;
}

std::int64_t row_pieces(std::int64_t rows, std::int64_t in, std::int64_t out, RowCuts cuts) {
  if (cuts == RowCuts::kConstant) return std::max<std::int64_t>(1, rows / kConstantRows);
  if (!may_cut(in, out) || in < kLeastSum) return 1;
  if (cuts == RowCuts::kUnits && rows % kUnit != 0) return 1;
  // A piece may be one unit shorter than the mean.
  return pieces_of(rows, kLeastRows + kUnit, products_per_thread());
}

at::Tensor widened_rows(const at::Tensor& x, std::int64_t begin, std::int64_t count) {
  const at::Tensor rows = x.narrow(0, begin, count);
  if (is_fp32(x)) return rows;
  at::Tensor wide = at::empty({count, x.size(1)}, x.options().dtype(at::kFloat));
  kernels::widen(element_of(x), rows.const_data_ptr(), wide.data_ptr<float>(), wide.numel());
  return wide;
}

void round_rows(const at::Tensor& wide, const at::Tensor& to) {
  kernels::narrow(element_of(to), wide.const_data_ptr<float>(), to.data_ptr(), wide.numel());
}

// y[rows] = make(x[rows]), in fp32 for widened operands.
template <typename Make>
void multiply_rows(const at::Tensor& x, at::Tensor& y, RowCuts cuts, bool widen, Make make) {
  if (!is_fp32(y)) cuts = RowCuts::kConstant;
  for_pieces(x.size(0), row_pieces(x.size(0), x.size(1), y.size(1), cuts),
             [&](std::int64_t begin, std::int64_t count) {
               at::Tensor to = y.narrow(0, begin, count);
               if (!widen) return make(x.narrow(0, begin, count), to);
               const at::Tensor from = widened_rows(x, begin, count);
               if (is_fp32(y)) return make(from, to);
               at::Tensor wide = at::empty(to.sizes(), y.options().dtype(at::kFloat));
               make(from, wide);
               round_rows(wide, to);
             });
}

// Calls f(begin, count) for pieces of the columns of few rows, each `in` products long.
template <typename F>
void for_columns(std::int64_t in, std::int64_t out, bool constant, F f) {
  const std::int64_t least = std::max(kUnit, (constant ? kConstantRead : kLeastRead) / in);
  for_pieces(out,
             constant ? std::max<std::int64_t>(1, out / least)
                      : pieces_of(out, least, products_per_thread()),
             f);
}

// y[:, columns] = make(x, columns), in fp32 for widened operands.
template <typename Make>
void multiply_columns(const at::Tensor& x, at::Tensor& y, bool widen, Make make) {
  const at::Tensor from = widen ? widened(x) : x;
  const auto piece = [&](std::int64_t begin, std::int64_t count) {
    at::Tensor to = y.narrow(1, begin, count);
    if (!widen || is_fp32(y)) return make(from, begin, count, to);
    at::Tensor wide = at::empty(to.sizes(), y.options().dtype(at::kFloat));
    make(from, begin, count, wide);
    to.copy_(wide);
  };
  for_columns(x.size(1), y.size(1), cuts_are_constants(x), piece);
}

// to = a b + summand, which is a row or undefined.
void multiply_by_libtorch(const at::Tensor& a, const at::Tensor& b, const at::Tensor& summand,
                          at::Tensor& to) {
  const UnchargedScope scratch;
  summand.defined() ? at::addmm_out(to, summand, a, b) : at::mm_out(to, a, b);
}

void multiply_into(const at::Tensor& a, const at::Tensor& b, const at::Tensor& summand,
                   at::Tensor& to) {
  if (!is_fp32(a) || !multiplies_by_onednn()) return multiply_by_libtorch(a, b, summand, to);
  if (summand.defined()) to.copy_(summand.expand_as(to));
  onednn_sgemm_in_pieces(a, b, to, summand.defined() ? 1 : 0);
}

at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    at::ScalarType dtype);

kernels::QuantisedColumns tiles_of(const at::Tensor& weight, std::int64_t begin, std::int64_t count,
                                   const float* bias = nullptr) {
  return {quantised_type(weight), quantised_tiles(weight, begin), count, bias};
}

// The values of a weight in 8 or 4 bits.
at::Tensor dequantised(const at::Tensor& weight) {
  const std::int64_t out = weight.size(0), in = weight.size(1);
  at::Tensor values = at::empty({out, in}, weight.options().dtype(at::kFloat));
  float* to = values.data_ptr<float>();
  parallel_ranges(
      out, kLeastElements / std::max<std::int64_t>(1, in),
      [&](std::int64_t begin, std::int64_t end) {
        kernels::dequantise(tiles_of(weight, begin, end - begin), in, to + begin * in);
      },
      kernels::kTileColumns);
  return values;
}

// By the kernels, which read weights of every type in place.
at::Tensor multiply_in_order(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             at::ScalarType dtype) {
  const std::int64_t rows = x.size(0), in = x.size(1), out = weight.size(0);
  const at::Tensor from = widened(x), add = bias.defined() ? widened(bias) : at::Tensor();
  at::Tensor y = at::empty({rows, out}, from.options());
  float* to = y.data_ptr<float>();
  for_columns(in, out, /*constant=*/false, [&](std::int64_t begin, std::int64_t count) {
    const kernels::FewRows few{from.const_data_ptr<float>(), rows, in, in};
    const float* bias_of_piece = add.defined() ? add.const_data_ptr<float>() + begin : nullptr;
    if (is_quantised(weight))
      return kernels::multiply_quantised(few, tiles_of(weight, begin, count, bias_of_piece),
                                         to + begin, out);
    kernels::multiply_few(
        few, {element_of(weight), at_element(weight, begin * in), count, bias_of_piece}, to + begin,
        out);
  });
  if (dtype == at::kFloat) return y;
  at::Tensor rounded = at::empty(y.sizes(), x.options().dtype(dtype));
  round_rows(y, rounded);
  return rounded;
}

// The number of rows from which on each row has the same bits. In 16 bit on a processor that
// multiplies them, larger products are oneDNN's, which adds up in another order than ATen.
std::int64_t rows_in_same_order(const at::Tensor& x, const at::Tensor& weight) {
  if (is_fp32(x) || widens_products(x.scalar_type())) return kSameOrder;
  return std::max(kSameOrder, kMostOwnWork / std::max<std::int64_t>(1, weight.numel()) + 1);
}

at::Tensor multiply_padded(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           at::ScalarType dtype, std::int64_t padded) {
  const at::Tensor rows = at::zeros({padded, x.size(1)}, x.options());
  rows.narrow(0, 0, x.size(0)).copy_(x);
  return multiply(rows, weight, bias, dtype).narrow(0, 0, x.size(0));
}

bool multiplies_in_order(const at::Tensor& x, const at::Tensor& weight) {
  return x.size(0) > 0 && x.size(0) <= kernels::kMostFewRows &&
         weight.size(0) >= kernels::kLeastFewColumns &&
         (is_fp32(x) || widens_products(x.scalar_type())) && few_rows_hold();
}

at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  if (multiplies_in_order(x, weight))
    return multiply_in_order(x.detach(), weight.detach(), bias, dtype);
  if (is_quantised(weight)) return multiply(x, dequantised(weight), bias, dtype);
  const std::int64_t least = rows_in_same_order(x, weight);
  if (x.size(0) > 0 && x.size(0) < least)
    return multiply_padded(x.detach(), weight, bias, dtype, least);
  const bool widen = widens_products(x.scalar_type());
  at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options().dtype(dtype));
  const at::Tensor columns = (widen ? widened(weight) : weight.detach()).t();
  const at::Tensor add = bias.defined() ? (widen ? widened(bias) : bias.detach()) : at::Tensor();
  if (x.size(0) == kSameOrder) {
    multiply_columns(
        x, y, widen,
        [&](const at::Tensor& from, std::int64_t begin, std::int64_t count, at::Tensor& to) {
          multiply_into(from, columns.narrow(1, begin, count),
                        add.defined() ? add.narrow(0, begin, count) : add, to);
        });
  } else {
    multiply_rows(x, y, cuts_of_product(x), widen, [&](const at::Tensor& from, at::Tensor& to) {
      multiply_into(from, columns, add, to);
    });
  }
  return y;
}

// Calls f(begin, count) for blocks of rows of sum [out, in].
template <typename F>
void for_blocks(const at::Tensor& sum, bool constant, F f) {
  const std::int64_t out = sum.size(0), most = std::max<std::int64_t>(1, out / kLeastBlock);
  std::int64_t pieces = most;
  if (!constant)
    pieces = may_cut(sum.size(1), out)
                 ? std::min(most, pieces_of(out, kLeastBlock, products_per_thread()))
                 : 1;
  for_pieces(out, pieces, f);
}

}  // namespace

bool widens_products(at::ScalarType dtype) {
  if (dtype == at::kFloat) return false;
  const Decision decided = widening.load(std::memory_order_relaxed);
  if (decided == Decision::kProcessor) return !has_fast_products(dtype);
  return decided == Decision::kYes;
}

WidenProducts::WidenProducts(bool widen) { widening = decided(widen); }

WidenProducts::~WidenProducts() { widening = Decision::kProcessor; }

bool multiplies_by_onednn() {
  const Decision decided = by_onednn.load(std::memory_order_relaxed);
  if (decided == Decision::kProcessor) return processor_wants_onednn();
  return decided == Decision::kYes && has_onednn();
}

MultiplyByOneDnn::MultiplyByOneDnn(bool onednn) { by_onednn = decided(onednn); }

MultiplyByOneDnn::~MultiplyByOneDnn() { by_onednn = Decision::kProcessor; }

std::int64_t host_product_bytes(c10::ScalarType dtype, std::int64_t rows, std::int64_t in,
                                std::int64_t out) {
  if (!widens_products(dtype)) return 0;
  const std::int64_t pieces = std::max<std::int64_t>(1, rows / kConstantRows);
  return (in * out + rows / pieces * (in + out)) * 4;
}

std::int64_t host_weight_gradient_bytes(c10::ScalarType dtype, std::int64_t rows, std::int64_t in,
                                        std::int64_t out) {
  if (widens_products(dtype)) return std::min(rows, kConstantRows) * (in + out) * 4;
  return dtype == at::kFloat ? 0 : in * out * static_cast<std::int64_t>(c10::elementSize(dtype));
}

at::Tensor HostProductPrimitives::product(const at::Tensor& x, const at::Tensor& weight,
                                          const at::Tensor& bias) const {
  STRATA_CHECK(!is_quantised(weight) || is_fp32(x), "nn.product");
  return multiply(x, weight, bias, x.scalar_type());
}

at::Tensor HostProductPrimitives::logits(const at::Tensor& x, const at::Tensor& weight) const {
  if (is_fp32(x) || widens_products(x.scalar_type())) return multiply(x, weight, {}, at::kFloat);
  return widened(multiply(x, weight, {}, x.scalar_type()));
}

at::Tensor HostProductPrimitives::as_operand(const at::Tensor& gradient,
                                             at::ScalarType dtype) const {
  return widens_products(dtype) ? gradient : gradient.to(dtype);
}

void HostProductPrimitives::input_gradient(at::Tensor& dx, const at::Tensor& dy,
                                           const at::Tensor& weight) const {
  const at::NoGradGuard no_grad;
  const bool widen = widens_products(weight.scalar_type());
  const at::Tensor rows = widen ? widened(weight) : weight.detach();
  multiply_rows(dy, dx, cuts_of_gradient(dy), widen, [&](const at::Tensor& from, at::Tensor& to) {
    is_fp32(from) && multiplies_by_onednn() ? onednn_sgemm(from, rows, to, 0)
                                            : multiply_by_libtorch(from, rows, {}, to);
  });
}

void HostProductPrimitives::add_weight_gradient(const at::Tensor& sum, const at::Tensor& dy,
                                                const at::Tensor& x) const {
  const at::NoGradGuard no_grad;
  const auto add_product = [&](const at::Tensor& rows, const at::Tensor& columns) {
    const bool onednn = multiplies_by_onednn();
    for_blocks(sum, /*constant=*/onednn, [&](std::int64_t begin, std::int64_t count) {
      at::Tensor block = sum.narrow(0, begin, count);
      const at::Tensor factor = rows.narrow(1, begin, count).t();
      onednn ? onednn_sgemm(factor, columns, block, 1) : void(block.addmm_(factor, columns));
    });
  };
  if (is_fp32(x)) return add_product(dy, x);
  if (widens_products(x.scalar_type())) {
    for (std::int64_t row = 0; row < x.size(0); row += kConstantRows) {
      const std::int64_t count = std::min(kConstantRows, x.size(0) - row);
      add_product(widened(dy.narrow(0, row, count)), widened(x.narrow(0, row, count)));
    }
    return;
  }
  const kernels::Element element = element_of(x);
  for_blocks(sum, /*constant=*/true, [&](std::int64_t begin, std::int64_t count) {
    at::Tensor product = at::empty({count, x.size(1)}, x.options());
    {
      const UnchargedScope scratch;
      at::mm_out(product, dy.narrow(1, begin, count).t(), x);
    }
    kernels::add_to(element, product.const_data_ptr(), sum.data_ptr<float>() + begin * sum.size(1),
                    product.numel());
  });
}

void HostProductPrimitives::add_column_sums(const at::Tensor& sum, const at::Tensor& x) const {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  float* to = sum.data_ptr<float>();
  parallel_columns(rows, columns, [&](std::int64_t begin, std::int64_t end) {
    kernels::add_column_sums(element_of(x), x.const_data_ptr(), to, rows, columns, begin, end);
  });
}

}  // namespace strata
