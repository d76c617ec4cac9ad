// Every rank runs this loop. What a rank must know of the others (stop, times, peaks) is exchanged
// by one small sum per step, so that all ranks make the same decisions.
#include "strata/run/rank_loop.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/base/units.h"
#include "strata/checkpoint/loader.h"
#include "strata/checkpoint/quantised_rows.h"
#include "strata/checkpoint/saver.h"
#include "strata/comm/share_text.h"
#include "strata/measure/better_order.h"
#include "strata/models/quantised_model.h"
#include "strata/report/idle.h"
#include "strata/report/tensorboard.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/schedule/order_csv.h"
#include "strata/schedule/trace.h"
#include "strata/train/disk_commit.h"
#include "strata/train/offload_statistics.h"
#include "strata/train/sent_statistics.h"
#include "strata/train/step_sums.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

constexpr std::size_t kKeptSteps = 10;

// Steps of a run before the order of a `zb` schedule is searched again. The first is slower.
constexpr std::int64_t kMeasuredSteps = 4;

CheckpointOptions checkpoint_options(const Recipe& recipe, const PlannedRun& run,
                                     const TaskData& data) {
  return {.folder = recipe.train.checkpoint_folder,
          .keep = recipe.train.keep_checkpoints,
          .model = recipe.task->checkpoint_model(),
          .tokenizer = recipe.task->tokenizer(),
          .recipe = recipe.text,
          .texts = data.texts(),
          .threads_per_rank = run.threads_per_rank};
}

TrainerOptions options_of(const RunState& state, TaskRank& task, bool is_root) {
  TrainerOptions options = trainer_options(state.recipe);
  options.rows = task.rows();
  options.filter = task.gradient_filter();
  options.disk.resume = holds_commits(state.request.resume);
  options.graph.shares_device = state.shares_device;
  // Pools of recorded steps would not fit. The machine itself reports a device that ranks share.
  const Plan& plan = state.run.plan;
  if (plan.costs.launch.kernel > 0 && plan.recorded.empty() && !state.shares_device &&
      options.graph.mode == GraphMode::kAuto)
    options.graph.mode = GraphMode::kOff;
  if (is_root && state.request.on_notice)
    options.graph.report = [&](const std::string& text) {
      state.request.on_notice("graph: " + text);
    };
  return options;
}

// The loop of one rank.
class RankLoop final : public RankBetweenSteps {
 public:
  RankLoop(RunState& state, Group& group, MemoryAccount& account)
      : state_(state),
        options_(state.recipe.train),
        group_(group),
        account_(account),
        task_(state.task.rank(group)),
        trainer_(state.run.model, state.run.plan.steps, group,
                 options_of(state, *task_, group.rank() == 0)),
        stage_(group.subgroup(trainer_.groups().mesh.stage_ranks(group.rank()), "stage")),
        saver_(checkpoint_options(state.recipe, state.run, state.data), group, stage_),
        learning_rate_(state.recipe.learning_rate()) {
    if (const auto target = target_of(state.recipe)) target_ = TargetOutcome{.target = *target};
    if (state.request.timeline) trainer_.trace_device(Stream::compute(group.device()));
  }

  void run() {
    try {
      begin();
      account_.reset_peak();
      bool stopped = false;
      // A caller that decides before each step may look at the model after the last one.
      const bool asks = static_cast<bool>(state_.request.before_step);
      while (!stopped && !has_reached_target() &&
             (asks || trainer_.steps_done() < options_.steps)) {
        const NextStep next = asks ? state_.request.before_step(*this) : NextStep{};
        stopped = next.stop || step(next.learning_rate);
      }
      finish(stopped && !has_reached_target());
    } catch (const std::exception& error) {
      group_.fail(device_error(error, account_));
      throw;
    }
  }

  Trainer& trainer() override { return trainer_; }
  Group& group() override { return group_; }
  Evaluation evaluate() override { return task_->evaluate(trainer_, group_); }

