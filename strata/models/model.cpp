// One maker for all decoders: an architecture supplies its parts; the order of layers is common.
#include "strata/models/model.h"

#include <cstdlib>
#include <numeric>

#include "strata/base/errors.h"
#include "strata/models/decoder_layer.h"
#include "strata/models/quantised_model.h"

namespace strata {
namespace {

// Refuses a number of tensor-parallel ranks that does not divide `size`; the error names the
// nearest number that does, a divisor of `legal`.
void check_divides(const std::string& what, std::int64_t size, std::int64_t legal, int ranks) {
  if (size % ranks == 0) return;
  std::int64_t nearest = 1;
  for (std::int64_t other = 1; other <= legal; ++other)
    if (legal % other == 0 && std::abs(other - ranks) < std::abs(nearest - ranks)) nearest = other;
  throw UserError({.operation = "models.split",
                   .where = "mesh.tp",
                   .what = what + " do not divide among the tensor-parallel ranks",
                   .expected = "a divisor of " + std::to_string(size),
                   .got = std::to_string(ranks),
                   .fix = "set mesh.tp to " + std::to_string(nearest)});
}

// Refuses tokens that ranks cannot divide into chunks and blocks, and fewer heads than ranks that
// exchange them.
void check_context(const DecoderOptions& options, const TensorSplit& split) {
  const ContextSplit& context = split.context;
  if (options.attention.sparse() && context.in_blocks())
    throw UserError(
        {.operation = "models.split",
         .where = context.block > 0 ? "mesh.cp_block" : "mesh.cp_exchange",
         .what = "a sparse attention pattern has its own blocks, and does not attend in "
                 "a ring",
         .expected = context.block > 0 ? "0" : "ulysses",
         .got = context.block > 0 ? std::to_string(context.block) : "ring",
         .fix = context.block > 0 ? "set mesh.cp_block to 0" : "set mesh.cp_exchange to ulysses"});
  const std::int64_t unit = context.unit(split.sequence ? split.ranks : 1);
  if (options.context % unit != 0)
    throw UserError({.operation = "models.split",
                     .where = context.block > 0 ? "mesh.cp_block" : "mesh.cp",
                     .what = "the ranks cannot divide the positions of the context into chunks",
                     .expected = "model.context a multiple of " + std::to_string(unit),
                     .got = std::to_string(options.context),
                     .fix = "set model.context to " +
                            std::to_string((options.context + unit - 1) / unit * unit) +
                            ", or other mesh.cp and mesh.cp_block"});
  const std::int64_t heads = options.kv_heads / split.ranks;
  if (context.exchange != ContextExchange::kUlysses || context.ranks <= heads) return;
  throw UserError(
      {.operation = "models.split",
       .where = "mesh.cp_exchange",
       .what = "more ranks than heads of keys and values to exchange",
       .expected = "mesh.cp of at most " + std::to_string(heads),
       .got = std::to_string(context.ranks),
       .fix = (options.attention.sparse() ? "set " : "set mesh.cp_exchange to ring, or ") +
              ("mesh.cp to " + std::to_string(heads))});
}

// Refuses sizes that the ranks cannot divide evenly. The vocabulary may be uneven: its slices are
// padded.
void check_split(const DecoderOptions& options, TensorSplit split) {
  // A GPT has as many key heads as heads; they divide the width and so the MLP's width.
  const std::int64_t heads = options.kv_heads;
  const std::int64_t legal = split.sequence ? std::gcd(heads, options.context) : heads;
  check_divides(options.kv_heads == options.heads ? "the heads" : "the key and value heads", heads,
                legal, split.ranks);
  if (split.sequence)
    check_divides("the positions of the context", options.context, legal, split.ranks);
  const bool divided = split.context.ranks > 1;
  if ((split.sequence || divided) && options.dropout > 0 && options.width % 4 != 0) {
    const std::string field = divided ? "mesh.cp" : "mesh.sequence_parallel";
    throw UserError({.operation = "models.split",
                     .where = field,
                     .what = "dropout on a part of the sequence",
                     .expected = "model.width a multiple of 4",
                     .got = std::to_string(options.width),
                     .fix = "set " + field + " to " + (divided ? "1" : "false")});
  }
  check_context(options, split);
}

DecoderParts parts_of(const DecoderSetup& setup) {
  return setup.options.kind == DecoderKind::kLlama ? llama_parts(setup) : gpt_parts(setup);
}

Sequential compose(const DecoderOptions& input, DecoderOutput output, TensorSplit split,
                   at::ScalarType precision, DeviceKind device, WeightType type) {
  const DecoderOptions options = completed(input);
  split.sequence = split.sequence && split.ranks > 1;
  check_split(options, split);
  const DecoderSetup setup{
      .options = options, .split = split, .precision = precision, .device = device};
  const DecoderParts parts = parts_of(setup);
  const auto of_type = [&](const std::shared_ptr<const Layer>& block) {
    return type == WeightType::kPrecision ? block
                                          : quantised_block(block, rounding_of(type), split.ranks);
  };
  const std::shared_ptr<const Layer> block = of_type(parts.block);
  const std::int64_t dense_every = options.attention.dense_every;
  std::shared_ptr<const Layer> dense_block;
  if (dense_every > 0) {
    DecoderOptions dense = options;
    dense.attention = {};
    dense_block = of_type(
        parts_of({.options = dense, .split = split, .precision = precision, .device = device})
            .block);
  }
  const bool loss = output == DecoderOutput::kLoss;
  std::vector<std::string> batch = {"tokens"};
  if (loss) batch.push_back("targets");

  Sequential model(std::move(batch), split, precision);
  model.add("embed", parts.embedding, {"tokens"}, {options.skip ? "early" : "x"});
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const bool is_dense = dense_every > 0 && (i + 1) % dense_every == 0;
    model.add("block" + std::to_string(i), is_dense ? dense_block : block,
              {i == 0 && options.skip ? "early" : "x"});
  }
  if (options.skip) model.add("merge", merge_layer(setup), {"x", "early"});
  if (loss) {
    model.add("head", loss_head(setup, parts.norm), {"x", "targets"}, {"loss"});
  } else {
    model.add("head", logits_head(setup, parts.norm), {"x"}, {"logits", "states"});
  }
  return model;
}

}  // namespace

Sequential make_model(const DecoderOptions& options, DecoderOutput output, TensorSplit split,
                      at::ScalarType precision, DeviceKind device) {
  return compose(options, output, split, precision, device, WeightType::kPrecision);
}

Sequential make_served_model(const DecoderOptions& options, WeightType type, TensorSplit split,
                             at::ScalarType precision) {
  STRATA_CHECK(type == WeightType::kPrecision || precision == at::kFloat, "models.quantised");
  return compose(options, DecoderOutput::kLogits, split, precision, DeviceKind::kCpu, type);
}

Sequential make_gpt(DecoderOptions options, DecoderOutput output, TensorSplit split,
                    at::ScalarType precision, DeviceKind device) {
  options.kind = DecoderKind::kGpt;
  return make_model(options, output, split, precision, device);
}

Sequential make_llama(DecoderOptions options, DecoderOutput output, TensorSplit split,
                      at::ScalarType precision, DeviceKind device) {
  options.kind = DecoderKind::kLlama;
  return make_model(options, output, split, precision, device);
}

}  // namespace strata
