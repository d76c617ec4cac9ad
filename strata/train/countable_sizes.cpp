// Sizes are multiplied as floating point: it is too large a product that is looked for.
#include "strata/train/countable_sizes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "strata/base/errors.h"
#include "strata/base/units.h"

namespace strata {
namespace {

// Products that plans and layers make of these stay far below 2^63, their factors of bytes and of
// what layers make inside included.
constexpr double kMostElements = 0x1p50;  // of a tensor
constexpr double kMostBytes = 0x1p60;     // of a model and its activations

void require_countable(double count, double most, const std::string& where, const std::string& what,
                       const std::string& unit, const std::string& fix) {
  if (count <= most) return;
  throw UserError({.operation = "train.plan",
                   .where = where,
                   .what = what,
                   .expected = "at most " + format_count(most) + unit,
                   .got = format_count(count) + unit,
                   .fix = fix});
}

}  // namespace

void check_elements(const Recipe& recipe) {
  const DecoderOptions& model = recipe.model;
  const auto number = [](std::int64_t size) { return static_cast<double>(size); };
  const double heads = number(std::max(model.heads, model.kv_heads));
  const double inside = std::max({4 * number(model.width), number(model.mlp_width),
                                  3 * heads * number(std::max<std::int64_t>(1, model.head_width)),
                                  number(model.vocab)});
  require_countable(inside * std::max(number(model.width), 1.0), kMostElements, "model",
                    "a weight has more elements than can be counted", " elements",
                    "set model.width or model.vocab to a smaller number");
  const double rows = number(recipe.train.micro_batch) * number(model.context);
  require_countable(rows * inside, kMostElements, "train.micro_batch",
                    "a micro-batch has more elements than can be counted", " elements",
                    "set train.micro_batch or model.context to a smaller number");
}

void check_bytes(const CostTable& costs) {
  double bytes = static_cast<double>(costs.batch_bytes);
  const auto micro_batches =
      static_cast<double>(std::max<std::size_t>(1, costs.micro_batch_scale.size()));
  const auto add = [&](std::int64_t some, double times) {
    bytes += std::abs(static_cast<double>(some)) * times;
  };
  for (const LayerCost& layer : costs.layers) {
    for (const std::int64_t some : {layer.weight_bytes, layer.gradient_bytes, layer.state_bytes,
                                    layer.replica_bytes, layer.forward_transient_bytes,
                                    layer.backward_transient_bytes, layer.no_grad_transient_bytes})
      add(some, 1);
    add(layer.saved_bytes, micro_batches);
  }
  for (const ValueCost& value : costs.values) add(value.bytes, 2 * micro_batches);
  require_countable(bytes, kMostBytes, "model", "the model has more bytes than can be counted", "B",
                    "set model.layers, model.width or train.mini_batch to a smaller number");
}

}  // namespace strata
