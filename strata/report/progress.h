/// Reports the progress of training: one rewritten line on a terminal, plain lines elsewhere.
///
/// Plain lines are printed for the first and the last step, for every validation (on a terminal,
/// too), and every few steps or seconds in between. Pipes and files receive only printable text and
/// line breaks.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "strata/report/metrics.h"

namespace strata {

struct ProgressOptions {
  std::int64_t total_steps = 1;
  std::int64_t every_steps = 0;  ///< interval of plain lines; 0: by time
  double every_seconds = 10;     ///< interval of plain lines, if not by steps
  bool terminal = false;         ///< rewrite one line
  int columns = 0;               ///< width of the terminal; 0: unlimited
};

/// Estimates how long the rest of a run takes, by the wall clock, so that validations and
/// checkpoints count, but without the first step, which is slower.
class RemainingTime {
 public:
  explicit RemainingTime(std::int64_t total_steps) : total_steps_(total_steps) {}

  /// After every step, or some of them; `now` in seconds of now_seconds().
  double seconds_after(const StepRecord& record, double now);

 private:
  std::int64_t total_steps_;
  std::int64_t first_step_ = -1;
  double first_seconds_ = 0;
};

/// "step 12/400  loss 3.214  ...": the text of a line, most important first.
std::string progress_text(const StepRecord& record, std::int64_t total_steps, double left_seconds);

class Progress {
 public:
  Progress(std::ostream& out, ProgressOptions options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `now` in seconds of now_seconds().
  void update(const StepRecord& record, double now);

  /// Prints a separate line above the rewritten one: "saved checkpoints/step_100".
  void note(const std::string& text);

 private:
  void rewrite();
  void clear();

  std::ostream& out_;
  ProgressOptions options_;
  std::string line_;  // line on the terminal, "" if none
  RemainingTime remaining_;
  bool has_printed_ = false;
  double printed_seconds_ = 0;
};

/// Options for standard error: whether it is a terminal, and its width.
ProgressOptions progress_to_stderr(std::int64_t total_steps, std::int64_t every_steps);

}  // namespace strata
