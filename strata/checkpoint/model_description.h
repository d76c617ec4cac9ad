/// Describes a model in a checkpoint, in words that outlive the options of recipes.
///
/// A description is a JSON object with a version of its own. Renaming an option doesn't touch it; a
/// field that a later version adds raises the version, and read_model() goes on reading the ones
/// before.
///
/// Errors  UserError: a later version, a field that is missing, unknown or of another kind.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/json_document.h"
#include "strata/models/decoder_options.h"

namespace strata {

inline constexpr int kModelDescription = 1;

nlohmann::ordered_json describe_model(const DecoderOptions& model);

DecoderOptions read_model(const JsonPart& description);

/// With 0 for the sizes that follow from others: what a recipe may change goes on following.
DecoderOptions without_derived_sizes(const DecoderOptions& model);

/// What a checkpoint says of its model: a decoder, whose weights have Hugging Face's names in
/// files, or another network, by the fields that make it.
struct CheckpointModel {
  CheckpointModel(DecoderOptions options) : decoder(std::move(options)) {}
  explicit CheckpointModel(std::string fields) : network(std::move(fields)) {}

  std::optional<DecoderOptions> decoder;
  std::string network;  ///< a JSON object, equal for equal models; "" for a decoder

  /// Whose names files use; null: the weights' own.
  const DecoderOptions* names() const { return decoder ? &*decoder : nullptr; }
};

/// What a model that goes on from another has to have in common with it.
enum class SameModel {
  kWeights,  ///< every weight, and what it means: --from
  kAll,      ///< whatever changes a result but dropout: --resume
};

/// Refuses `model`, a recipe's, where the checkpoint at `path` holds another one; names a weight
/// with both shapes, and the fields.
void require_same_model(const DecoderOptions& checkpoint, const DecoderOptions& model,
                        SameModel what, const std::string& path);
void require_same_model(const CheckpointModel& checkpoint, const CheckpointModel& model,
                        SameModel what, const std::string& path);

}  // namespace strata
