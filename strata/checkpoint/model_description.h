/// Describes a model in a checkpoint with names that do not depend on the options of recipes.
///
/// A description is a JSON object with its own version. Renaming an option does not change it; a
/// new field raises the version, and read_model() still reads earlier versions.
///
/// Errors  UserError: a later version, a field that is missing, unknown or of another kind.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/json_document.h"
#include "strata/checkpoint/file_tensors.h"
#include "strata/models/decoder_options.h"

namespace strata {

inline constexpr int kModelDescription = 1;

nlohmann::ordered_json describe_model(const DecoderOptions& model);

DecoderOptions read_model(const JsonPart& description);

/// The options with 0 for sizes that follow from others, so that they still follow if a recipe
/// changes those.
DecoderOptions without_derived_sizes(const DecoderOptions& model);

/// The model of a checkpoint: a decoder, whose weights have Hugging Face's names in files, or
/// another network, described by its fields.
struct CheckpointModel {
  CheckpointModel(DecoderOptions options) : decoder(std::move(options)) {}
  explicit CheckpointModel(std::string fields, std::map<std::string, std::string> names = {})
      : network(std::move(fields)), file_names(std::move(names)) {}

  std::optional<DecoderOptions> decoder;
  std::string network;  ///< a JSON object, equal for equal models; "" for a decoder
  /// Of a network's weights, by their own names; empty: they keep those.
  std::map<std::string, std::string> file_names;

  FileNames names() const {
    return {.decoder = decoder ? &*decoder : nullptr,
            .others = file_names.empty() ? nullptr : &file_names};
  }
};

/// What a model must have in common with the checkpoint that its run starts from.
enum class SameModel {
  kWeights,  ///< all weights and their meaning: --from
  kAll,      ///< every field that changes a result, except dropout: --resume
};

/// Throws UserError if the checkpoint at `path` holds another model than `model`, the recipe's; the
/// error names a weight with both shapes, and the fields.
void require_same_model(const DecoderOptions& checkpoint, const DecoderOptions& model,
                        SameModel what, const std::string& path);
void require_same_model(const CheckpointModel& checkpoint, const CheckpointModel& model,
                        SameModel what, const std::string& path);

}  // namespace strata
