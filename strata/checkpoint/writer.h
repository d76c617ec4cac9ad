/// Writes the folder of a checkpoint so that no crash at any moment loses the last one.
///
///     FOLDER/step-00000400/model-00001-of-00002.safetensors      weights, Hugging Face's names
///                          optimizer-00001-of-00002.safetensors  the other states; perhaps none
///                          model.safetensors.index.json          weight -> file, if several files
///                          config.json                           the model, for transformers
///                          manifest.json                         the rest (docs/formats.md)
///
/// Invariants; each test of a power cut (writer_crash_test.cpp) checks one:
/// - a folder has its name only after every file in it, and their names, are on disk;
/// - a complete checkpoint loses its name only to a newer complete one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/checkpoint/manifest.h"
#include "strata/checkpoint/safetensors.h"

namespace strata {

/// Files of a checkpoint; each holds whole tensors.
struct CheckpointFiles {
  int model = 1;
  int optimizer = 0;
};

/// What the writer of a file sends to the committing rank.
struct WrittenFile {
  ManifestFile file;
  std::map<std::string, std::int64_t> tensor_bytes;  ///< by name
};

std::string encode(const std::vector<WrittenFile>& files);
std::vector<WrittenFile> decode_written_files(const std::string& text);

/// Writes one checkpoint together with the writers of other ranks, possibly in other processes:
///
///     CheckpointWriter writer(folder, step, {.model = ranks});
///     if (rank == 0) writer.prepare();
///     group.barrier();
///     const WrittenFile mine = writer.write_model(rank, weights);
///     ...                                        // rank 0 gets the others'
///     if (rank == 0) writer.commit(manifest, all, config);
///
/// Threads  const; different files at the same time.
/// Cost     each file's bytes once, at the disk's rate.
/// Errors   UserError: no permission, a file in the folder's place. SystemError: disk full.
///          InternalError: a file missing at commit, a name in two files.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string folder, std::int64_t step, CheckpointFiles files,
                   FileSystem& file_system = posix_file_system());

  /// Makes the unfinished folder; removes unfinished ones of earlier saves.
  void prepare() const;

  /// Weights and other states share one space of names.
  WrittenFile write_model(int file, std::span<const NamedTensor> tensors) const;
  WrittenFile write_optimizer(int file, std::span<const NamedTensor> tensors) const;

  /// Completes the checkpoint after all files are written and returns its folder; replaces a
  /// complete one of the same step. Fills in `manifest.step` and `manifest.files`. `texts`:
  /// additional files by name.
  std::string commit(Manifest manifest, const std::vector<WrittenFile>& written,
                     const std::string& config_json = "{}",
                     const std::map<std::string, std::string>& texts = {}) const;

  /// Removes as much of the unfinished folder as possible.
  void discard() const noexcept;

 private:
  WrittenFile write(const std::string& name, std::span<const NamedTensor> tensors) const;
  ManifestFile write_text(const std::string& name, const std::string& text) const;

  std::string folder_;
  std::int64_t step_;
  CheckpointFiles files_;
  FileSystem& file_system_;
  std::string final_folder_;
  std::string partial_folder_;
};

}  // namespace strata
