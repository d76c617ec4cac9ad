// strata._core.plan(), train() and generate(): what the program's verbs do, for a recipe.
// strata/recipes.py is their user.
#include <nanobind/stl/function.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <ATen/ops/from_blob.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "strata/base/durable_file.h"
#include "strata/base/json_text.h"
#include "strata/base/measurement.h"
#include "strata/checkpoint/reader.h"
#include "strata/cli/report_origin.h"
#include "strata/cli/served_recipe.h"
#include "strata/device/device.h"
#include "strata/python/calls.h"
#include "strata/python/module.h"
#include "strata/python/plans.h"
#include "strata/python/tensors.h"
#include "strata/report/progress.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/run/training_run.h"
#include "strata/run/training_start.h"
#include "strata/serve/text_generation.h"

namespace strata {
namespace nb = nanobind;
namespace {

constexpr auto kBetweenSignals = std::chrono::milliseconds(50);

// Texts from a thread that must not wait for the interpreter, to the thread that has its lock.
class TextQueue {
 public:
  void push(std::string kind, std::string text) {
    const std::lock_guard lock(mutex_);
    texts_.emplace_back(std::move(kind), std::move(text));
    changed_.notify_all();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  using Texts = std::vector<std::pair<std::string, std::string>>;
  // Returns false, with the last texts, after the end.
  bool take(Texts& texts) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kBetweenSignals, [&] { return ended_ || !texts_.empty(); });
    texts = std::exchange(texts_, {});
    return !ended_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Texts texts_;
  bool ended_ = false;
};

// Runs `work` on a thread of its own; meanwhile passes texts to `on_text` and handles signals. An
// exception of either sets `stop`, and is thrown after the work has ended.
void run_beside(const std::function<void(TextQueue&)>& work,
                const std::function<void(const std::string&, const std::string&)>& on_text,
                std::atomic<bool>& stop) {
  TextQueue queue;
  std::exception_ptr of_work, of_python;
  std::thread thread([&] {
    try {
      work(queue);
    } catch (...) {
      of_work = std::current_exception();
    }
    queue.end();
  });
  TextQueue::Texts texts;
  for (bool more = true; more;) {
    more = queue.take(texts);
    try {
      raise_signals();
      const nb::gil_scoped_acquire acquire;
      if (!of_python)
        for (const auto& [kind, text] : texts) on_text(kind, text);
    } catch (...) {
      stop = true;
      if (!of_python) of_python = std::current_exception();
    }
  }
  thread.join();
  if (of_python) std::rethrow_exception(of_python);
  if (of_work) std::rethrow_exception(of_work);
}

std::string result_json(const TrainingResult& result) {
  nlohmann::json json = {{"checkpoint", result.checkpoint},
                         {"stopped", result.stopped},
                         {"median_step_seconds", result.median_step_seconds},
                         {"bubble", result.median_bubble},
                         {"validation_loss", nullptr},
                         {"metrics", nlohmann::json::object()},
                         {"target_reached", nullptr}};
  if (result.target) json["target_reached"] = result.target->reached;
  if (result.validation_loss > 0) json["validation_loss"] = result.validation_loss;
  for (const auto& [name, value] : result.validation_metrics) json["metrics"][name] = value;
  return json_text(json, 0);
}

// A recipe as Python gives it.
struct GivenRecipe {
  std::string text, name;
  std::vector<std::string> overrides;