  std::string save(const std::string& folder) override {
    CheckpointOptions options = checkpoint_options(state_.recipe, state_.run, state_.data);
    options.folder = folder;
    options.keep = 0;
    CheckpointSaver saver(options, group_, stage_);
    task_->save(trainer_.steps_done(), group_);
    save_states(saver);
    return saver.wait();
  }

  const TrainingResult* gather_result() override {
    std::vector<MeasuredStep> steps = kept_;
    gather_steps(group_, steps);
    std::vector<LayerSeconds> layers =
        gather_layer_seconds(group_, trainer_.layer_times(), state_.run.model.num_layers());
    if (!is_root()) return nullptr;
    state_.result.last_steps = std::move(steps);
    state_.result.layers = std::move(layers);
    state_.result.unit = state_.data.unit();
    return &state_.result;
  }

 private:
  bool is_root() const { return group_.rank() == 0; }
  bool has_reached_target() const { return target_ && target_->reached; }

  void begin() {
    load();
    samples_seen_ = begun_at_.samples_seen;
    task_->begin(position());
    sent_.restart(trainer_.groups());
  }

  void load() {
    const TrainingRequest& request = state_.request;
    if (request.resume.empty()) state_.recipe.task->initialise(trainer_);
    if (trainer_.resumes_on_disk()) {  // the files have changed if this rank was a commit ahead
      begun_at_ = trainer_.resume();
      committed_ = begun_at_.steps_done;
      return;
    }
    if (!request.resume.empty())
      begun_at_ = load_trainer(trainer_, state_.recipe.task->checkpoint_model(), request.resume);
    if (!request.from.empty() && request.resume.empty())
      load_weights(trainer_, state_.recipe.task->checkpoint_model(), request.from);
  }

  // Samples are counted from the checkpoint on, so that a resumed run with another mini-batch
  // continues exactly where the last one stopped reading.
  TrainingPosition position() const { return {trainer_.steps_done(), samples_seen_}; }

  // Returns true if the run must stop here.
  bool step(std::optional<double> requested_rate) {
    const auto [step, seen] = position();
    announce(saver_.poll());
    if (step == begun_at_.steps_done + kMeasuredSteps) search_order_again();
    group_.barrier();
    trainer_.trace().clear();
    const double begin = now_seconds();
    group_.report_progress("data loading");
    const MiniBatch batch = task_->mini_batch(step, seen);
    const double learning_rate = requested_rate.value_or(learning_rate_.at(step));
    trainer_.begin_step(batch, learning_rate);
    samples_seen_ = state_.data.seen_after(seen);
    report();  // for the previous step, while this one runs
    unreported_ = StepRecord{.step = step + 1,
                             .learning_rate = learning_rate,
                             .unit = state_.data.unit(),
                             .samples_seen = samples_seen_};
    StepRecord& record = *unreported_;
    if (options_.log_lag == 0 || is_read_at_once(record.step)) read_outcome();
    if (record.step % state_.recipe.memory.disk.commit_every == 0) commit();
    const bool stop = exchange(record, begin, batch);
    if (validates_after(record.step)) validate(record);
    if (stop) read_outcome();
    if (is_read_) report();
    if (saves_after(step + 1) && !stop && !has_reached_target()) save();
    return stop;
  }

  // On a GPU, a rank's spans measure launches.
  void search_order_again() {
    const Plan& plan = state_.run.plan;
    if (plan.decisions().schedule != ScheduleKind::kZb || group_.device().kind != DeviceKind::kCpu)
      return;
    const std::vector<LayerSeconds> trained =
        gather_layer_seconds(group_, trainer_.layer_times(), state_.run.model.num_layers());
    std::optional<BetterOrder> better;
    if (is_root()) better = better_order(plan, trained);
    const std::string csv = share_text(group_, better ? order_csv(better->order) : "");
    if (csv.empty()) return;
    group_.barrier();  // no rank is in a step
    plan.steps.reorder(read_order(csv, "the order that rank 0 found"));
    group_.barrier();
    if (!is_root()) return;
    if (state_.request.on_notice)
      state_.request.on_notice("schedule: measured times allow " +
                               format_seconds(better->simulation.step_seconds) +
                               " a step instead of " + format_seconds(better->before_seconds) +
                               ", so the order is another one now");
    state_.result.simulation = std::move(better->simulation);
  }

