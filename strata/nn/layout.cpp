#include "strata/nn/layout.h"

#include "strata/base/errors.h"
#include "strata/nn/weight_slice.h"

namespace strata {
namespace {

std::int64_t align(std::int64_t numel, at::ScalarType dtype) {
  const std::int64_t unit =
      kWeightAlignmentBytes / static_cast<std::int64_t>(c10::elementSize(dtype));
  return (numel + unit - 1) / unit * unit;
}

}  // namespace

LayerLayout make_layout(std::vector<WeightSpec> specs, const std::vector<bool>& borrowed, int ranks,
                        at::ScalarType dtype) {
  STRATA_CHECK_EQ(specs.size(), borrowed.size(), "nn.make_layout");
  LayerLayout layout;
  layout.placements.resize(specs.size());
  std::int64_t offset = 0;
  const auto place = [&](auto belongs) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!belongs(i)) continue;
      std::vector<std::int64_t> shape = slice_shape(specs[i], ranks);
      const std::int64_t numel = TensorSpec{shape}.numel();
      layout.placements[i] = {
          .shape = std::move(shape), .offset = offset, .numel = numel, .borrowed = borrowed[i]};
      offset += align(numel, dtype);
    }
    return offset;
  };
  layout.decay_numel = place([&](std::size_t i) { return !borrowed[i] && specs[i].decay; });
  layout.own_numel = place([&](std::size_t i) { return !borrowed[i] && !specs[i].decay; });
  layout.total_numel = place([&](std::size_t i) { return borrowed[i]; });
  layout.specs = std::move(specs);
  return layout;
}

}  // namespace strata
