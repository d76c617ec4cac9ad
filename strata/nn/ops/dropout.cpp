#include "strata/nn/ops/dropout.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "strata/base/philox.h"
#include "strata/nn/kernels/kernels.h"
#include "strata/nn/ops/fp32_pieces.h"
#include "strata/nn/ops/parallel.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

constexpr int kSitesPerLayer = 16;

struct Mask {
  kernels::DropoutMask mask;
  std::int64_t first_sample;
  std::int64_t part;  // which part of the sequence the rank has
};

Mask make_mask(Dropout dropout, const ForwardContext& context) {
  return {
      {.key = mix_key(mix_key(context.seed, 0x64726f70), context.step),
       .site = static_cast<std::uint32_t>(context.layer * kSitesPerLayer + dropout.site),
       .threshold = static_cast<std::uint32_t>(std::llround(dropout.probability * 4294967296.0)),
       .scale = static_cast<float>(1.0 / (1.0 - dropout.probability))},
      context.first_sample,
      context.tensor && context.tensor->sequence() ? context.tensor->rank() : 0};
}

// Elements [begin, end) of a micro-batch; the pointers are at `begin`, `add` may be null.
void mask_range(const float* add, const float* from, float* to, std::int64_t begin,
                std::int64_t end, std::int64_t per_sample, const Mask& mask) {
  const std::int64_t before = mask.part * per_sample;  // elements of the sample on other ranks
  // Pieces never straddle samples; a multiple of the widest vector's four blocks.
  constexpr std::int64_t kPiece = 8192;
  const std::int64_t pieces = (per_sample + kPiece - 1) / kPiece;
  const auto piece_of = [&](std::int64_t element) {
    return element / per_sample * pieces + element % per_sample / kPiece;
  };
  at::parallel_for(
      piece_of(begin), piece_of(end - 1) + 1, 1, [&](std::int64_t i, std::int64_t to_i) {
        for (; i < to_i; ++i) {
          const std::int64_t sample = i / pieces, start = sample * per_sample;
          const std::int64_t piece = start + i % pieces * kPiece;
          const std::int64_t first = std::max(begin, piece);
          const std::int64_t last = std::min({end, piece + kPiece, start + per_sample});
          kernels::dropout_add(add ? add + first - begin : nullptr, from + first - begin,
                               to + first - begin, mask.mask,
                               static_cast<std::uint32_t>(mask.first_sample + sample),
                               before + first - start, last - first);
        }
      });
}

// residual may be undefined.
at::Tensor apply_mask(const at::Tensor& residual, const at::Tensor& x, const Mask& mask) {
  at::Tensor y = at::empty_like(x);
  const std::int64_t per_sample = x.numel() / x.size(0);
  // The mask is drawn by fours: samples of another length stay whole.
  const std::int64_t unit = per_sample % 4 == 0 ? 1 : per_sample;
  const auto apply = [&](std::initializer_list<at::Tensor> inputs) {
    in_fp32_pieces(x.numel() / unit, inputs, {y},
                   [&](std::int64_t first, std::int64_t count, auto from, auto to) {
                     mask_range(from.size() > 1 ? from[1] : nullptr, from[0], to[0], first * unit,
                                (first + count) * unit, per_sample, mask);
                   });
  };
  residual.defined() ? apply({x, residual}) : apply({x});
  return y;
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Mask mask) {
    context->saved_data["mask"] = pack(mask);
    return apply_mask({}, x, mask);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {apply_mask({}, gradients[0].contiguous(), unpack(context->saved_data["mask"])), {}};
  }

  static c10::IValue pack(const Mask& m) {
    return std::vector<std::int64_t>{static_cast<std::int64_t>(m.mask.key), m.mask.site,
                                     m.mask.threshold, m.first_sample, m.part};
  }
  static Mask unpack(const c10::IValue& packed) {
    const auto v = packed.toIntVector();
    const auto threshold = static_cast<std::uint32_t>(v[2]);
    return {{.key = static_cast<std::uint64_t>(v[0]),
             .site = static_cast<std::uint32_t>(v[1]),
             .threshold = threshold,
             .scale = static_cast<float>(1.0 / (1.0 - threshold / 4294967296.0))},
            v[3],
            v[4]};
  }
};

struct ResidualDropoutFunction : torch::autograd::Function<ResidualDropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& residual,
                            const at::Tensor& x, Mask mask) {
    context->saved_data["mask"] = DropoutFunction::pack(mask);
    return apply_mask(residual, x, mask);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Mask mask = DropoutFunction::unpack(context->saved_data["mask"]);
    return {gradients[0], apply_mask({}, gradients[0].contiguous(), mask), {}};
  }
};

bool is_off(Dropout dropout, const ForwardContext& context) {
  return !context.training || dropout.probability == 0;
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, Dropout dropout, const ForwardContext& context) {
  return is_off(dropout, context) ? x : DropoutFunction::apply(x, make_mask(dropout, context));
}

at::Tensor residual_dropout(const at::Tensor& residual, const at::Tensor& x, Dropout dropout,
                            const ForwardContext& context) {
  if (is_off(dropout, context)) return at::add(residual, x);
  return ResidualDropoutFunction::apply(residual, x, make_mask(dropout, context));
}

}  // namespace strata