  bool validates_after(std::int64_t step) const {
    return options_.validate_every > 0 && step % options_.validate_every == 0 &&
           step < options_.steps;
  }

  bool saves_after(std::int64_t step) const {
    return options_.checkpoint_every > 0 && step % options_.checkpoint_every == 0 &&
           step < options_.steps;
  }

  // A step is saved or validated only after its loss is known to be finite.
  bool is_read_at_once(std::int64_t step) const {
    return step == options_.steps || validates_after(step) || saves_after(step) ||
           (trainer_.on_disk() && step % state_.recipe.memory.disk.commit_every == 0);
  }

  // Reads the outcome of the step that is not yet reported; waits for the device.
  void read_outcome() {
    if (is_read_) return;
    is_read_ = true;
    const StepOutcome& outcome = trainer_.end_step();
    unreported_->loss = outcome.loss;
    unreported_->gradient_norm = outcome.gradient_norm;
    if (!outcome.skipped)
      require_finite(*unreported_);  // otherwise the loss scale has been reduced
  }

  void report() {
    if (!unreported_) return;
    read_outcome();
    if (is_root()) {
      state_.result.records.push_back(*unreported_);
      write_to_tensorboard(*unreported_);
      if (state_.request.on_step) state_.request.on_step(*unreported_);
    }
    unreported_.reset();
    is_read_ = false;
  }

  // Readers discard the steps of earlier files from the first one of this file on, which is only
  // known now: the disks of other processes may have been one commit behind this one's.
  void write_to_tensorboard(const StepRecord& record) {
    if (options_.tensorboard.empty()) return;
    if (!tensorboard_) tensorboard_.emplace(options_.tensorboard, record.step - 1);
    tensorboard_->write(record);
  }

  // Exchanges every rank's busy time, peak and events; returns whether any process must stop.
  bool exchange(StepRecord& record, double begin, const MiniBatch& batch) {
    double busy = 0, all_busy = 0;
    for (const TraceEvent& event : trainer_.trace().events())
      if (is_work(look_of(event.op).use)) busy += event.end_seconds - event.begin_seconds;
    bool stop = false;
    StepSums sums(group_);
    sums.sum(busy, &all_busy);
    sums.of_each_rank(account_.peak_bytes(), &record.peak_bytes);
    sums.any(state_.request.stop && *state_.request.stop, &stop);
    sums.sum(is_root() ? now_seconds() - begin : 0, &record.step_seconds);
    if (group_.size() > 1) sent_.add(sums, trainer_.groups(), record.sent.emplace());
    // If a plan keeps anything on the host, it does so on every rank.
    const bool offloads = !state_.run.plan.decisions().tiers.layers.empty();
    if (offloads) offload_.add(sums, trainer_.offload_use());
    task_->add_statistics(sums, record);
    keep_events(begin);
    sums.share();
    sent_.restart(trainer_.groups());
    if (offloads) record.offload = offload_.record(trainer_.on_disk());
    if (is_root()) task_->complete_record(record, is_read_at_once(record.step));
    record.units_per_second = static_cast<double>(batch.valid_tokens) / record.step_seconds;
    record.bubble = std::max(0.0, 1 - all_busy / (group_.size() * record.step_seconds));
    return stop;
  }

  void keep_events(double begin) {
    if (kept_.size() == kKeptSteps) kept_.erase(kept_.begin());
    kept_.push_back({begin, now_seconds(), {trainer_.trace().events()}, {trainer_.take_tracks()}});
  }

