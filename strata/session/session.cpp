// A command is work that every rank of this process does once, between two steps or as a step. The
// ranks wait in train()'s hook before each step; the caller posts one command at a time and waits
// until every rank is back in the hook.
#include "strata/session/session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/device/account.h"
#include "strata/nn/graph/weight_name.h"
#include "strata/run/rank_options.h"
#include "strata/run/resume_point.h"
#include "strata/task/task.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

constexpr ErrorSource kStepErrors{"session.step"};
constexpr ErrorSource kWeightErrors{"session.weights"};

constexpr auto kBetweenCalls = std::chrono::milliseconds(50);  // of while_waiting

// The mini-batches that the caller has brought last.
class BroughtData final : public TaskData {
 public:
  explicit BroughtData(std::int64_t steps) : steps_(steps) {}

  void bring(MiniBatch batch) { batch_ = std::move(batch); }
  void bring_validation(std::vector<MiniBatch> batches) { validation_ = std::move(batches); }

  MiniBatch at(std::int64_t) const override { return batch_; }
  std::int64_t seen_after(std::int64_t seen) const override { return seen + batch_.samples; }
  std::int64_t steps() const override { return steps_; }
  std::string unit() const override {
    return batch_.valid_tokens > batch_.samples ? "target" : "sample";
  }
  bool evaluates() const override { return false; }  // unless the caller asks
  std::vector<MiniBatch> validation() const override { return validation_; }
  bool validation_changes() const override { return true; }

 private:
  std::int64_t steps_;
  MiniBatch batch_;
  std::vector<MiniBatch> validation_;
};

struct Command {
  std::function<void(RankBetweenSteps&)> work;  // empty: `next`
  NextStep next = {};
};

// Hands commands from the caller's thread to the threads of the ranks.
class Commands {
 public:
  explicit Commands(std::size_t ranks) : taken_(ranks, 1), done_(ranks, 0) {}

  // On a rank's thread: does the work of commands until one is a step.
  NextStep next(std::size_t index, RankBetweenSteps& rank) {
    while (true) {
      const std::shared_ptr<const Command> command = take(index);
      if (!command->work) return command->next;
      command->work(rank);
    }
  }

  void post(Command command) {
    const std::lock_guard lock(mutex_);
    command_ = std::make_shared<const Command>(std::move(command));
    ++posted_;
    changed_.notify_all();
  }

  // The ranks have ended: after a stop, or with an error.
  void end(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    error_ = std::move(error);
    changed_.notify_all();
  }

  // Waits until the ranks have done what was posted; throws their error.
  void wait(const std::function<void()>& while_waiting) {
    std::unique_lock lock(mutex_);
    while (!is_done()) {
      changed_.wait_for(lock, kBetweenCalls);
      if (is_done() || !while_waiting) continue;
      lock.unlock();
      while_waiting();
      lock.lock();
    }
    if (error_) std::rethrow_exception(error_);
  }

  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  std::shared_ptr<const Command> take(std::size_t index) {
    std::unique_lock lock(mutex_);
    done_[index] = taken_[index];
    changed_.notify_all();
    changed_.wait(lock, [&] { return posted_ > taken_[index]; });
    taken_[index] = posted_;
    return command_;
  }

  bool is_done() const {
    return ended_ || std::ranges::all_of(done_, [&](std::int64_t done) { return done == posted_; });
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const Command> command_;
  std::int64_t posted_ = 1;                 // the first one, already taken, is the start
  std::vector<std::int64_t> taken_, done_;  // by rank of this process
  bool ended_ = false;
  std::exception_ptr error_;
};

using NamesInFiles = std::map<std::string, std::string>;  // of weights, by their own names

const std::string& name_in_files(const NamesInFiles& names, const std::string& weight) {
  const auto found = names.find(weight);
  return found == names.end() ? weight : found->second;
}

// Refuses weights that are not those of the model.
void require_weights(const std::map<std::string, at::Tensor>& weights, const Sequential& model,
                     const NamesInFiles& names) {
  std::set<std::string> known;
  for (int layer = 0; layer < model.num_layers(); ++layer)
    for (const WeightSpec& spec : model.layout(layer).specs) {
      const std::string name = name_in_files(names, weight_name(model, layer, spec));
      known.insert(name);
      const auto found = weights.find(name);
      if (found == weights.end())
        throw kWeightErrors.user(name, "a weight is missing", "all weights of the model", "none",
                                 "give every weight of weights()");
      if (found->second.sizes() != at::IntArrayRef(spec.shape))
        throw kWeightErrors.user(name, "the weight has another shape",
                                 c10::str(at::IntArrayRef(spec.shape)),
                                 c10::str(found->second.sizes()), "give the weights of this model");
    }
  for (const auto& [name, tensor] : weights)
    if (!known.contains(name))
      throw kWeightErrors.user(name, "the model has no such weight", "the names of weights()", name,
                               "leave it out");
}

ResolvedRun with_notices(ResolvedRun run, const SessionOptions& options) {
  if (!run.on_notice) run.on_notice = options.on_notice;
  return run;
}

}  // namespace

