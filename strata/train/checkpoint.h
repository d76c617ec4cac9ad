/// Saves and loads the states of a run so that no crash at any moment loses the last checkpoint.
///
/// A checkpoint is a folder, complete as soon as it has its name (docs/formats.md):
///
///     FOLDER/step-00000400/model-00001-of-00002.safetensors      one a shard; model.safetensors if
///     one
///                          optimizer-00001-of-00002.safetensors  the same; none without states
///                          model.safetensors.index.json          weight -> file, if several shards
///                          config.json                           the model, for transformers
///                          manifest.json                         step, recipe, files and checksums
///
/// It is written as step-00000400.partial, made durable, then renamed. The newest complete folder
/// is the latest; unfinished ones are ignored, and removed by the next save.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strata/train/manifest.h"
#include "strata/train/safetensors.h"

namespace strata {

/// Writes one checkpoint together with the writers of the other ranks; they share nothing but the
/// folder, so ranks may be threads or processes:
///
///     CheckpointWriter writer(folder, step, ranks);
///     if (rank == 0) writer.prepare();
///     group.barrier();
///     writer.write_shard(rank, weights, states);
///     group.barrier();
///     if (rank == 0) writer.commit(manifest, config);
///
/// Threads  const; write_shard of different shards at the same time.
/// Cost     each shard's bytes once, at the disk's rate.
/// Errors   SystemError: disk full, no permission. InternalError: a shard missing at commit, a name
/// in
///          two shards.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string folder, std::int64_t step, int num_shards);

  /// Makes the unfinished folder; removes unfinished ones of earlier saves.
  void prepare() const;

  /// Weights and states share one space of names.
  void write_shard(int shard, std::span<const NamedTensor> model,
                   std::span<const NamedTensor> optimizer) const;

  /// Completes the checkpoint once all shards are written and returns its folder; a complete one of
  /// the same step is replaced. `manifest.step` and `manifest.files` are filled in here.
  std::string commit(Manifest manifest, const std::string& config_json = "{}") const;

 private:
  std::string folder_;
  std::int64_t step_;
  int num_shards_;
  std::string final_folder_;
  std::string partial_folder_;
};

/// Reads a checkpoint, whatever mesh wrote it.
///
/// Threads  const, any thread.
/// Cost     open() reads every byte once, for the checksums.
/// Errors   UserError that names the file or tensor: nothing complete there, a file missing,
/// truncated or
///          damaged, a tensor missing or of another shape or dtype.
class CheckpointReader {
 public:
  /// `path`: a checkpoint, or the folder that holds several: then the latest.
  static CheckpointReader open(const std::string& path);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  std::vector<std::string> names() const;  ///< of weights and states, in ascending order
  bool contains(const std::string& name) const { return file_of_.contains(name); }

  /// The tensor's bytes in the file; see SafetensorsFile::tensor().
  at::Tensor tensor(const std::string& name) const;

  /// Copies into `target`, which must have the same shape and dtype.
  void read_into(const std::string& name, const at::Tensor& target) const;

 private:
  std::string folder_;
  Manifest manifest_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;
};

/// The complete checkpoints in a folder, oldest first; none if there is no such folder.
std::vector<std::string> list_checkpoints(const std::string& folder);

/// Removes all but the newest `keep`; 0 keeps all. Each is un-named first, so that no half of one
/// is ever taken for a checkpoint.
void prune_checkpoints(const std::string& folder, std::int64_t keep);

}  // namespace strata