  void require_finite(const StepRecord& record) const {
    if (std::isfinite(record.loss) && std::isfinite(record.gradient_norm)) return;
    throw UserError({.operation = "run.step",
                     .where = "step " + std::to_string(record.step),
                     .what = "the loss or its gradient is no longer finite",
                     .expected = "finite numbers",
                     .got = "loss " + format_double(record.loss, 4) + ", gradient norm " +
                            format_double(record.gradient_norm, 4),
                     .fix = lower_learning_rate()});
  }

  std::string lower_learning_rate() const {
    const std::string lower = "lower train.optimizer.learning_rate, which is " +
                              format_double_exactly(learning_rate_.peak);
    return options_.clip > 0 ? lower : lower + ", or set train.clip=1";
  }

  // Saves layer by layer, because the host holds no more of the states on disk at once.
  void save_layers(CheckpointSaver& saver) {
    const bool scales = state_.recipe.train.precision == at::kHalf;
    const bool slots = !make_optimizer(state_.recipe.optimizer)->slot_names().empty();
    std::vector<CheckpointSaver::PartKinds> parts;
    for (const int layer : trainer_.layers()) {
      const bool weights = state_.run.model.layout(layer).own_numel > 0;
      parts.push_back({.weights = weights, .slots = (weights && slots) || (scales && layer == 0)});
    }
    saver.save_parts(position(), parts, [&](int part) {
      const int layer = trainer_.layers()[static_cast<std::size_t>(part)];
      return CheckpointSaver::Part{trainer_.owned_weights(layer), trainer_.owned_slots(layer)};
    });
  }

  // Commits in the background while the next step computes.
  void commit() {
    if (trainer_.on_disk() && committed_ != trainer_.steps_done()) commit_now();
  }

  void commit_now() {
    committed_ = trainer_.steps_done();
    ++commits_;
    trainer_.commit({.position = position(),
                     .recipe = state_.recipe.text,
                     .decisions = decisions_text(state_.run.plan)});
  }

  void validate(StepRecord& record) {
    if (!state_.data.evaluates()) return;
    if (is_root() && state_.request.on_validation_begin)
      state_.request.on_validation_begin(position());
    evaluate_into(record);
    if (is_root() && state_.request.on_validation)
      state_.request.on_validation({.step = trainer_.steps_done(),
                                    .samples = samples_seen_,
                                    .loss = *record.validation_loss,
                                    .metrics = record.validation_metrics});
    if (!target_) return;
    // Evaluations are equal on every rank.
    const QualityTarget& target = target_->target;
    target_->value = target.value_in(*record.validation_loss, record.validation_metrics);
    target_->reached = target.is_reached_by(target_->value);
    validated_ = record;
  }

  void evaluate_into(StepRecord& record) {
    group_.report_progress("validation");
    Evaluation evaluation = task_->evaluate(trainer_, group_);
    require_finite_validation(evaluation.loss);
    record.validation_loss = evaluation.loss;
    record.validation_metrics = std::move(evaluation.metrics);
  }

  // Replaces the weights by those of the checkpoint, rounded.
  std::optional<double> rounded_loss() {
    if (state_.request.weights == WeightType::kPrecision) return std::nullopt;
    const StateLoader loader(state_.request.resume, state_.recipe.task->checkpoint_model(),
                             SameModel::kWeights);
    const auto read = [&](const std::vector<NamedState>& states) { loader.read_weights(states); };
    trainer_.fill([&](const std::vector<NamedState>& weights, const std::vector<NamedState>&) {
      read_rounded(rounding_of(state_.request.weights), weights, read);
    });
    if (!state_.data.evaluates()) return std::nullopt;
    StepRecord rounded;
    evaluate_into(rounded);
    return rounded.validation_loss;
  }

