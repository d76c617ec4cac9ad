// Serves a checkpoint over HTTP until a signal ends it.
//
// The signals are blocked in all threads, and the main thread waits for them: a handler could not
// let requests end.
#include <pthread.h>
#include <csignal>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/enum_names.h"
#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/base/user_text.h"
#include "strata/checkpoint/folder.h"
#include "strata/cli/arguments.h"
#include "strata/cli/served_recipe.h"
#include "strata/cli/server/checkpoint_follower.h"
#include "strata/cli/server/measured_settings.h"
#include "strata/cli/server/measurement_page.h"
#include "strata/cli/server/model_servers.h"
#include "strata/cli/serving_plan_text.h"
#include "strata/cli/verbs.h"
#include "strata/cli/version.h"
#include "strata/measure/processor.h"
#include "strata/openai/keys.h"
#include "strata/openai/model.h"
#include "strata/serve/model_service.h"
#include "strata/transport/rendezvous.h"
#include "strata/transport/server_address.h"

namespace strata {
namespace {

constexpr std::chrono::milliseconds kSignalPoll{100};

struct ServeArguments {
  std::string checkpoint, name, listen = "127.0.0.1:8000", grpc_listen, keys;
  std::vector<std::string> overrides;
  HttpTls tls;
  ServingArguments serving;
  double drain_seconds = 30;
  double longest_wait_seconds = 0;
  double follow_seconds = 0;
  std::string gate;
  std::string measure;  // the page's path
  ServiceLoad load{.prompt_tokens = 0, .answer_tokens = 0};
  double measure_seconds = 5;
  std::vector<WeightType> measured_weights;
};

// SIGINT and SIGTERM. Held back, they wait for take(); else each ends the program at once.
class Signals {
 public:
  /// Holds the signals back in this thread and all that it starts.
  Signals() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals_, signal);
    hold();
  }
  void hold() const { pthread_sigmask(SIG_BLOCK, &signals_, nullptr); }
  void let_end_program() const { pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr); }
  /// Whether one came since they are held back.
  bool take() const {
    constexpr timespec kNow{};
    return sigtimedwait(&signals_, nullptr, &kNow) > 0;
  }

 private:
  sigset_t signals_;
};

std::string name_of_folder(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path);
  return whole.filename().empty() ? whole.parent_path().filename().string()
                                  : whole.filename().string();
}

HttpListen listen_of(const ServeArguments& arguments) {
  const ServerAddress address = tcp_address(arguments.listen, "--listen", "127.0.0.1:8000");
  HttpListen listen{.host = address.host,
                    .port = address.port,
                    .limits = {.connections = 1024,
                               .request = std::chrono::minutes(1),
                               .answer = std::chrono::minutes(1)}};
  if (!arguments.tls.certificate_file.empty()) listen.tls = arguments.tls;
  return listen;
}

std::optional<InferenceListen> grpc_listen_of(const ServeArguments& arguments) {
  if (arguments.grpc_listen.empty()) return std::nullopt;
  InferenceListen listen{.address =
                             tcp_address(arguments.grpc_listen, "--grpc-listen", "127.0.0.1:8001")};
  if (!arguments.tls.certificate_file.empty()) listen.tls = arguments.tls;
  return listen;
}

std::string count_of(std::int64_t count, const std::string& name) {
  return std::to_string(count) + ' ' + name + (count == 1 ? "" : "s");
}

std::string describe(const ServedModel& served, const ModelService& service) {
  std::string context = std::to_string(service.context());
  if (service.context() < served.model.context)
    context += " of the model's " + std::to_string(served.model.context);
  const bool int8 = served.weights == WeightType::kInt8;
  return std::string(name_of(served.model.kind)) + ", " + precision_name(served.precision) +
         (int8 ? ", weights int8" : "") + ", context " + context + ", " +
         count_of(served.ranks.mesh.size(), "rank") + ", " +
         count_of(service.status().pages, "page") + " of keys and values";
}

// Null: --follow was not passed. `loaded`: the checkpoint that the service has.
std::unique_ptr<CheckpointFollower> follower(const ServeArguments& arguments,
                                             const std::string& loaded,
                                             const std::shared_ptr<ModelService>& service) {
  if (arguments.follow_seconds == 0) return nullptr;
  const std::string name = std::filesystem::path(loaded).filename().string();
  return std::make_unique<CheckpointFollower>(
      FollowOptions{
          .folder = arguments.checkpoint,
          .interval =
              std::chrono::milliseconds(static_cast<std::int64_t>(arguments.follow_seconds * 1e3)),
          .gate = arguments.gate,
          .report = [](const std::string& sentence) { std::cout << sentence << std::endl; }},
      service, step_of_folder_name(name).value());
}

