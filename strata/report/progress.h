/// Tells how training goes: one rewritten line on a terminal, plain lines elsewhere.
///
/// Plain lines come for the first and the last step, for every validation, on a terminal, too, and every
/// so many steps or seconds in between.
/// Nothing but printable text and line breaks ever reaches a pipe or a file.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "strata/report/metrics.h"

namespace strata {

struct ProgressOptions {
  std::int64_t total_steps = 1;
  std::int64_t every_steps = 0;  ///< plain lines; 0: by time
  double every_seconds = 10;     ///< plain lines, if not by steps
  bool terminal = false;         ///< rewrite one line
  int columns = 0;               ///< of the terminal; 0: unlimited
};

/// "step 12/400  loss 3.214  ...": what a line says, the most important first.
std::string progress_text(const StepRecord& record, std::int64_t total_steps, double left_seconds);

class Progress {
 public:
  Progress(std::ostream& out, ProgressOptions options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `now` in seconds of now_seconds().
  void update(const StepRecord& record, double now);

  /// Prints a line of its own, above the rewritten one: "saved checkpoints/step_100".
  void note(const std::string& text);

 private:
  double left_seconds(const StepRecord& record, double now);
  void rewrite();
  void clear();

  std::ostream& out_;
  ProgressOptions options_;
  std::string line_;  // on the terminal, "" if none
  std::int64_t first_step_ = -1;
  double first_seconds_ = 0;
  double printed_seconds_ = 0;
};

/// Options for standard error as it is: is it a terminal, and how wide?
ProgressOptions progress_to_stderr(std::int64_t total_steps, std::int64_t every_steps);

}  // namespace strata