struct Session::Parts {
  Parts(ResolvedRun requested, SessionOptions session)
      : options(std::move(session)),
        resolved(with_notices(std::move(requested), options)),
        world(join_world(resolved)),
        run(agree_on_plan(world, resolved,
                          resume_point(resolved.recipe, options.resume).decisions)),
        data(resolved.recipe.train.steps),
        commands(static_cast<std::size_t>(world.local_ranks())) {}

  void start() {
    TrainingRequest request{.resume = options.resume,
                            .on_step = [this](const StepRecord& record) { last = record; },
                            .on_notice = resolved.on_notice,
                            .data = &data,
                            .timeline = true,
                            .before_step = [this](RankBetweenSteps& rank) { return next(rank); }};
    runner = std::thread([this, request] {
      std::exception_ptr error;
      try {
        train(world, resolved.recipe, run, request);
      } catch (...) {
        error = std::current_exception();
      }
      commands.end(error);
    });
    commands.wait(options.while_waiting);
  }

  NextStep next(RankBetweenSteps& rank) {
    const int index = rank.group().rank() - world.first_rank();
    if (index == 0) steps_done = rank.trainer().steps_done();
    return commands.next(static_cast<std::size_t>(index), rank);
  }

  // Posts the command after the work of an interrupted call, and waits for it.
  void run_command(const std::function<Command()>& command) {
    commands.wait(options.while_waiting);
    if (commands.ended())
      throw kStepErrors.user("the session", "the session has ended", "an open session",
                             "close() was called", "make another session");
    commands.post(command());
    commands.wait(options.while_waiting);
  }

  void on_all_ranks(std::function<void(RankBetweenSteps&)> work) {
    run_command([&] { return Command{.work = std::move(work)}; });
  }

  NamesInFiles file_names() const { return resolved.recipe.task->checkpoint_model().file_names; }

  SessionOptions options;
  ResolvedRun resolved;
  World world;
  PlannedRun run;
  BroughtData data;
  Commands commands;
  std::optional<StepRecord> last;
  std::atomic<std::int64_t> steps_done{0};
  bool closed = false;
  std::thread runner;
};

Session::Session(ResolvedRun run, SessionOptions options) {
  if (!run.recipe.task->takes_tensors())
    throw kStepErrors.user("task", "this task reads its samples itself",
                           "task text, or an exported model", run.recipe.task->title(),
                           "train the recipe with strata train");
  if (!run.recipe.train.target.empty())
    throw kStepErrors.user("train.target", "a caller that brings mini-batches ends the run itself",
                           "no target", run.recipe.train.target,
                           "compare what evaluate() returns with the target");
  parts_ = std::make_unique<Parts>(std::move(run), std::move(options));
  try {
    parts_->start();
  } catch (...) {
    parts_->options.while_waiting = {};
    try {
      close();
    } catch (const std::exception&) {  // the caller gets the first error
    }
    throw;
  }
}

Session::~Session() {
  parts_->options.while_waiting = {};
  try {
    close();
  } catch (const std::exception&) {  // a destructor cannot pass it on
  }
}

MiniBatch Session::mini_batch(std::vector<at::Tensor> tensors) const {
  MiniBatch batch = parts_->resolved.recipe.task->mini_batch(std::move(tensors));
  const std::int64_t most = parts_->resolved.recipe.train.mini_batch;
  if (batch.samples > most)
    throw kStepErrors.user("the mini-batch", "the mini-batch is larger than the plan's",
                           "at most " + std::to_string(most) + " samples",
                           std::to_string(batch.samples), "set train.mini_batch");
  if (batch.valid_tokens == 0)
    throw kStepErrors.user("the mini-batch", "no target counts towards the loss",
                           "at least one target that isn't ignored",
                           "0 of " + std::to_string(batch.samples) + " samples",
                           "check the targets of the samples");
  return batch;
}

