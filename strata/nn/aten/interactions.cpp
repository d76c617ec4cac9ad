// A sample's vectors are a matrix X; the result is the part of X Xᵀ below its diagonal.
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tril_indices.h>
#include <ATen/ops/zeros.h>

#include "strata/nn/aten/aten_primitives.h"
#include "strata/nn/aten/aten_scope.h"

namespace strata {
namespace {

std::int64_t first_width(const at::Tensor& first) { return first.defined() ? first.size(1) : 0; }

// [B, count, width]
at::Tensor vectors_of(const at::Tensor& first, const at::Tensor& rest, std::int64_t width) {
  const at::Tensor all = first.defined() ? at::cat({first, rest}, 1) : rest;
  return all.view({all.size(0), all.size(1) / width, width});
}

// Returns the index of each pair (i, j < i) in a flat matrix [count, count], in ascending i, then
// j.
at::Tensor pairs_below_diagonal(std::int64_t count, const at::Tensor& like) {
  const at::Tensor pairs =
      at::tril_indices(count, count, /*offset=*/-1, like.options().dtype(at::kLong));
  return pairs.select(0, 0) * count + pairs.select(0, 1);
}

class AtenInteractionPrimitives final : public InteractionPrimitives {
 public:
  at::Tensor pairwise_dots(const at::Tensor& first, const at::Tensor& rest,
                           std::int64_t width) const override {
    const std::int64_t samples = rest.size(0), wide = first_width(first),
                       count = (wide + rest.size(1)) / width, pairs = count * (count - 1) / 2;
    at::Tensor y = at::empty({samples, wide + pairs}, rest.options());
    const AtenScope scope;
    const at::Tensor vectors = vectors_of(first, rest, width);
    const at::Tensor products = at::bmm(vectors, vectors.transpose(1, 2)).flatten(1);
    if (first.defined()) y.narrow(1, 0, wide).copy_(first);
    y.narrow(1, wide, pairs).copy_(products.index_select(1, pairs_below_diagonal(count, rest)));
    return y;
  }

  void pairwise_dots_gradient(const at::Tensor& first, const at::Tensor& rest, std::int64_t width,
                              const at::Tensor& dy, const at::Tensor& dfirst,
                              const at::Tensor& drest) const override {
    const AtenScope scope;
    const at::Tensor vectors = vectors_of(first, rest, width);
    const std::int64_t samples = vectors.size(0), count = vectors.size(1),
                       wide = first_width(first);
    const at::Tensor below = at::zeros({samples, count * count}, dy.options());
    below.index_copy_(1, pairs_below_diagonal(count, rest), dy.narrow(1, wide, dy.size(1) - wide));
    const at::Tensor gradients = below.view({samples, count, count});
    const at::Tensor made =
        at::bmm(gradients + gradients.transpose(1, 2), vectors).view({samples, count * width});
    if (first.defined()) dfirst.copy_(made.narrow(1, 0, wide) + dy.narrow(1, 0, wide));
    drest.copy_(made.narrow(1, wide, made.size(1) - wide));
  }
};

}  // namespace

const InteractionPrimitives& aten_interactions() {
  static const AtenInteractionPrimitives interactions;
  return interactions;
}

}  // namespace strata
