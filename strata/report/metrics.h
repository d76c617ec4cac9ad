/// Writes one JSON object a line per step, for people, plots and tests of exact bits.
///
/// Keys    step, loss, loss_hex (the exact bits, as C's %a), gradient_norm, gradient_norm_hex,
///         learning_rate, tokens_per_second, step_seconds, bubble, peak_bytes (a list, one per
///         rank), validation_loss (where there was a validation), samples_seen. Numbers that JSON
///         lacks, such as a loss of NaN, are null; their hex form still names them.
/// Cost    one write a step; every line is complete on disk before the next step starts.
/// Errors  UserError: the path cannot be written, or holds something other than metrics, which is
///         left as it is. SystemError: the disk is full.
#pragma once

#include <fstream>
#include <string>

#include "strata/report/step_record.h"

namespace strata {

/// One line, without the line break.
std::string to_metrics_line(const StepRecord& record);

class MetricsFile {
 public:
  /// Continues the file behind the line of step `steps_done`; lines of later steps, or torn ones,
  /// are of a run that was interrupted and go away. A new run (0) starts an empty file.
  explicit MetricsFile(const std::string& path, std::int64_t steps_done = 0);

  void write(const StepRecord& record);

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace strata