std::optional<StepRecord> Session::step(MiniBatch batch, std::optional<double> learning_rate) {
  parts_->run_command([&] {
    const std::int64_t steps = parts_->resolved.recipe.train.steps;
    if (parts_->steps_done >= steps)
      throw kStepErrors.user("the session", "no step is left", "a step of train.steps",
                             "all " + std::to_string(steps) + " steps are done",
                             "set train.steps to more");
    parts_->last.reset();
    parts_->data.bring(std::move(batch));
    return Command{.next = {.learning_rate = learning_rate}};
  });
  return parts_->last;
}

Evaluation Session::evaluate(std::vector<MiniBatch> batches) {
  struct Shared {
    std::mutex mutex;
    Evaluation found;
  };
  const auto shared = std::make_shared<Shared>();  // the wait may end before the work
  parts_->run_command([&] {
    parts_->data.bring_validation(std::move(batches));
    return Command{.work = [shared](RankBetweenSteps& rank) {
      Evaluation evaluation = rank.evaluate();
      const std::lock_guard lock(shared->mutex);
      shared->found = std::move(evaluation);  // equal on every rank
    }};
  });
  const std::lock_guard lock(shared->mutex);
  return shared->found;
}

std::map<std::string, at::Tensor> Session::weights() {
  if (parts_->world.processes() > 1)
    throw kWeightErrors.user("the ranks", "no process has all weights", "every rank in one process",
                             std::to_string(parts_->world.processes()) + " processes",
                             "save a checkpoint, and read its safetensors");
  struct Shared {
    std::mutex mutex;
    std::map<std::string, at::Tensor> whole;
  };
  const auto shared = std::make_shared<Shared>();
  parts_->on_all_ranks([shared](RankBetweenSteps& rank) {
    const UnchargedScope uncharged;
    for (const int layer : rank.trainer().layers()) {
      const std::vector<NamedState> states = rank.trainer().owned_weights(layer);
      const std::lock_guard lock(shared->mutex);
      assemble(states, shared->whole);
    }
  });
  const NamesInFiles names = parts_->file_names();
  std::map<std::string, at::Tensor> named;
  const std::lock_guard lock(shared->mutex);
  for (auto& [name, tensor] : shared->whole)
    named.emplace(name_in_files(names, name), std::move(tensor));
  return named;
}

void Session::load_weights(const std::map<std::string, at::Tensor>& weights) {
  const NamesInFiles names = parts_->file_names();
  require_weights(weights, parts_->run.model, names);
  parts_->on_all_ranks([weights, names](RankBetweenSteps& rank) {
    if (rank.trainer().in_sign_round())
      throw UserError({.operation = "session.load_weights",
                       .where = "train.optimizer.kind",
                       .what =
                           "the replicas are inside a round of 0/1 Adam, whose updates belong to "
                           "the present weights",
                       .expected = "a step that ends a round",
                       .got = "step " + std::to_string(rank.trainer().steps_done()),
                       .fix = "load the weights after a later step, or begin a run with them"});
    rank.trainer().fill([&](const std::vector<NamedState>& states, const std::vector<NamedState>&) {
      const UnchargedScope uncharged;
      for (const NamedState& state : states)
        assign_whole(state, weights.at(name_in_files(names, state.name)));
    });
  });
}

std::string Session::save(const std::string& folder) {
  const auto saved = std::make_shared<std::string>();
  parts_->on_all_ranks([saved, folder](RankBetweenSteps& rank) {
    std::string path = rank.save(folder);
    if (rank.group().rank() == 0) *saved = std::move(path);
  });
  return *saved;
}

TrainingResult Session::result() {
  const auto found = std::make_shared<TrainingResult>();
  parts_->on_all_ranks([found](RankBetweenSteps& rank) {
    if (const TrainingResult* result = rank.gather_result()) *found = *result;
  });
  set_medians(*found);
  return *found;
}

void Session::close() {
  if (!parts_ || !parts_->runner.joinable()) return;
  try {
    parts_->commands.wait(parts_->options.while_waiting);
    if (!parts_->commands.ended()) parts_->commands.post({.next = {.stop = true}});
  } catch (const std::exception&) {
    if (!parts_->commands.ended()) throw;  // of while_waiting: the ranks still work
  }
  parts_->runner.join();
  parts_->closed = true;
  parts_->commands.wait({});  // throws what a rank has thrown
}

bool Session::has_results() const { return parts_->world.first_rank() == 0; }
const Recipe& Session::recipe() const { return parts_->resolved.recipe; }
const PlannedRun& Session::planned() const { return parts_->run; }
std::int64_t Session::steps_done() const { return parts_->steps_done; }

}  // namespace strata
