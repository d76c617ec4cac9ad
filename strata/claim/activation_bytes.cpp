#include "strata/claim/activation_bytes.h"

#include "strata/base/enum_names.h"

namespace strata {
namespace {

constexpr double kStatisticBytes = 4;

}  // namespace

const char* name_of(PublishedRecompute recompute) {
  using enum PublishedRecompute;
  static constexpr EnumNames<PublishedRecompute> kNames{
      {kNone, "none"}, {kSelective, "selective"}, {kFull, "full"}};
  return kNames[recompute];
}

// Of the 34 s b h bytes of 16 bit, tensor-parallel ranks divide 24: what is inside attention and
// MLP. The other ten are both norms' inputs (4), the inputs of both parts (4) and two masks (2);
// only sequence parallelism divides them. Scores are the results of softmax and dropout and a mask.
double published_activation_bytes(const DecoderShape& shape, const LayerSplit& split,
                                  PublishedRecompute recompute) {
  const double element = split.element_bytes;
  const double between = 4 * element + 2, inside = 12 * element, scores = 2 * element + 1;
  const double unit = static_cast<double>(shape.tokens * split.samples * shape.width);
  const double ranks = split.tensor_ranks, sequence = split.sequence_parallel ? ranks : 1;
  if (recompute == PublishedRecompute::kFull) return unit * element / sequence;
  const double heads =
      static_cast<double>(shape.heads * shape.tokens) / static_cast<double>(shape.width);
  const double stored = recompute == PublishedRecompute::kSelective ? 0 : scores * heads;
  return unit * (between / sequence + (inside + stored) / ranks);
}

// In rows of the model's width. Inside, divided by all ranks: packed projections (3), the result of
// attention (1), the input of the GELU (4) and, with all intermediates, its output (4). Between:
// the middle of the residual stream (1) and, with all intermediates, both norms' outputs (2).
double strata_activation_bytes(const DecoderShape& shape, const LayerSplit& split,
                               Recompute recompute, bool whole) {
  const double rows = static_cast<double>(shape.tokens * split.samples);
  const double ranks = split.tensor_ranks, sequence = split.sequence_parallel ? ranks : 1;
  const double unit = rows * static_cast<double>(shape.width) * split.element_bytes;
  const double input = unit / sequence;
  if (whole) return input;
  const bool keep = recompute == Recompute::kNone;
  double inside = keep ? 12 : 8;
  if (recompute >= Recompute::kProducts) inside -= 7;
  if (recompute >= Recompute::kAttention) inside -= 1;
  const double norms = 4 * rows / sequence * kStatisticBytes;
  const double attention = recompute >= Recompute::kAttention
                               ? 0
                               : rows * static_cast<double>(shape.heads) / ranks * kStatisticBytes;
  return input + unit * inside / ranks + (keep ? 3 : 1) * unit / sequence + norms + attention;
}

}  // namespace strata