// A single checkpoint, or another program's model, has no later one.
void require_folder_of_checkpoints(const ServeArguments& arguments) {
  if (arguments.follow_seconds == 0 || !list_checkpoints(arguments.checkpoint).empty()) return;
  throw UserError({.operation = "cli.serve",
                   .where = "--follow",
                   .what = "no later checkpoint can appear at this path",
                   .expected = "a folder that holds several: train.checkpoint_folder of a run",
                   .got = arguments.checkpoint,
                   .fix = "name the folder, or leave out --follow"});
}

// Writes a page instead of serving.
void run_measure(const ServeArguments& arguments) {
  if (!rendezvous_from_environment().alone())
    throw UserError({.operation = "cli.serve",
                     .where = "--measure",
                     .what = "the measured ranks are threads of one process",
                     .expected = "a program without strata launch",
                     .got = "several processes",
                     .fix = "run strata serve alone"});
  require_writable_file(arguments.measure, "--measure");
  ServiceLoad load = arguments.load;
  load.time = std::chrono::milliseconds(static_cast<std::int64_t>(arguments.measure_seconds * 1e3));
  const Measurement measurement =
      measure_settings({.checkpoint = arguments.checkpoint,
                        .overrides = arguments.overrides,
                        .weights = arguments.measured_weights,
                        .service = arguments.serving.options(),
                        .load = load,
                        .report = [](const std::string& line) { std::cout << line << std::endl; }});
  const FoundRow fastest =
      best_row(measurement, [](const ServiceRates& rates) { return rates.tokens_per_second; });
  std::cout << "fastest   " << fastest.setting->name << ':';
  for (const std::string& field : fastest.setting->overrides) std::cout << " --set " << field;
  if (fastest.setting->weights == WeightType::kInt8) std::cout << " --weights int8";
  std::cout << "\nwritten   " << arguments.measure << std::endl;
  write_file(arguments.measure, measurement_page(measurement, arguments.name));
}

void run_serve(ServeArguments arguments) {
  if (arguments.name.empty()) arguments.name = name_of_folder(arguments.checkpoint);
  if (!arguments.measure.empty()) return run_measure(arguments);
  const Signals signals;
  const auto start = std::chrono::steady_clock::now();
  const HttpListen address = listen_of(arguments);
  require_folder_of_checkpoints(arguments);
  const std::optional<InferenceListen> grpc_address = grpc_listen_of(arguments);
  const ServedModel served = served_model(recipe_of(arguments.checkpoint, arguments.overrides),
                                          arguments.checkpoint, arguments.serving.weights);
  tokenizer_of(served);  // refuses a model without one before it loads
  ServiceOptions options = arguments.serving.options();
  options.longest_wait =
      std::chrono::milliseconds(static_cast<std::int64_t>(arguments.longest_wait_seconds * 1e3));
  options.warn = [](const std::string& warning) { std::cerr << warning << std::endl; };
  const auto keys =
      arguments.keys.empty() ? nullptr : std::make_shared<const Keys>(Keys::read(arguments.keys));
  const auto service = std::make_shared<ModelService>(served, options);
  std::optional<ModelServers> servers;
  const auto listen = [&] {
    servers.emplace(address, grpc_address, open_model(arguments.name, served.tokenizer, service),
                    keys);
    std::cout << "serving   " << arguments.name << " at " << servers->addresses() << ": "
              << describe(served, *service) << std::endl;
    if (const std::string tiers = tiers_sentence(service->plan()); !tiers.empty())
      std::cout << "memory    " << tiers << std::endl;
  };
  // Other processes may have the rank that decides; only with it there is something to serve.
  const bool alone = rendezvous_from_environment().alone();
  if (alone) listen();
  signals.let_end_program();
  service->wait_until_ready();
  if (!service->decides()) {
    while (!service->ends_within(std::chrono::hours(1))) continue;
    return;
  }
  signals.hold();
  if (!alone) listen();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << "ready     after " << seconds.count() << " s" << std::endl;
  const std::unique_ptr<CheckpointFollower> following =
      follower(arguments, served.checkpoint, service);
  while (!signals.take())
    if (service->ends_within(kSignalPoll)) return;
  signals.let_end_program();
  if (following) following->stop();
  const ServiceStatus running = service->status();
  std::cout << "draining  " << count_of(running.running + running.waiting, "answer") << ", at most "
            << arguments.drain_seconds << " s; another signal ends the program at once"
            << std::endl;
  servers->drain(arguments.drain_seconds);
  const ServiceStatus status = service->status();
  std::cout << "stopped   " << status.prompt_tokens << " tokens of prompts, "
            << status.generated_tokens << " generated" << std::endl;
}

}  // namespace

