// Rows of other ranks are read as row 0 and masked: a recorded step cannot read how many there are.
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include "strata/nn/aten/aten_primitives.h"
#include "strata/nn/aten/aten_scope.h"

namespace strata {
namespace {

struct OwnRows {
  at::Tensor row, is_own;  // [positions], [positions, 1]

  OwnRows(const at::Tensor& tokens, std::int64_t first, std::int64_t count) {
    const at::Tensor at = tokens.flatten() - first;
    is_own = at.ge(0).bitwise_and(at.lt(count)).unsqueeze(1);
    row = at.clamp(0, count - 1);
  }
};

class AtenRowPrimitives final : public RowPrimitives {
 public:
  at::Tensor gather(const at::Tensor& tokens, const at::Tensor& weight,
                    std::int64_t first) const override {
    at::Tensor y = at::empty({tokens.size(0), tokens.size(1), weight.size(1)}, weight.options());
    const AtenScope scope;
    const OwnRows own(tokens, first, weight.size(0));
    y.view({-1, weight.size(1)}).copy_(at::where(own.is_own, weight.index({own.row}), 0));
    return y;
  }

  // On a GPU the order is fixed only with deterministic algorithms.
  void add_rows(const at::Tensor& tokens, const at::Tensor& dy, const at::Tensor& sum,
                std::int64_t first) const override {
    const AtenScope scope;
    const OwnRows own(tokens, first, sum.size(0));
    const at::Tensor gradients = as_float(dy).view({-1, sum.size(1)});
    sum.index_add_(0, own.row, at::where(own.is_own, gradients, 0));
  }

  void add_positions(const at::Tensor& x, const at::Tensor& positions) const override {
    const AtenScope scope;
    x.add_(positions);
  }

  void add_position_gradients(const at::Tensor& dy, const at::Tensor& sum) const override {
    const AtenScope scope;
    for (std::int64_t sample = 0; sample < dy.size(0); ++sample) sum.add_(dy.select(0, sample));
  }
};

}  // namespace

const RowPrimitives& aten_rows() {
  static const AtenRowPrimitives rows;
  return rows;
}

}  // namespace strata
