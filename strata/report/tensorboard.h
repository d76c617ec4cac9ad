/// Writes the numbers of every step as TensorBoard event files, the scalars of `tensorboard
/// --logdir`.
///
/// Tags    loss, gradient_norm, learning_rate, tokens_per_second or samples_per_second,
///         step_seconds, bubble, peak_bytes (of the fullest rank). After a validation:
///         validation_loss, validation/auc and other metrics. For a recommender: embedding/rows,
///         embedding/bytes (in memory) and embedding/cold_bytes.
/// Source  TFRecord framing (length, data, masked CRC-32C of each) around Event messages in
///         protobuf's encoding (tensorflow/core/util/event.proto).
/// Units   values are fp32, as TensorBoard stores scalars; metrics.h has the exact bits.
/// Cost    one write per step; every record is complete on disk before the next step starts.
/// Errors  UserError: the folder cannot be made or written. SystemError: the disk is full.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "strata/report/metrics.h"

namespace strata {

/// CRC-32C (Castagnoli), as in a record before masking.
std::uint32_t crc32c(std::string_view bytes);

/// One record of the file: an event with the scalars of a step.
std::string to_tensorboard_record(const StepRecord& record, double unix_seconds);

class TensorboardFile {
 public:
  /// Starts events.out.tfevents.<unix seconds>.<host>.<process> in `folder`. A run that resumes
  /// after `steps_done` steps replaces the later steps of existing files.
  explicit TensorboardFile(const std::string& folder, std::int64_t steps_done = 0);

  void write(const StepRecord& record);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace strata
