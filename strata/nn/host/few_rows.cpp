#include "strata/nn/host/few_rows.h"

#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "strata/base/philox.h"
#include "strata/device/account.h"
#include "strata/device/device.h"
#include "strata/nn/host/host_primitives.h"
#include "strata/nn/host/sgemm.h"
#include "strata/nn/kernels/decoding.h"

namespace strata {
namespace {

// Numbers in [-1, 1), the same in every process: at::rand would advance the caller's generator.
at::Tensor drawn(std::vector<std::int64_t> shape, std::uint32_t key) {
  at::Tensor x = at::empty(shape, host_options(at::kFloat));
  float* to = x.data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i)
    to[i] = static_cast<float>(philox({static_cast<std::uint32_t>(i), 0, 0, 0}, {key, 0})[0]) *
                0x1p-31f -
            1;
  return x;
}

// By the library that multiplies many rows.
at::Tensor library_product(const at::Tensor& x, const at::Tensor& weight) {
  at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  multiplies_by_onednn() ? onednn_sgemm_in_pieces(x, weight.t(), y, 0)
                         : void(at::mm_out(y, x, weight.t()));
  return y;
}

bool products_equal() {
  const at::NoGradGuard no_grad;
  const UnchargedScope checks;
  constexpr std::int64_t kRows = 64, kColumns = 48;
  for (const std::int64_t in : {24, 64, 150, 192, 193, 300, 384, 577, 1100}) {
    const at::Tensor x = drawn({kRows, in}, 1), weight = drawn({kColumns, in}, 2);
    const at::Tensor y = library_product(x, weight);
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 8, 9, 13, 33, 64}) {
      const at::Tensor few = at::zeros({rows, kColumns}, x.options());
      kernels::multiply_few(
          {x.const_data_ptr<float>(), rows, in, in},
          {kernels::Element::kFp32, weight.const_data_ptr<float>(), kColumns, nullptr},
          few.data_ptr<float>(), kColumns);
      if (!few.equal(y.narrow(0, 0, rows))) return false;
    }
  }
  return true;
}

bool pieces_equal() {
  const at::NoGradGuard no_grad;
  const UnchargedScope checks;
  constexpr std::int64_t kRows = 1000;
  for (const auto& [in, out] :
       {std::pair<std::int64_t, std::int64_t>(64, 48), {96, 400}, {577, 160}, {384, 1152}}) {
    const at::Tensor x = drawn({kRows, in}, 1), weight = drawn({out, in}, 2);
    const at::Tensor y = library_product(x, weight);
    std::int64_t begin = 0;
    for (const std::int64_t count : {64, 80, 117, 256, 483}) {
      if (!library_product(x.narrow(0, begin, count), weight).equal(y.narrow(0, begin, count)))
        return false;
      begin += count;
    }
  }
  return true;
}

bool attention_equals() {
  const at::NoGradGuard no_grad;
  const UnchargedScope checks;
  constexpr std::int64_t kHeads = 3, kWidth = 40;
  constexpr std::array<std::int32_t, 1> kPages = {0};
  for (const std::int64_t sample : {52, 300, 700}) {
    const at::Tensor q = drawn({1, kHeads, sample, kWidth}, 3),
                     k = drawn({1, 1, sample, kWidth}, 4), v = drawn({1, 1, sample, kWidth}, 5);
    const at::Tensor y = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
        q, k, v, /*dropout_p=*/0.0, /*is_causal=*/true));
    for (std::int64_t position = 0; position < sample; position += 7) {
      const at::Tensor row = q.select(2, position).contiguous();
      const at::Tensor few = at::zeros({kHeads, kWidth}, q.options());
      kernels::attend_few(
          {row.const_data_ptr<float>(), kHeads,
           static_cast<float>(1 / std::sqrt(static_cast<double>(kWidth))), exponent_lanes()},
          {kernels::Element::kFp32, k.const_data_ptr<float>(), v.const_data_ptr<float>(), 0, kPages,
           sample, kWidth},
          position + 1, sample, few.data_ptr<float>());
      if (!few.equal(y.select(2, position)[0])) return false;
    }
  }
  return true;
}

// Compares once for each library.
template <bool (*compare)()>
bool holds_for_library() {
  if (multiplies_by_onednn()) {
    static const bool holds = compare();
    return holds;
  }
  static const bool holds = compare();
  return holds;
}

}  // namespace

bool few_rows_hold() { return holds_for_library<products_equal>(); }

bool any_rows_hold() { return few_rows_hold() && holds_for_library<pieces_equal>(); }

kernels::ExponentLanes exponent_lanes() {
  static const bool wide = at::get_cpu_capability() == "AVX512";
  return wide ? kernels::ExponentLanes::k16 : kernels::ExponentLanes::k8;
}

bool has_few_columns(std::int64_t head_width, std::int64_t sample) {
  const std::int64_t last = (sample - 1) % kernels::kKeyBlock + 1;
  return std::min(head_width, last) < kernels::kLeastFewColumns;
}

bool few_queries_hold(std::int64_t head_width, std::int64_t sample) {
  if (head_width % kernels::kWidthUnit != 0 || has_few_columns(head_width, sample)) return false;
  static const bool holds = attention_equals();
  return holds;
}

}  // namespace strata
