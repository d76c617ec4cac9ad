#include "strata/run/micro_batch_choice.h"

#include <exception>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/base/text_table.h"
#include "strata/base/units.h"

namespace strata {

namespace {
constexpr double kAsFast = 1.01;
constexpr std::int64_t kMostTried = 256;

// What to tell a user for whom no size can be planned. A size may be refused because it makes too
// many micro-batches, which is not what all sizes have in common.
class Refusal {
 public:
  void add(const ErrorText& text, std::exception_ptr error) {
    const bool is_about_memory = text.operation == "plan.memory";
    if (error_ && (is_about_memory_ || !is_about_memory)) return;
    error_ = std::move(error);
    is_about_memory_ = is_about_memory;
  }
  [[noreturn]] void raise(const std::string& reason) const {
    if (error_) std::rethrow_exception(error_);
    throw ErrorSource{"run.micro_batch", "set memory.device, so that plans make room"}.user(
        "train.micro_batch", "no size of a micro-batch fits", "a smaller plan", reason);
  }

 private:
  std::exception_ptr error_;
  bool is_about_memory_ = false;
};

}  // namespace

std::vector<std::int64_t> possible_micro_batches(std::int64_t replica_samples) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size < replica_samples; size *= 2)
    if (size * kMostTried >= replica_samples) sizes.push_back(size);
  sizes.push_back(replica_samples);
  return sizes;
}

MicroBatchChoice choose_micro_batch(
    std::int64_t replica_samples,
    const std::function<MicroBatchTrial(std::int64_t samples)>& try_out) {
  MicroBatchChoice choice;
  Refusal refusal;
  double fastest = 0;
  for (const std::int64_t samples : possible_micro_batches(replica_samples)) {
    try {
      choice.trials.push_back(try_out(samples));
    } catch (const UserError& error) {
      refusal.add(error.text(), std::current_exception());
      choice.trials.push_back({.samples = samples, .reason = error.text().what});
    } catch (const SystemError& error) {  // too little free memory to measure it
      refusal.add(error.text(), std::current_exception());
      choice.trials.push_back({.samples = samples, .reason = error.text().what});
    }
    const MicroBatchTrial& trial = choice.trials.back();
    if (trial.fits && (fastest == 0 || trial.step_seconds < fastest)) fastest = trial.step_seconds;
  }
  for (choice.chosen = 0; choice.chosen < choice.trials.size(); ++choice.chosen) {
    const MicroBatchTrial& trial = choice.trials[choice.chosen];
    if (trial.fits && trial.step_seconds <= kAsFast * fastest) return choice;
  }
  refusal.raise(choice.trials.front().reason);
}

std::string micro_batch_text(const MicroBatchChoice& choice) {
  TextTable table("rrrl");
  table.add_row({"micro-batch", "step", "peak", ""});
  for (std::size_t i = 0; i < choice.trials.size(); ++i) {
    const MicroBatchTrial& trial = choice.trials[i];
    table.add_row({std::to_string(trial.samples),
                   trial.fits ? format_seconds(trial.step_seconds) : "",
                   trial.fits ? format_bytes(trial.peak_bytes) : "",
                   i == choice.chosen ? "chosen" : trial.reason});
  }
  return table.text();
}

}  // namespace strata