void add_serve_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("serve", "answer OpenAI's and KServe's clients with a trained model");
  auto arguments = std::make_shared<ServeArguments>();
  const auto add = [&](const char* name, const char* what, auto& target, const char* help) {
    return verb->add_option(name, target, help)->type_name(what);
  };
  add("checkpoint", "", arguments->checkpoint,
      "checkpoint, the folder that holds several, a Hugging Face folder, or a GGUF file")
      ->required();
  add("--listen", "HOST:PORT", arguments->listen,
      "address to answer at; port 0 chooses a free port")
      ->capture_default_str();
  add("--grpc-listen", "HOST:PORT", arguments->grpc_listen,
      "address to answer KServe's clients at by gRPC; without it none; port 0 chooses a free port");
  add("--name", "NAME", arguments->name,
      "the model's name for clients; default: the folder's name");
  add("--keys", "FILE", arguments->keys, "YAML with the keys of clients and their limits");
  CLI::Option* certificate = add("--tls-certificate", "FILE", arguments->tls.certificate_file,
                                 "PEM: the certificate, then those between it and a root");
  CLI::Option* key = add("--tls-key", "FILE", arguments->tls.key_file, "PEM, without a password");
  certificate->needs(key);
  key->needs(certificate);
  arguments->serving.add_to(*verb);
  add("--waiting", "COUNT", arguments->serving.service.waiting,
      "requests that wait, at most; others get status 429")
      ->check(at_least(1))
      ->capture_default_str();
  add("--longest-wait", "SECONDS", arguments->longest_wait_seconds,
      "refuses a request that is predicted to wait longer, with status 429; 0: none")
      ->check(at_least(0))
      ->capture_default_str();
  add("--guesses", "COUNT", arguments->serving.service.guesses,
      "tokens that a pass guesses from repeated text and checks; the answers stay the same")
      ->check(between(0, 16))
      ->capture_default_str();
  add("--drain-timeout", "SECONDS", arguments->drain_seconds,
      "in which running requests may end after SIGTERM")
      ->check(at_least(0))
      ->capture_default_str();
  CLI::Option* follow = add("--follow", "SECONDS", arguments->follow_seconds,
                            "takes the newest checkpoint of the folder; looks for one so often")
                            ->check(at_least(0.1));
  add("--gate", "COMMAND", arguments->gate,
      "with --follow: a shell command that gets a checkpoint's path and refuses it by an exit code "
      "other than 0")
      ->needs(follow);
  CLI::Option* measure = add("--measure", "FILE", arguments->measure,
                             "serves nothing: measures meshes, precisions, 8-bit weights and "
                             "numbers of answers at once, "
                             "and writes a page of HTML")
                             ->check(refuse_empty_path);
  add("--measure-prompt", "TOKENS", arguments->load.prompt_tokens,
      "with --measure: of a prompt; default: 128, or what the context has room for")
      ->check(at_least(1))
      ->needs(measure);
  add("--measure-answer", "TOKENS", arguments->load.answer_tokens,
      "with --measure: of an answer; default: 64, or a third of the context")
      ->check(at_least(2))
      ->needs(measure);
  add("--measure-seconds", "SECONDS", arguments->measure_seconds,
      "with --measure: of each number; longer until as many answers ended as there are at once")
      ->check(at_least(0.1))
      ->capture_default_str()
      ->needs(measure);
  for (const char* option : {"--listen", "--grpc-listen", "--keys", "--follow"})
    measure->excludes(verb->get_option(option));
  add("--set", "FIELD=VALUE", arguments->overrides, "override a field of the recipe")
      ->allow_extra_args(false);
  verb->callback([arguments, verb] {
    for (const auto& [name, type] : all_named<WeightType>())
      if (verb->count("--weights") == 0 || type == arguments->serving.weights)
        arguments->measured_weights.push_back(type);
    run_serve(*arguments);
  });
}

}  // namespace strata
