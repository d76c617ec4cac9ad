/// States what a decoder needs of a model: its sizes, tokenizer, weights, and the ranks and memory
/// that hold it.
#pragma once

#include <memory>
#include <string>

#include "strata/comm/ranks.h"
#include "strata/models/quantised_model.h"
#include "strata/plan/plan_options.h"
#include "strata/serve/decoder.h"
#include "strata/serve/weight_tiers.h"
#include "strata/tokenizer/tokenizer.h"

namespace strata {

struct ServedModel {
  DecoderOptions model;
  std::string tokenizer;      ///< bytes, a folder, a tokenizer.json or a GGUF file
  std::string checkpoint;     ///< or another program's model; empty: no weights
  RanksOptions ranks;         ///< the mesh's dp is 1: other replicas would repeat the same work
  MemoryOptions memory = {};  ///< where the weights may live
  at::ScalarType precision = at::kFloat;        ///< of activations and weights
  WeightType weights = WeightType::kPrecision;  ///< of the blocks' matrices
};

/// The network of a decoder, with logits as its output, on the tensor-parallel ranks of `served`.
Sequential network_of(const ServedModel& served);

/// For the weights that leave the device. `disk`: a folder of their own; empty: memory.disk.path is
/// empty.
WeightTiers weight_tiers(const ServedModel& served, const std::string& disk);

/// UserError: the model has none, or the tokenizer has more tokens than the model.
std::shared_ptr<const Tokenizer> tokenizer_of(const ServedModel& served);

/// Fills the weights of a decoder of `model` from a checkpoint or another program's model.
void load_checkpoint(Decoder& decoder, const DecoderOptions& model, const std::string& checkpoint);

/// Reads all files of a checkpoint. UserError: a damaged file, another model.
void check_checkpoint(const std::string& checkpoint, const DecoderOptions& model);

/// The name of a checkpoint's weights: "step-00000400", or that of another program's folder or
/// file; with " int8" or " int4" for weights in fewer bits, whose answers differ.
std::string weights_name(const std::string& checkpoint, WeightType type);

}  // namespace strata