  Recipe parse(const RecipeDefaults& defaults = nullptr) const {
    return parse_recipe(text, name, overrides, defaults);
  }
};

// Lines of the kinds "step" (metrics), "progress" (for people), "checkpoint" and "notice".
TrainingResult train_recipe(const GivenRecipe& given, const std::string& report,
                            TrainingRequest request, TextQueue& queue) {
  request.on_notice = [&](const std::string& text) { queue.push("notice", text); };
  request.on_checkpoint = [&](const std::string& folder) { queue.push("checkpoint", folder); };
  ResolvedRun run = resolve(given.parse(training_defaults(request.resume, request.from)));
  run.on_notice = request.on_notice;
  World world = join_world(run);
  const TrainingStart start = start_training(world, run, request, [&] {
    if (!report.empty()) require_writable_file(report, "report");
  });
  RemainingTime remaining(run.recipe.train.steps);
  request.on_step = [&](const StepRecord& record) {
    queue.push("step", to_metrics_line(record));
    queue.push("progress", progress_text(record, run.recipe.train.steps,
                                         remaining.seconds_after(record, now_seconds())));
  };
  request.data = start.data.get();
  const TrainingResult result = train(world, run.recipe, start.planned, request);
  if (!report.empty() && world.process() == 0)
    write_run_report(report, run.recipe, start.planned, result, {},
                     report_origin(run.recipe, given.name));
  return result;
}

using OnText = std::function<void(const std::string&, const std::string&)>;

std::string train_from_python(const std::string& recipe, const std::string& name,
                              const std::vector<std::string>& overrides, const std::string& resume,
                              const std::string& from, const std::string& report,
                              const OnText& on_text) {
  return unlocked([&] {
    std::atomic<bool> stop = false;
    TrainingResult result;
    const auto work = [&](TextQueue& queue) {
      result = train_recipe(
          {recipe, name, overrides}, report,
          {.resume = resume, .from = from, .timeline = !report.empty(), .stop = &stop}, queue);
    };
    run_beside(work, on_text, stop);
    return result_json(result);
  });
}

PlanTexts plan_from_python(const std::string& recipe, const std::string& name,
                           const std::vector<std::string>& overrides, bool measure) {
  return unlocked([&] {
    const ResolvedRun run =
        resolve(GivenRecipe{recipe, name, overrides}.parse(), {.measure = measure});
    return plan_texts(run.recipe, plan_run(run, measure));
  });
}

std::vector<std::string> generate_from_python(const std::string& checkpoint,
                                              const std::vector<std::string>& prompts,
                                              const std::vector<std::string>& overrides,
                                              std::int64_t tokens, double temperature,
                                              std::uint64_t seed, const OnText& on_text) {
  return unlocked([&] {
    std::vector<std::string> texts;
    std::atomic<bool> stop = false;
    struct Stopped {};
    run_beside(
        [&](TextQueue& queue) {
          try {
            texts = generate_text(served_model(recipe_of(checkpoint, overrides), checkpoint),
                                  {.prompts = prompts,
                                   .tokens = tokens,
                                   .temperature = temperature,
                                   .seed = seed,
                                   .on_text = [&](std::size_t prompt, const std::string& piece) {
                                     if (stop) throw Stopped{};
                                     queue.push(std::to_string(prompt), piece);
                                   }});
          } catch (...) {
            if (!stop) throw;  // else the reason is Python's
          }
        },
        on_text, stop);
    return texts;
  });
}

// (name, ids [n], vectors [n, width]) of each table, as capsules; ids are the bits of uint64.
nb::list load_embeddings(const std::string& checkpoint) {
  std::vector<EmbeddingTable> tables = unlocked([&] {
    const CheckpointReader reader = CheckpointReader::open(checkpoint);
    const Recipe recipe = parse_recipe(reader.manifest().recipe, checkpoint, {});
    return recipe.task->saved_embeddings(recipe, checkpoint);
  });
  nb::list all;
  for (EmbeddingTable& each : tables) {
    const auto table = std::make_shared<EmbeddingTable>(std::move(each));
    const auto rows = static_cast<std::int64_t>(table->ids.size());
    const auto keep = [table](void*) {};
    const at::Tensor ids = at::from_blob(table->ids.data(), {rows}, keep, host_options(at::kLong));
    const at::Tensor vectors =
        at::from_blob(table->values.data(), {rows, table->width}, keep, host_options(at::kFloat));
    all.append(nb::make_tuple(table->name, capsule_of(ids), capsule_of(vectors)));
  }
  return all;
}

}  // namespace

void add_recipes(nb::module_& module) {
  module.def("load_embeddings", &load_embeddings, nb::arg("checkpoint"));
  nb::class_<PlanTexts>(module, "Plan")
      .def_ro("text", &PlanTexts::text)
      .def_ro("json", &PlanTexts::json)
      .def_ro("html", &PlanTexts::html);
  module.def("plan", &plan_from_python, nb::arg("recipe"), nb::arg("name"), nb::arg("overrides"),
             nb::arg("measure"));
  module.def("train", &train_from_python, nb::arg("recipe"), nb::arg("name"), nb::arg("overrides"),
             nb::arg("resume"), nb::arg("from_"), nb::arg("report"), nb::arg("on_text"));
  module.def("generate", &generate_from_python, nb::arg("checkpoint"), nb::arg("prompts"),
             nb::arg("overrides"), nb::arg("tokens"), nb::arg("temperature"), nb::arg("seed"),
             nb::arg("on_text"));
}

}  // namespace strata
