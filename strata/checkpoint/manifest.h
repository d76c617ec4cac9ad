/// Reads and writes manifest.json, which states what a checkpoint is and lists its files.
///
/// Errors  UserError: no JSON, a field missing or of the wrong type, damaged, of a later format,
///         a file that does not lie in the checkpoint's folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strata/checkpoint/chunk_digest.h"
#include "strata/models/decoder_options.h"

namespace strata {

inline constexpr int kCheckpointFormat = 2;

struct ManifestFile {
  std::string name;  ///< within the checkpoint's folder
  ChunkDigest digest;
};

struct Manifest {
  std::int64_t step = 0;          ///< steps done
  std::int64_t samples_seen = 0;  ///< the position in the training data
  int threads_per_rank = 1;
  std::string strata_version;
  std::string recipe;  ///< effective recipe, YAML: for people
  /// Missing in older checkpoints, which have it only in their config.json.
  std::optional<DecoderOptions> model = {};
  std::string network = "";              ///< another kind of model: JSON (model_description.h)
  std::string tokenizer;                 ///< as in the recipe; "" in older checkpoints
  std::vector<ManifestFile> files = {};  ///< all other files; the writer fills them in
};

/// JSON whose last field is a checksum of the rest.
std::string write_manifest(const Manifest& manifest);

/// `path` names the manifest in errors.
Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace strata
