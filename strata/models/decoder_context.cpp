// What layers of decoders need and send where ranks divide samples (axis cp), or attention is made
// of blocks or has a pattern. Part of DecoderLayer.
#include <algorithm>
#include <numeric>

#include "strata/models/decoder_layer.h"
#include "strata/nn/ops/ring_attention.h"
#include "strata/nn/primitives/attention.h"

namespace strata {
namespace {

constexpr std::int64_t kFloatSize = 4;

// The tensors of a tile's scores that exist at once, and those of the keys of a pattern's tile.
constexpr std::int64_t kScoresOfTile = 4, kKeysOfTile = 4;
constexpr std::int64_t kMostTiles = 1 << 24;

}  // namespace

std::int64_t DecoderLayer::head_groups() const {
  return std::min<std::int64_t>(kRingHeadGroups, options_.kv_heads / split_.ranks);
}

// Heads of a tile have one form and no head of keys in common (primitives/sparse_attention.cpp).
int DecoderLayer::pattern_tiles(std::int64_t length) const {
  if (!pattern()) return 0;
  const std::int64_t shared = options_.heads / options_.kv_heads;
  const std::int64_t groups =
      std::min(options_.heads / split_.ranks, std::lcm(pattern()->forms, shared));
  const std::int64_t blocks = (length + pattern()->block - 1) / pattern()->block;
  return static_cast<int>(std::min(kMostTiles, blocks * groups));
}

// In a ring each of the rank's tiles of queries attends to half of all tiles on average.
void DecoderLayer::add_block_kernels(LayerWork& work, std::int64_t tokens) const {
  const ContextSplit& context = split_.context;
  if (pattern()) {
    const int tiles = pattern_tiles(tokens * context.ranks);
    work.forward_kernels += kKernelsOfTile * tiles;
    work.backward_kernels += kBackwardKernelsOfTile * tiles;
    return;
  }
  if (!context.in_blocks()) return;
  const std::int64_t block = context.block > 0 ? context.block : tokens / 2;
  const std::int64_t tile = std::min(block, kAttentionTile), queries = (tokens + tile - 1) / tile;
  const auto pairs = static_cast<int>(queries * (queries * context.ranks + 1) / 2);
  work.forward_kernels += kKernelsOfTile * pairs;
  work.backward_kernels += kBackwardKernelsOfTile * pairs * static_cast<int>(head_groups());
}

std::int64_t DecoderLayer::score_bytes(std::int64_t samples, std::int64_t block) const {
  const std::int64_t tile = std::min(block, kAttentionTile);
  return kScoresOfTile * samples * (options_.heads / split_.ranks) * tile * tile * kFloatSize;
}

// If ranks exchange heads, one of them attends with its heads to all tokens.
AttentionShape DecoderLayer::attention_shape(std::int64_t samples, std::int64_t tokens) const {
  const std::int64_t ranks = split_.context.ranks, heads = options_.heads / split_.ranks;
  const bool exchanges = ranks > 1 && !split_.context.in_blocks();
  return {.samples = samples,
          .heads = exchanges ? (heads + ranks - 1) / ranks : heads,
          .tokens = exchanges ? tokens * ranks : tokens,
          .attended = tokens * ranks,
          .head_width = options_.head_width,
          .shares_keys = options_.kv_heads < options_.heads};
}

double DecoderLayer::operand_share() const {
  const auto heads = static_cast<double>(options_.heads),
             keys = static_cast<double>(options_.kv_heads);
  return (heads + 2 * keys) / (2 * heads + 2 * keys);
}

// In a ring a rank passes three quarters of the chunks on average, because those after a rank's
// tokens do not pass it; in backward the gradients, in fp32, are also sent to their owner. An
// exchange sends operands and returns outputs, in backward the gradients of both, and the operands
// again after norms.
DecoderLayer::ContextSent DecoderLayer::context_sent(const TensorSpec& stream) const {
  const ContextSplit& context = split_.context;
  if (context.ranks == 1) return {};
  const auto ranks = static_cast<double>(context.ranks);
  const double heads = static_cast<double>(stream.numel() / options_.width * parts()) *
                       static_cast<double>(options_.head_width) / split_.ranks;
  const auto bytes = static_cast<double>(bytes_of(1));
  const auto queries = static_cast<double>(options_.heads),
             keys = static_cast<double>(options_.kv_heads);
  if (context.exchange == ContextExchange::kUlysses) {
    const double share = (ranks - 1) / ranks * heads * bytes;
    const double both = 2 * queries + 2 * keys;
    return {.forward = share * both,
            .backward = share * (both + (options_.qk_norm ? queries + 2 * keys : 0)),
            .forward_messages = 2,
            .backward_messages = options_.qk_norm ? 3 : 2};
  }
  const double chunk = heads * keys;  // keys and values of half of the tokens
  const double passed = 1.5 * (ranks - 1);
  const double gradients = (passed + 2 * (ranks - 1) / ranks) * chunk * kFloatSize;
  return {.forward = passed * chunk * bytes,
          .backward = passed * chunk * bytes + gradients,
          .forward_messages = context.ranks,
          .backward_messages = static_cast<int>(head_groups()) * context.ranks + 2};
}

std::int64_t DecoderLayer::dropped_bytes(std::int64_t own, std::int64_t samples) const {
  if (options_.dropout == 0) return 0;
  return split_.context.ranks > 1 ? own + own / (2 * samples) : own;
}

// Gradients of keys and values in fp32, unless they are so themselves. A device without a fused
// kernel has the scores and the keys of a block of queries, and all gradients in fp32.
DecoderLayer::PatternBytes DecoderLayer::pattern_bytes(std::int64_t rows) const {
  if (!pattern()) return {};
  const std::int64_t head = rows * options_.head_width / split_.ranks * kFloatSize;
  if (device_ == DeviceKind::kCpu)
    return {.backward = precision_ == at::kFloat ? 0 : 2 * options_.kv_heads * head};
  const std::int64_t length = options_.context / split_.context.ranks;
  const std::int64_t numbers = kScoresOfTile * pattern()->block + kKeysOfTile * options_.head_width;
  const std::int64_t tile = (rows / length) * (options_.heads / split_.ranks) * numbers *
                            pattern()->work(options_.context).most_keys * kFloatSize;
  return {.forward = tile, .backward = tile + (options_.heads + 2 * options_.kv_heads) * head};
}

// In a ring: the output in fp32, keys and values of chunks, the output of a block. Backward passes
// in groups of heads, with gradients in fp32. In an exchange of heads: the rank's projections and
// those of all tokens, and messages; then the outputs of both; in backward the same for gradients.
// The rank with the most heads counts.
DecoderLayer::ContextBytes DecoderLayer::context_bytes(std::int64_t rows) const {
  const ContextSplit& context = split_.context;
  const PatternBytes pattern = pattern_bytes(rows);
  if (!context.divides())
    return {
        .forward = pattern.forward, .backward = pattern.backward, .first_half = pattern.backward};
  const auto bytes = [&](std::int64_t heads) {
    return bytes_of(rows * heads * options_.head_width / split_.ranks);
  };
  const auto fp32 = [&](std::int64_t heads) {
    return rows * heads * options_.head_width / split_.ranks * kFloatSize;
  };
  const std::int64_t queries = options_.heads, keys = options_.kv_heads;
  const std::int64_t out = bytes(queries), kv = bytes(2 * keys), packed = out + kv;
  if (context.in_blocks()) {
    const std::int64_t length = options_.context / context.ranks;
    const std::int64_t blocks = context.block > 0 ? length / context.block : 2;
    const std::int64_t groups = head_groups();
    const bool rounds = precision_ != at::kFloat;
    const std::int64_t scores =
        device_ == DeviceKind::kCpu ? 0 : score_bytes(rows / length, length / blocks);
    // A chunk's; with other ranks also those on their way, and the rank's own early chunk.
    const bool passes = context.ranks > 1;
    const std::int64_t keys_held = passes ? 2 * kv : kv / 2;
    const std::int64_t gradients_held = passes ? 2 * fp32(2 * keys) : fp32(keys);
    const std::int64_t gradients =
        (keys_held + gradients_held + fp32(queries) + packed / blocks) / groups;
    return {.forward = packed + fp32(queries) + keys_held + scores +
                       std::max(fp32(queries) / blocks, rounds ? out : 0),
            .backward = gradients + scores,
            // The rest takes the place of bytes that the MLP has freed.
            .first_half = gradients / 3};
  }
  const std::int64_t local = keys / split_.ranks, ranks = context.ranks;
  const std::int64_t most = (local + ranks - 1) / ranks * ranks;  // heads of all ranks, if even
  const auto largest = [&](std::int64_t share) { return share * most / local; };
  const auto sent = [&](std::int64_t share) { return share - share / ranks; };
  const std::int64_t statistics = rows * queries / split_.ranks * kFloatSize;
  const std::int64_t backward =
      largest(packed) + std::max(sent(largest(packed)) + packed + packed / ranks, pattern.backward);
  return {
      .projections = largest(packed) - packed,
      .outputs = largest(out) + largest(statistics) - statistics,
      .forward = std::max(packed + sent(packed) + largest(packed) + largest(packed) / ranks,
                          packed + largest(packed) + largest(out) +
                              std::max(sent(largest(out)) + out + out / ranks, pattern.forward)),
      .backward = backward,
      .first_half = backward + (options_.qk_norm ? packed : 0)};
}

}  // namespace strata
