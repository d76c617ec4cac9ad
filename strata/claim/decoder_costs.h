/// Builds the dataflow and the cost table of a decoder on described machines, for planner,
/// simulator and ledger: an embedding, equal blocks and a head that uses the embedding's weights.
///
/// The rules of seconds are those of `strata plan --machine`: products at the machine's rate,
/// passes over what lies between products at the rate of its memory.
///
/// Units  seconds and bytes of one micro-batch on one tensor-parallel rank.
#pragma once

#include <cstdint>

#include "strata/claim/activation_bytes.h"
#include "strata/claim/decoder_shape.h"
#include "strata/layout/costs.h"
#include "strata/layout/dataflow.h"
#include "strata/plan/ledger/zero_bytes.h"
#include "strata/plan/machine_profile.h"

namespace strata {

/// The kernels that compute a block.
enum class DecoderKernels : std::uint8_t {
  kStrata,     ///< fused attention, which stores no scores (plan/search/gpu_costs.h)
  kPublished,  ///< scores and masks are stored, as in Megatron-LM of 2021
};

struct DecoderRun {
  LayerSplit split = {};
  DecoderKernels kernels = DecoderKernels::kStrata;
  /// Inside layers. Published kernels know kCheap, which is nothing, and kAttention, which is their
  /// selective recompute.
  Recompute recompute = Recompute::kCheap;
};

struct DecoderModel {
  Dataflow dataflow;
  CostTable costs;
};

DecoderModel decoder_model(const DecoderShape& shape, const DecoderRun& run,
                           const ParameterBytes& bytes, const MachineProfile& machine);

}  // namespace strata
