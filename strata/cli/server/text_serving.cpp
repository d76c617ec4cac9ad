// Serves models of text: other processes may have ranks, and one of them decides.
#include <CLI/CLI.hpp>
#include <iostream>
#include <utility>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/enum_names.h"
#include "strata/base/errors.h"
#include "strata/cli/arguments.h"
#include "strata/cli/served_recipe.h"
#include "strata/cli/server/count_text.h"
#include "strata/cli/server/measured_settings.h"
#include "strata/cli/server/measurement_page.h"
#include "strata/cli/server/serving_kind.h"
#include "strata/cli/server/serving_kind_makers.h"
#include "strata/cli/serving_arguments.h"
#include "strata/cli/version.h"
#include "strata/cli/weights_option.h"
#include "strata/kserve/server_routes.h"
#include "strata/measure/processor.h"
#include "strata/openai/model.h"
#include "strata/serve/model_service.h"
#include "strata/transport/rendezvous.h"

namespace strata {
namespace {

// ", 4 guesses by NAME"; empty without a draft model.
std::string guesses_of(const ServiceOptions& options) {
  if (!options.draft) return "";
  return ", " + std::to_string(options.guesses) + (options.guesses == 1 ? " guess" : " guesses") +
         " by " + weights_name(options.draft->checkpoint, options.draft->weights);
}

class TextCheckpoint final : public ServedCheckpoint {
 public:
  TextCheckpoint(const ServeRequest& request, ServedModel served, const ServiceOptions& options)
      : served_(std::move(served)),
        keys_(request.keys),
        guesses_(guesses_of(options)),
        service_(std::make_shared<ModelService>(served_, options)),
        model_(open_model(request.name, served_.tokenizer, service_)),
        models_(repository_of(model_)) {}

  std::shared_ptr<const ModelRepository> models() const override { return models_; }
  HttpRoutes routes() const override { return server_routes(model_, models_, keys_, kVersion); }
  std::string checkpoint() const override { return served_.checkpoint; }
  std::string description() const override {
    std::string context = std::to_string(service_->context());
    if (service_->context() < served_.model.context)
      context += " of the model's " + std::to_string(served_.model.context);
    return std::string(name_of(served_.model.kind)) + ", " + precision_name(served_.precision) +
           weights_ending(", weights ", served_.weights) + ", context " + context + ", " +
           count_of(served_.ranks.mesh.size(), "rank") + ", " +
           count_of(service_->status().pages, "page") + " of keys and values" + guesses_;
  }
  std::string memory() const override { return tiers_sentence(service_->plan()); }

  void wait_until_ready() override { service_->wait_until_ready(); }
  bool answers() const override { return service_->decides(); }
  bool ends_within(std::chrono::milliseconds time) override { return service_->ends_within(time); }

  std::int64_t running() const override {
    const ServiceStatus status = service_->status();
    return status.running + status.waiting;
  }
  std::string totals() const override {
    const ServiceStatus status = service_->status();
    return std::to_string(status.prompt_tokens) + " tokens of prompts, " +
           std::to_string(status.generated_tokens) + " generated";
  }

  bool load(const std::string& checkpoint) override { return service_->load(checkpoint); }
  void refuse_loads() override { service_->refuse_loads(); }
  bool ready() const override { return service_->status().ready; }

 private:
  const ServedModel served_;
  const std::shared_ptr<const Keys> keys_;
  const std::string guesses_;
  const std::shared_ptr<ModelService> service_;
  const OpenAiModel model_;
  const std::shared_ptr<const ModelRepository> models_;
};

class TextServing final : public ServingKind {
 public:
  std::string task() const override { return "text"; }
  std::string title() const override { return "Options of models of text"; }

  void add_options(CLI::App& verb) override {
    serving_.add_to(verb);
    weights_ = verb.get_option("--weights");
    verb.add_option("--longest-wait", longest_wait_seconds_,
                    "refuses a request that is predicted to wait longer, with status 429; 0: none")
        ->type_name("SECONDS")
        ->check(at_least(0))
        ->capture_default_str();
    add_measure_options(verb);
  }

