/// Computes the bytes of activations that a layer of a decoder keeps from forward to backward: by
/// the published formulas, and as Strata's own layers keep them.
///
/// Source   Korthikanti et al. 2022 (arXiv 2205.05198, table 2): masks of one byte, scores of
///          attention stored. Strata: strata/models/gpt.cpp, which keeps neither scores nor
///          masks; strata/run/decoder_claim_test.cpp compares the two.
/// Units    bytes of one layer, one micro-batch and one rank, the layer's input included.
#pragma once

#include <cstdint>

#include "strata/claim/decoder_shape.h"
#include "strata/layout/recompute.h"

namespace strata {

/// The samples of a micro-batch, the ranks that divide a layer, and the type of its values.
struct LayerSplit {
  std::int64_t samples = 1;
  int tensor_ranks = 1;
  bool sequence_parallel = false;  ///< norms and residuals are divided, too
  int element_bytes = 2;
};

enum class PublishedRecompute : std::uint8_t {
  kNone,
  kSelective,  ///< scores of attention
  kFull,       ///< the whole layer
};
const char* name_of(PublishedRecompute recompute);  ///< "none", "selective", "full"

double published_activation_bytes(const DecoderShape& shape, const LayerSplit& split,
                                  PublishedRecompute recompute);

/// `whole`: the layer runs again as a whole, from its input.
double strata_activation_bytes(const DecoderShape& shape, const LayerSplit& split,
                               Recompute recompute, bool whole = false);

}  // namespace strata
