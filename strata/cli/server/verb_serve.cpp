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

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/base/user_text.h"
#include "strata/cli/arguments.h"
#include "strata/cli/served_recipe.h"
#include "strata/cli/verbs.h"
#include "strata/cli/version.h"
#include "strata/http/http_server.h"
#include "strata/openai/keys.h"
#include "strata/openai/model.h"
#include "strata/openai/routes.h"
#include "strata/serve/model_service.h"
#include "strata/transport/rendezvous.h"
#include "strata/transport/server_address.h"

namespace strata {
namespace {

constexpr std::chrono::milliseconds kSignalPoll{100};

struct ServeArguments {
  std::string checkpoint, name, listen = "127.0.0.1:8000", keys, cache = "1GiB";
  std::vector<std::string> overrides;
  HttpTls tls;
  ServiceOptions service;
  double drain_seconds = 30;
};

class SignalWait {
 public:
  /// Blocks the signals in this thread and all that it starts.
  SignalWait() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  /// Whether a signal came within the time.
  bool wait(std::chrono::milliseconds time) const {
    const timespec limit{.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
    return sigtimedwait(&signals_, nullptr, &limit) > 0;
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
  HttpListen listen{.limits = {.connections = 1024,
                               .body_bytes = std::size_t{8} << 20,
                               .request = std::chrono::minutes(1),
                               .answer = std::chrono::minutes(1)}};
  const ServerAddress address = parse_server_address(arguments.listen, FreePort::kYes);
  if (address.is_socket())
    throw UserError({.operation = "cli.serve",
                     .where = "--listen",
                     .what = "the server answers over TCP only",
                     .expected = "HOST:PORT",
                     .got = arguments.listen,
                     .fix = "pass --listen 127.0.0.1:8000"});
  listen.host = address.host;
  listen.port = address.port;
  if (!arguments.tls.certificate_file.empty()) listen.tls = arguments.tls;
  return listen;
}

std::string describe(const ServedModel& served, const ModelService& service) {
  const ServiceStatus status = service.status();
  return std::string(name_of(served.model.kind)) + ", context " +
         std::to_string(service.context()) + ", " + std::to_string(served.mesh.size()) +
         (served.mesh.size() == 1 ? " rank, " : " ranks, ") + std::to_string(status.pages) +
         " pages of keys and values";
}

// Lets requests end, for a bounded time.
void drain(HttpServer& http, double seconds) {
  std::cout << "draining  " << http.requests() << " requests, at most " << seconds << " s"
            << std::endl;
  http.stop_accepting();
  http.wait_idle(std::chrono::steady_clock::now() +
                 std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3)));
}

void run_serve(ServeArguments arguments) {
  const SignalWait signals;
  const auto start = std::chrono::steady_clock::now();
  const ServedModel served =
      served_model(recipe_of(arguments.checkpoint, arguments.overrides), arguments.checkpoint);
  arguments.service.cache_bytes = parse_bytes(arguments.cache).count;
  arguments.service.warn = [](const std::string& warning) { std::cerr << warning << std::endl; };
  require_tokenizer(served);
  if (arguments.name.empty()) arguments.name = name_of_folder(arguments.checkpoint);
  const auto keys =
      arguments.keys.empty() ? nullptr : std::make_shared<const Keys>(Keys::read(arguments.keys));
  const auto service = std::make_shared<ModelService>(served, arguments.service);
  std::optional<HttpServer> http;
  const auto listen = [&] {
    http.emplace(openai_listen(listen_of(arguments), keys),
                 openai_routes({.models = {open_model(arguments.name, served.tokenizer, service)},
                                .keys = keys,
                                .version = kVersion}));
    std::cout << "serving   " << arguments.name << " at http"
              << (arguments.tls.certificate_file.empty() ? "" : "s") << "://" << http->address()
              << ": " << describe(served, *service) << std::endl;
  };
  // Other processes may have the rank that decides; only with it there is something to serve.
  const bool alone = rendezvous_from_environment().processes == 1;
  if (alone) listen();
  service->wait_until_ready();
  if (!service->decides()) return service->wait();
  if (!alone) listen();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << "ready     after " << seconds.count() << " s" << std::endl;
  while (!signals.wait(kSignalPoll))
    if (!service->status().ready) return service->wait();  // throws what ended the ranks
  drain(*http, arguments.drain_seconds);
  const ServiceStatus status = service->status();
  std::cout << "stopped   " << status.prompt_tokens << " tokens of prompts, "
            << status.generated_tokens << " generated" << std::endl;
}

}  // namespace

void add_serve_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("serve", "answer OpenAI's clients with a trained model");
  auto arguments = std::make_shared<ServeArguments>();
  const auto add = [&](const char* name, const char* what, auto& target, const char* help) {
    return verb->add_option(name, target, help)->type_name(what);
  };
  add("checkpoint", "", arguments->checkpoint,
      "checkpoint, the folder that holds several, or a Hugging Face folder")
      ->required();
  add("--listen", "HOST:PORT", arguments->listen, "where; port 0: any free one")
      ->capture_default_str();
  add("--name", "NAME", arguments->name, "of the model for clients; else that of the folder");
  add("--keys", "FILE", arguments->keys, "YAML with the keys of clients and their limits");
  CLI::Option* certificate = add("--tls-certificate", "FILE", arguments->tls.certificate_file,
                                 "PEM: the certificate, then those between it and a root");
  CLI::Option* key = add("--tls-key", "FILE", arguments->tls.key_file, "PEM, without a password");
  certificate->needs(key);
  key->needs(certificate);
  add("--cache", "BYTES", arguments->cache, "memory for keys and values, on each rank")
      ->capture_default_str();
  add("--context", "TOKENS", arguments->service.context,
      "of the longest prompt with its answer; else the model's")
      ->check(at_least(1));
  add("--sequences", "COUNT", arguments->service.sequences, "answers that run at once, at most")
      ->check(at_least(1))
      ->capture_default_str();
  add("--pass-tokens", "COUNT", arguments->service.pass_tokens, "tokens of a pass, at most")
      ->check(at_least(1))
      ->capture_default_str();
  add("--waiting", "COUNT", arguments->service.waiting,
      "requests that wait, at most; others get status 429")
      ->check(at_least(1))
      ->capture_default_str();
  add("--guesses", "COUNT", arguments->service.guesses,
      "tokens that a pass guesses from repeated text and checks; the answers stay the same")
      ->check(between(0, 16))
      ->capture_default_str();
  add("--drain-timeout", "SECONDS", arguments->drain_seconds,
      "that requests have to end after SIGTERM")
      ->check(at_least(0))
      ->capture_default_str();
  add("--set", "FIELD=VALUE", arguments->overrides, "override a field of the recipe")
      ->allow_extra_args(false);
  verb->callback([arguments] { run_serve(*arguments); });
}

}  // namespace strata
