/// Trains the model of a recipe on mini-batches that a caller brings, one call a step.
///
///     Session session(resolve(load_recipe(path, {})));
///     const auto record = session.step(session.mini_batch({x, y}));
///
/// The ranks of the mesh are threads that wait between the calls, or belong to several processes
/// that make the same calls with the same mini-batches.
///
/// Threads  one thread at a time calls the methods.
/// Errors   refused mini-batches change nothing. What a rank throws ends the session: that call and
///          all later ones throw it. UserError `[session.step]`: no step of the recipe is left; the
///          model remains for all other calls.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/data/batch.h"
#include "strata/run/training_run.h"

namespace strata {

struct SessionOptions {
  std::string resume;  ///< a checkpoint, or its folder, to continue; empty: first weights
  std::function<void(const std::string&)> on_notice;  ///< for people; from any thread
  /// Called a few times a second on the caller's thread while it waits. What it throws ends the
  /// wait, not the ranks' work: the next call waits for that first.
  std::function<void()> while_waiting;
};

class Session {
 public:
  explicit Session(ResolvedRun run, SessionOptions options = {});
  ~Session();  ///< as close(), without errors
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// A mini-batch of the model's inputs and the targets (Task::mini_batch); at most
  /// train.mini_batch samples.
  MiniBatch mini_batch(std::vector<at::Tensor> tensors) const;

  /// One step with an update. `learning_rate`: of this step; none: the recipe's. Returns the step's
  /// numbers in the process of rank 0.
  std::optional<StepRecord> step(MiniBatch batch, std::optional<double> learning_rate = {});

  /// The mean loss of the mini-batches without dropout, and the task's metrics.
  Evaluation evaluate(std::vector<MiniBatch> batches);

  /// Whole weights and running statistics by their names in checkpoints. Every rank must belong to
  /// this process (UserError).
  std::map<std::string, at::Tensor> weights();
  /// Replaces them; UserError: a missing, unknown or differently shaped weight.
  void load_weights(const std::map<std::string, at::Tensor>& weights);

  /// Saves a checkpoint to the folder; returns its own folder, in the process of rank 0.
  std::string save(const std::string& folder);

  /// What the steps have measured so far; complete in the process of rank 0.
  TrainingResult result();

  /// Ends the ranks; later calls throw. Throws what a rank has thrown.
  void close();

  /// Whether this is the process of rank 0.
  bool has_results() const;
  const Recipe& recipe() const;
  const PlannedRun& planned() const;
  std::int64_t steps_done() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace strata
