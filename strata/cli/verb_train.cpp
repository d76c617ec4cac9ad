#include <algorithm>
#include <atomic>
#include <csignal>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "strata/base/durable_file.h"
#include "strata/base/measurement.h"
#include "strata/base/units.h"
#include "strata/cli/arguments.h"
#include "strata/cli/report_origin.h"
#include "strata/cli/run_facts.h"
#include "strata/cli/run_messages.h"
#include "strata/cli/served_recipe.h"
#include "strata/cli/shared_input.h"
#include "strata/cli/verbs.h"
#include "strata/measure/step_miss.h"
#include "strata/plan/search/shared_host.h"
#include "strata/plan/text/plan_text.h"
#include "strata/report/chrome_trace.h"
#include "strata/report/metrics.h"
#include "strata/report/progress.h"
#include "strata/run/inspection_text.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/run/resume_point.h"
#include "strata/run/training_run.h"
#include "strata/run/training_start.h"
#include "strata/serve/text_generation.h"
#include "strata/tokenizer/tokenizer.h"

namespace strata {
namespace {

std::atomic<bool> stop_requested{false};

constexpr int kStopSignals[] = {SIGINT, SIGTERM};

// The first signal ends training after the current step; the second ends the program.
void request_stop(int) {
  stop_requested = true;
  for (const int signal : kStopSignals) std::signal(signal, SIG_DFL);
}

std::string ranks_text(const PlannedRun& run, const World& world) {
  const Mesh& mesh = run.mesh.axes;
  std::string text = std::to_string(run.ranks) + (run.ranks == 1 ? " rank" : " ranks");
  if (mesh.size() > 1) {
    std::string sizes;
    for (const Axis axis : kModelAxesFirst) {
      sizes += (sizes.empty() ? "" : ", ") + std::string(name_of(axis)) + " " +
               std::to_string(mesh[axis]);
    }
    text += " (" + sizes + ")";
  }
  if (world.processes() > 1) text += " in " + std::to_string(world.processes()) + " processes";
  return text;
}

// Whether the run commits its model to the folder of memory.disk.
bool keeps_model(const Recipe& recipe, const PlannedRun& run) {
  const bool on_disk = std::ranges::any_of(
      run.plan.ledger, [](const RankLedger& rank) { return rank.disk_bytes > 0; });
  return !recipe.train.checkpoint_folder.empty() || (on_disk && !recipe.memory.disk.path.empty());
}

// For ranks that compute on this processor; bytes of row servers in the process are not counted.
std::optional<ProcessBytes> process_of(const Recipe& recipe, const PlannedRun& run, int processes) {
  if (recipe.task->has_uncounted_memory() || recipe.device_kind() != DeviceKind::kCpu)
    return std::nullopt;
  return process_bytes(run.plan, shared_host(run, processes));
}

void print_start(const ResolvedRun& resolved, const PlannedRun& run, const World& world) {
  const Recipe& recipe = resolved.recipe;
  std::cout << "model    " << format_count(static_cast<double>(run.model.num_weights()))
            << " weights in " << run.model.num_layers() << " layers\n"
            << "mesh     " << ranks_text(run, world) << ", " << run.threads_per_rank
            << " intra-op threads each, " << name_of(run.mesh.schedule) << ", ZeRO "
            << run.mesh.zero.stage << ", recompute " << name_of(recipe.memory.recompute) << '\n'
            << "step     predicted " << format_seconds(run.plan.simulation.step_seconds)
            << ", bubble " << format_double(100 * run.plan.simulation.bubble, 1) << " %, at most "
            << format_bytes(peak_bytes(run.plan.ledger)) << " on a rank" << std::endl;
  if (resolved.micro_batch)
    std::cout << "batch    " << recipe.train.micro_batch << " of " << recipe.train.mini_batch
              << " samples a micro-batch, the fastest of " << resolved.micro_batch->trials.size()
              << " sizes (strata plan lists them)\n";
  if (const TransportChoice& transport = world.transport(); !transport.reason.empty())
    std::cout << "network  " << name_of(transport.kind) << ": " << transport.reason << '\n';
  if (const auto process = process_of(recipe, run, world.processes()))
    std::cout << "process  predicted " << process_text(*process) << std::endl;
  if (const std::string devices = devices_sentence(run.plan); !devices.empty())
    std::cout << "devices  " << devices << '\n';
  if (const std::string rate = warmup_advice(recipe); !rate.empty())
    std::cout << "rate     " << rate << '\n';
  if (!keeps_model(recipe, run))
    std::cout << "saved    nothing: the model is lost at the end unless train.checkpoint_folder "
                 "names a place"
              << std::endl;
}

std::string first_weights_text(const TrainArguments& arguments, const Recipe& recipe,
                               const ResumePoint& begin) {
  if (!arguments.resume.empty()) return text_of(begin);
  if (!arguments.from.empty()) return "weights  of " + arguments.from + "\n";
  return "weights  " + recipe.task->first_weights(recipe) + "\n";
}

// The rate of disk writes of this run, because disks wear out.
std::string disk_text(const std::vector<StepRecord>& records) {
  DiskRecord all;
  double seconds = 0;
  for (const StepRecord& record : records) {
    seconds += record.step_seconds;
    if (!record.offload || !record.offload->disk) return "";
    all.bytes_read += record.offload->disk->bytes_read;
    all.bytes_written += record.offload->disk->bytes_written;
  }
  if (seconds <= 0) return "";
  constexpr double kDaySeconds = 86400;
  const double day = static_cast<double>(all.bytes_written) * kDaySeconds / seconds;
  return "read " + format_bytes(all.bytes_read) + ", wrote " + format_bytes(all.bytes_written) +
         ": " + format_bytes(static_cast<std::int64_t>(day)) + " written a day";
}

constexpr int kMostRankLines = 8;

// One line per rank; with many ranks, one line per pipeline rank, because its replicas and slices
// have one plan.
void print_peaks(const PlannedRun& run, const std::vector<std::int64_t>& peaks) {
  const Mesh& mesh = run.mesh.axes;
  const int together = run.ranks > kMostRankLines ? mesh.stage_size() : 1;
  for (int first = 0; first < run.ranks; first += together) {
    const int pp = mesh.place(first)[Axis::kPipeline];
    std::string name = mesh.name(first);
    if (together > 1)
      name = "ranks " + std::to_string(first) + " to " + std::to_string(first + together - 1) +
             " (pp " + std::to_string(pp) + "/" + std::to_string(mesh[Axis::kPipeline]) + ")";
    const std::int64_t peak =
        *std::max_element(peaks.begin() + first, peaks.begin() + first + together);
    std::cout << name << (together > 1 ? "   largest peak " : "   peak ") << format_bytes(peak)
              << " (predicted " << format_bytes(run.plan.ledger[pp].at_peak.charged()) << ")\n";
  }
}

// Rows at the end, and the largest number in memory after any step.
std::string rows_text(const TrainingResult& result) {
  const EmbeddingSize size = sum_of(result.embeddings);
  std::int64_t peak = size.bytes;
  for (const StepRecord& record : result.records)
    if (record.embedding && record.embedding->size)
      peak = std::max(peak, record.embedding->size->bytes);
  return size_text(size) + ", peak " + format_bytes(peak) + " in memory";
}

void print_steps(const PlannedRun& run, const TrainingResult& result) {
  const Simulation& predicted = run.plan.simulation;
  std::cout << "step     measured " << format_seconds(result.median_step_seconds) << " (predicted "
            << format_seconds(predicted.step_seconds) << "), bubble "
            << format_double(100 * result.median_bubble, 1) << " % (predicted "
            << format_double(100 * predicted.bubble, 1) << " %)\n";
  const std::string miss = text_of(step_miss(run.plan, result.layers, result.median_step_seconds));
  if (!miss.empty()) std::cout << "         " << miss << '\n';
  print_peaks(run, result.records.back().peak_bytes);
  if (!result.embeddings.empty()) std::cout << "rows     " << rows_text(result) << '\n';
  if (const std::string disk = disk_text(result.records); !disk.empty())
    std::cout << "disk     " << disk << '\n';
}

void print_end(const Recipe& recipe, const PlannedRun& run, const TrainingResult& result) {
  if (result.records.empty()) {
    std::cout << "step     none was left: train.steps is " << recipe.train.steps << '\n';
  } else {
    print_steps(run, result);
  }
  if (!result.stopped && result.validation_loss > 0)
    std::cout << "loss     validation " << format_double(result.validation_loss, 4) << " nats a "
              << result.unit << (result.validation_metrics.empty() ? "" : ", ")
              << metrics_text(result.validation_metrics) << '\n';
  std::cout << target_line(result);
  if (result.stopped) {
    std::cout << "stopped after step " << result.records.back().step << " of " << recipe.train.steps
              << '\n';
  }
}

void write_trace(const std::string& path, const PlannedRun& run, const TrainingResult& result) {
  TraceProcess measured{"measured", result.last_steps.front().begin_seconds, {}, {}};
  TraceProcess predicted{"predicted", 0, {}, {}};
  measured.ranks.resize(run.ranks);
  measured.tracks.resize(run.ranks);
  const Simulation& simulation = predicted_step(run, result);
  for (int rank = 0; rank < run.ranks; ++rank) {
    for (const MeasuredStep& step : result.last_steps) {
      std::ranges::copy(step.ranks[rank], std::back_inserter(measured.ranks[rank]));
      std::ranges::copy(step.tracks[rank], std::back_inserter(measured.tracks[rank]));
    }
    const RankTimeline& planned = simulation.ranks[run.mesh.axes.place(rank)[Axis::kPipeline]];
    predicted.ranks.push_back(row_of(planned));
    predicted.tracks.push_back(tracks_within(planned, simulation.step_seconds));
  }
  const std::vector<TraceProcess> processes{std::move(measured), std::move(predicted)};
  write_chrome_trace(path, processes);
  std::cout << "trace    " << path << " (open in ui.perfetto.dev)\n";
}

// Checked before training, so that hours of training are not lost to a folder that cannot be made.
void require_outputs(const TrainArguments& arguments) {
  for (const auto& [option, path] :
       {std::pair("--metrics", &arguments.metrics), std::pair("--trace", &arguments.trace),
        std::pair("--report", &arguments.report), std::pair("--run-json", &arguments.run_json),
        std::pair("--mllog", &arguments.mllog)})
    if (!path->empty()) require_writable_file(*path, option);
}

// Prints and writes the output of a run, in the process of rank 0.
class Output {
 public:
  Output(const TrainArguments& arguments, const Recipe& recipe, std::int64_t steps_done)
      : progress_(std::cerr, progress_to_stderr(recipe.train.steps, 0)),
        metrics_path_(arguments.metrics) {
    resume_after(steps_done);
  }

