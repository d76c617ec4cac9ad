/// Writes and reads the folder of a checkpoint so that no crash at any moment loses the last one.
///
/// A checkpoint is complete as soon as it has its name (docs/formats.md):
///
///     FOLDER/step-00000400/model-00001-of-00002.safetensors      weights under Hugging Face's
///     names
///                          optimizer-00001-of-00002.safetensors  the other states; perhaps none
///                          model.safetensors.index.json          weight -> file, if several files
///                          config.json                           the model, for transformers
///                          manifest.json                         step, recipe, files and checksums
///
/// It is written as step-00000400.partial, made durable, then renamed. The newest complete folder
/// is the latest; unfinished ones are ignored, and removed by the next save.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "strata/train/checkpoint_names.h"
#include "strata/train/manifest.h"
#include "strata/train/safetensors.h"

namespace strata {

/// Files of a checkpoint; each holds whole tensors.
struct CheckpointFiles {
  int model = 1;
  int optimizer = 0;
};

/// Writes one checkpoint together with the writers of other ranks; they share nothing but the
/// folder, so ranks may be threads or processes:
///
///     CheckpointWriter writer(folder, step, {.model = ranks});
///     if (rank == 0) writer.prepare();
///     group.barrier();
///     writer.write_model(rank, weights);
///     group.barrier();
///     if (rank == 0) writer.commit(manifest, config);
///
/// Threads  const; different files at the same time.
/// Cost     each file's bytes once, at the disk's rate.
/// Errors   SystemError: disk full, no permission. InternalError: a file missing at commit, a name
///          in two files.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string folder, std::int64_t step, CheckpointFiles files);

  /// Makes the unfinished folder; removes unfinished ones of earlier saves.
  void prepare() const;

  /// Weights and other states share one space of names.
  void write_model(int file, std::span<const NamedTensor> tensors) const;
  void write_optimizer(int file, std::span<const NamedTensor> tensors) const;

  /// Completes the checkpoint once all files are written and returns its folder; a complete one of
  /// the same step is replaced. `manifest.step` and `manifest.files` are filled in here. `texts`:
  /// further files by name.
  std::string commit(Manifest manifest, const std::string& config_json = "{}",
                     const std::map<std::string, std::string>& texts = {}) const;

  /// Removes the unfinished folder as far as that is possible.
  void discard() const noexcept;

 private:
  void write(const std::string& name, std::span<const NamedTensor> tensors) const;

  std::string folder_;
  std::int64_t step_;
  CheckpointFiles files_;
  std::string final_folder_;
  std::string partial_folder_;
};

/// Reads a checkpoint, whatever mesh wrote it, or another program's folder in Hugging Face's
/// layout.
///
/// Threads  const, any thread.
/// Cost     open() looks at sizes and headers; reading verifies the 4 MiB chunks that it touches.
/// Errors   UserError that names the file or tensor: nothing complete there, a file missing,
///          truncated or damaged, a tensor missing or of another shape or dtype.
class CheckpointReader {
 public:
  /// `path`: a checkpoint, or the folder that holds several: then the latest.
  static CheckpointReader open(const std::string& path);

  /// A folder without our manifest: config.json, and model.safetensors or its index. No checksums.
  static CheckpointReader open_pretrained(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }  ///< empty for a pretrained folder
  std::vector<std::string> names() const;                 ///< of tensors, in ascending order
  bool contains(const std::string& name) const { return file_of_.contains(name); }

  /// The tensor's bytes in the file; see SafetensorsFile::tensor().
  at::Tensor tensor(const std::string& name) const;

  /// Fills the runs of `state.local` from the tensors that hold them, reading those bytes alone.
  void read_runs(const NamedState& state, const std::vector<FileTensor>& parts) const;

  std::string config_json() const;

  /// Reads and verifies every byte.
  void verify_all() const;

 private:
  const SafetensorsFile& file_of(const std::string& tensor) const;
  void add(SafetensorsFile file);

  std::string folder_;
  Manifest manifest_;
  bool pretrained_ = false;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;
};

/// Whether `path` is a folder of Hugging Face's layout that isn't a checkpoint of ours.
bool is_pretrained(const std::string& path);

/// The complete checkpoints in a folder, oldest first; none if there is no such folder.
std::vector<std::string> list_checkpoints(const std::string& folder);

/// Removes all but the newest `keep`; 0 keeps all. Each is un-named first, so that no half of one
/// is ever taken for a checkpoint.
void prune_checkpoints(const std::string& folder, std::int64_t keep);

}  // namespace strata