  // Writes the page of --measure.
  bool instead_of_serving(const ServeRequest& request) override {
    if (measure_.empty()) return false;
    if (!rendezvous_from_environment().alone())
      throw UserError({.operation = "cli.serve",
                       .where = "--measure",
                       .what = "the measured ranks are threads of one process",
                       .expected = "a program without strata launch",
                       .got = "several processes",
                       .fix = "run strata serve alone"});
    require_writable_file(measure_, "--measure");
    // Refuses options before any setting is measured.
    serving_.options(served_model(recipe_of(request.checkpoint, request.overrides),
                                  request.checkpoint, WeightType::kPrecision));
    load_.time = std::chrono::milliseconds(static_cast<std::int64_t>(measure_seconds_ * 1e3));
    const Measurement measurement = measure_settings(
        {.checkpoint = request.checkpoint,
         .overrides = request.overrides,
         .weights = measured_weights(),
         .serving = serving_,
         .load = load_,
         .report = [](const std::string& line) { std::cout << line << std::endl; }});
    const FoundRow fastest =
        best_row(measurement, [](const ServiceRates& rates) { return rates.tokens_per_second; });
    std::cout << "fastest   " << fastest.setting->name << ':';
    for (const std::string& field : fastest.setting->overrides) std::cout << " --set " << field;
    std::cout << weights_ending(" --weights ", fastest.setting->weights)
              << serving_.guess_options();
    std::cout << "\nwritten   " << measure_ << std::endl;
    write_file(measure_, measurement_page(measurement, request.name));
    return true;
  }

  std::shared_ptr<ServedCheckpoint> open(const ServeRequest& request) override {
    ServedModel served = served_model(recipe_of(request.checkpoint, request.overrides),
                                      request.checkpoint, serving_.weights);
    tokenizer_of(served);  // refuses a model without one before it loads
    ServiceOptions options = serving_.options(served);
    options.waiting = request.waiting;
    options.longest_wait =
        std::chrono::milliseconds(static_cast<std::int64_t>(longest_wait_seconds_ * 1e3));
    options.warn = [](const std::string& warning) { std::cerr << warning << std::endl; };
    return std::make_shared<TextCheckpoint>(request, std::move(served), options);
  }

 private:
  // Those that --weights names, or all.
  std::vector<WeightType> measured_weights() const {
    std::vector<WeightType> types;
    for (const auto& [name, type] : all_named<WeightType>())
      if (weights_->count() == 0 || type == serving_.weights) types.push_back(type);
    return types;
  }

  void add_measure_options(CLI::App& verb) {
    const auto add = [&](const char* name, const char* what, auto& target, const char* help) {
      return verb.add_option(name, target, help)->type_name(what);
    };
    CLI::Option* measure =
        add("--measure", "FILE", measure_,
            "serves nothing: measures meshes, precisions, weights of 8 and 4 bits and numbers of "
            "answers at once, and writes a page of HTML")
            ->check(refuse_empty_path);
    add("--measure-prompt", "TOKENS", load_.prompt_tokens,
        "with --measure: of a prompt; default: 128, or what the context has room for")
        ->check(at_least(1))
        ->needs(measure);
    add("--measure-answer", "TOKENS", load_.answer_tokens,
        "with --measure: of an answer; default: 64, or a third of the context")
        ->check(at_least(2))
        ->needs(measure);
    add("--measure-seconds", "SECONDS", measure_seconds_,
        "with --measure: of each number; longer until as many answers ended as there are at once")
        ->check(at_least(0.1))
        ->capture_default_str()
        ->needs(measure);
    for (const char* option : {"--listen", "--grpc-listen", "--keys", "--follow"})
      measure->excludes(verb.get_option(option));
  }

  ServingArguments serving_;
  const CLI::Option* weights_ = nullptr;
  double longest_wait_seconds_ = 0;
  std::string measure_;  // the page's path
  ServiceLoad load_{.prompt_tokens = 0, .answer_tokens = 0};
  double measure_seconds_ = 5;
};

}  // namespace

MakeServingKind text_serving() {
  return [] { return std::unique_ptr<ServingKind>(std::make_unique<TextServing>()); };
}

}  // namespace strata