  // Prints above the line of the last step.
  void note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    progress_.note(text);
  }

  void write(const StepRecord& record) {
    const std::lock_guard lock(mutex_);
    // Disks of other processes may be one commit earlier than the disks of this process.
    if (record.step <= steps_done_) resume_after(record.step - 1);
    steps_done_ = record.step;
    progress_.update(record, now_seconds());
    if (metrics_) metrics_->write(record);
  }

 private:
  void resume_after(std::int64_t steps_done) {
    steps_done_ = steps_done;
    if (!metrics_path_.empty()) metrics_.emplace(metrics_path_, steps_done);
  }

  std::mutex mutex_;  // threads of their own wait for row servers
  Progress progress_;
  std::string metrics_path_;
  std::int64_t steps_done_ = 0;
  std::optional<MetricsFile> metrics_;
};

TextSample sample(const Recipe& recipe, const TrainingResult& result) {
  const std::string tokenizer = recipe.task->tokenizer();
  if (result.checkpoint.empty() || tokenizer.empty() ||
      tokenizer_kind(tokenizer) == TokenizerKind::kNone)
    return {};
  const std::string prompt = "In the beginning";
  return {prompt, generate_text(served_model(recipe, result.checkpoint),
                                {.prompts = {prompt}, .tokens = 300, .in_this_process = true})
                      .front()};
}

// Prints only a command that works: the checkpoint may have been removed since.
void print_resume(TrainArguments arguments, const Recipe& recipe, const TrainingResult& result) {
  const std::string from = result.on_disk ? recipe.memory.disk.path : result.checkpoint;
  if (from.empty()) {
    std::cout << "resume   from nothing: train.checkpoint_folder names no place to save to\n";
    return;
  }
  require_resume_point(recipe, from);
  std::cout << "resume   ";
  if (is_stream(arguments.recipe.path)) {
    arguments.recipe.path = "-";
    std::cout << "with the same recipe on standard input: ";
  }
  std::cout << command_text(arguments.resume_command(from)) << '\n';
}

void write_results(const TrainArguments& arguments, const Recipe& recipe, const PlannedRun& run,
                   const TrainingResult& result) {
  print_end(recipe, run, result);
  std::cout << tables_text(result.inspection.tables);
  if (!arguments.trace.empty() && result.last_steps.empty()) {
    std::cout << "trace    none: no step ran\n";
  } else if (!arguments.trace.empty()) {
    write_trace(arguments.trace, run, result);
  }
  if (!arguments.report.empty()) {
    write_run_report(arguments.report, recipe, run, result, sample(recipe, result),
                     report_origin(recipe, arguments.recipe.text()));
    std::cout << "report   " << arguments.report << '\n';
  }
  if (result.stopped) print_resume(arguments, recipe, result);
}

void run_train(const TrainArguments& arguments) {
  Recipe loaded = arguments.load();
  ResolvedRun resolved = resolve_here(std::move(loaded));
  Recipe& recipe = resolved.recipe;
  World world = join_world(resolved);
  std::optional<RunClock> clock;  // in process 0
  world.agree([&] {
    require_outputs(arguments);
    clock.emplace(clock_options(arguments, recipe));
    clock->start();
    return std::string();
  });
  std::optional<Output> output;
  TrainingRequest request{
      .resume = arguments.resume,
      .from = arguments.from,
      .on_step = [&](const StepRecord& record) { output->write(record); },
      .on_validation_begin =
          [&](const TrainingPosition& at) {
            clock->validation_begins(at.steps_done, at.samples_seen);
          },
      .on_validation =
          [&](const RunValidation& validation) {
            if (const std::string line = clock->validated(validation); !line.empty())
              output->note(line);
          },
      .on_checkpoint = [&](const std::string& folder) { output->note("saved " + folder); },
      .on_notice =
          [&](const std::string& text) {
            if (output)
              output->note(text);
            else
              std::cerr << text + "\n";
          },
      .inspection = {.importance = arguments.importance, .report = !arguments.report.empty()},
      .timeline = !arguments.trace.empty() || !arguments.report.empty(),
      .stop = &stop_requested};
  const TrainingStart start = start_training(world, resolved, request);
  const PlannedRun& run = start.planned;
  // Before a file exists that says that training runs.
  for (const int signal : kStopSignals) std::signal(signal, request_stop);
  world.agree([&] {
    clock->open_files(run_facts(recipe, start));
    return std::string();
  });
  if (world.process() == 0) {
    print_start(resolved, run, world);
    for (const std::string& notice : start.data->notices())
      std::cout << "data     " << notice << '\n';
    std::cout << first_weights_text(arguments, recipe, start.begin) << std::flush;
    require_output();
    output.emplace(arguments, recipe, start.begin.steps_done);
  }
  request.data = start.data.get();
  const TrainingResult result = train(world, recipe, run, request);
  if (!output) return;
  const RunStatus status = status_of(result);
  clock->end(status, result.median_step_seconds);
  write_results(arguments, recipe, run, result);
  if (status == RunStatus::kMissed) {
    require_output();
    throw CLI::RuntimeError(kTargetMissed);
  }
}

}  // namespace

void add_train_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("train", "train a model as its recipe says");
  auto arguments = std::make_shared<TrainArguments>();
  arguments->add_to(*verb);
  verb->callback([arguments] { run_train(*arguments); });
}

}  // namespace strata
