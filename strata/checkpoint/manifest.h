/// Says what a checkpoint is and which files it consists of: its manifest.json.
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
  /// Older checkpoints have it in their config.json alone.
  std::optional<DecoderOptions> model = {};
  std::string network = "";              ///< a model of another kind: JSON (model_description.h)
  std::string tokenizer;                 ///< as the recipe named it; "" in older checkpoints
  std::vector<ManifestFile> files = {};  ///< all others of the checkpoint; the writer fills them in
};

/// JSON that ends with a checksum over the rest.
std::string write_manifest(const Manifest& manifest);

/// `path` names the manifest in errors.
Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace strata