  // If the last update has made the weights too large, the validation loss is not finite although
  // the step's own loss is.
  void require_finite_validation(double loss) const {
    if (std::isfinite(loss)) return;
    const bool trained = trainer_.steps_done() > begun_at_.steps_done;
    throw UserError({.operation = "run.validate",
                     .where = "step " + std::to_string(trainer_.steps_done()),
                     .what = "the loss of the validation samples is not finite",
                     .expected = "a finite number",
                     .got = "loss " + format_double(loss, 4),
                     .fix = trained ? lower_learning_rate() : "take an earlier checkpoint"});
  }

  // Saves in the background; the step after the next reports the checkpoint.
  void save() {
    group_.report_progress("checkpoint");
    // Waits for the previous checkpoint first: servers keep the rows of two versions, and one of
    // them must belong to a complete checkpoint.
    announce(saver_.wait());
    task_->save(trainer_.steps_done(), group_);
    save_states(saver_);
  }

  void save_states(CheckpointSaver& saver) {
    if (trainer_.on_disk()) return save_layers(saver);
    saver.save(position(), trainer_.owned_weights(), trainer_.owned_slots());
  }

  void inspect(const StepRecord& validated) {
    Inspection inspection =
        task_->inspect(trainer_, group_, state_.request.inspection,
                       {validated.validation_loss.value_or(0), validated.validation_metrics});
    if (is_root()) state_.result.inspection = std::move(inspection);
  }

  void announce(const std::string& folder) {
    if (!is_root() || folder.empty()) return;
    state_.result.checkpoint = folder;
    state_.task.checkpoint_complete(options_.checkpoint_folder);
    if (state_.request.on_checkpoint) state_.request.on_checkpoint(folder);
  }

  void finish(bool stopped) {
    if (trainer_.steps_done() > begun_at_.steps_done) commit();
    // A process that sees only its own disk cannot know from a rank's first commit whether the
    // others have one; a second commit proves it.
    if (commits_ == 1 && state_.processes > 1 && !trainer_.resumes_on_disk()) commit_now();
    if (!options_.checkpoint_folder.empty()) save();
    StepRecord last;
    std::optional<double> rounded;
    if (!stopped) {
      if (has_reached_target())
        last = validated_;
      else
        validate(last);
      inspect(last);
      rounded = rounded_loss();
    }
    announce(saver_.wait());
    trainer_.await_commit();
    if (!gather_result()) return;
    state_.result.stopped = stopped;
    state_.result.on_disk = trainer_.on_disk();
    state_.result.embeddings = state_.task.table_sizes();
    state_.result.validation_loss = last.validation_loss.value_or(0);
    state_.result.validation_metrics = std::move(last.validation_metrics);
    state_.result.rounded_loss = rounded;
    if (!stopped) state_.result.target = target_;
  }

  RunState& state_;
  const TrainOptions& options_;
  Group& group_;
  MemoryAccount& account_;
  std::unique_ptr<TaskRank> task_;
  Trainer trainer_;
  Group stage_;
  CheckpointSaver saver_;
  OffloadStatistics offload_;
  SentStatistics sent_;
  TrainingPosition begun_at_;
  std::int64_t committed_ = -1;  // the last step that was committed to disk
  std::int64_t commits_ = 0;     // number of commits of this run
  std::int64_t samples_seen_ = 0;
  LearningRateSchedule learning_rate_;
  std::vector<MeasuredStep> kept_;        // of this rank only, until they are gathered
  std::optional<StepRecord> unreported_;  // of the last step
  std::optional<TensorboardFile> tensorboard_;
  bool is_read_ = false;                 // its loss has been read
  std::optional<TargetOutcome> target_;  // none: no target
  StepRecord validated_;                 // the last validation, if there is a target
};

}  // namespace

void run_rank(RunState& state, Group& group, MemoryAccount& account) {
  RankLoop(state, group, account).run();
}

}  // namespace strata
