/// Provides the mini-batches of a run, in the order of training.
/// The only state of the order is the number of samples seen, which the caller keeps: a resumed run
/// can continue at any sample.
///
/// Threads  const, any thread. Ranks may share the tensors, which must not be written.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "strata/data/batch.h"

namespace strata {

class TaskData {
 public:
  virtual ~TaskData() = default;

  /// The mini-batch after so many samples.
  virtual MiniBatch at(std::int64_t samples_seen) const = 0;
  /// Samples seen after that mini-batch.
  virtual std::int64_t seen_after(std::int64_t samples_seen) const = 0;
  /// Whether at() takes so long that the next mini-batch should be read while a step runs.
  virtual bool is_read_ahead() const { return false; }

  /// Steps of the whole run: the recipe's, or as many as its epochs take.
  virtual std::int64_t steps() const = 0;
  /// What a loss is the mean of, and speed counts: "token", "sample".
  virtual std::string unit() const = 0;
  /// Samples to train on, in an epoch, and of a validation; 0: unknown.
  virtual std::int64_t training_samples() const { return 0; }
  virtual std::int64_t validation_samples() const { return 0; }
  /// Whether there are samples to evaluate the model on.
  virtual bool evaluates() const = 0;
  /// Their mini-batches, for a task that is evaluated by their mean loss.
  virtual std::vector<MiniBatch> validation() const { return {}; }
  /// Whether validation() may return others at the next call.
  virtual bool validation_changes() const { return false; }
  /// One sentence for each property of the data that is probably a mistake.
  virtual std::vector<std::string> notices() const { return {}; }
  /// Files that a checkpoint keeps of these data, by name: a resumed run needs them.
  virtual std::map<std::string, std::string> texts() const { return {}; }
};

}  // namespace strata
