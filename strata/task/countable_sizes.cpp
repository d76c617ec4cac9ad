#include "strata/task/countable_sizes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "strata/base/errors.h"
#include "strata/base/units.h"

namespace strata {
namespace {

// Plans and layers multiply these by bytes per element and numbers of micro-batches; the products
// stay below 2^63.
constexpr double kMostElements = 0x1p50;  // per tensor
constexpr double kMostBytes = 0x1p60;     // for a model and its activations

void require_countable(double count, double most, const std::string& where, const std::string& what,
                       const std::string& unit, const std::string& fix) {
  if (count <= most) return;
  throw UserError({.operation = "task.sizes",
                   .where = where,
                   .what = what,
                   .expected = "at most " + format_count(most) + unit,
                   .got = format_count(count) + unit,
                   .fix = fix});
}

}  // namespace

void check_elements(double elements, const std::string& where, const std::string& what,
                    const std::string& fix) {
  require_countable(elements, kMostElements, where, what, " elements", fix);
}

void check_bytes(const CostTable& costs) {
  double bytes = static_cast<double>(costs.batch_bytes);
  const auto micro_batches =
      static_cast<double>(std::max<std::size_t>(1, costs.micro_batch_scale.size()));
  const auto add = [&](std::int64_t some, double times) {
    bytes += std::abs(static_cast<double>(some)) * times;
  };
  for (const LayerCost& layer : costs.layers) {
    for (const std::int64_t some :
         {layer.weight_bytes, layer.gradient_bytes, layer.state_bytes, layer.replica_bytes,
          layer.forward_transient_bytes, layer.backward_transient_bytes,
          layer.no_grad_transient_bytes, layer.input_transient_bytes, layer.weight_transient_bytes,
          layer.kept_bytes})
      add(some, 1);
    add(layer.saved_bytes, micro_batches);
  }
  for (const ValueCost& value : costs.values) add(value.bytes, 2 * micro_batches);
  require_countable(bytes, kMostBytes, "model", "the model has more bytes than can be counted", "B",
                    "set model.layers, model.width or train.mini_batch to a smaller number");
}

}  // namespace strata
