// Serves a checkpoint over HTTP and gRPC until a signal ends it. The ServingKind of
// the checkpoint decides what answers.
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
#include "strata/checkpoint/folder.h"
#include "strata/cli/arguments.h"
#include "strata/cli/server/checkpoint_follower.h"
#include "strata/cli/server/count_text.h"
#include "strata/cli/server/model_servers.h"
#include "strata/cli/server/serving_kinds.h"
#include "strata/cli/verbs.h"
#include "strata/openai/keys.h"
#include "strata/transport/rendezvous.h"
#include "strata/transport/server_address.h"

namespace strata {
namespace {

constexpr std::chrono::milliseconds kSignalPoll{100};

struct ServeArguments {
  ServeRequest request;
  std::string listen = "127.0.0.1:8000", grpc_listen, keys;
  HttpTls tls;
  double drain_seconds = 30;
  double follow_seconds = 0;
  std::string gate;
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

// Null: --follow was not passed.
std::unique_ptr<CheckpointFollower> follower(const ServeArguments& arguments,
                                             const std::shared_ptr<ServedCheckpoint>& served) {
  if (arguments.follow_seconds == 0) return nullptr;
  const std::string name = std::filesystem::path(served->checkpoint()).filename().string();
  return std::make_unique<CheckpointFollower>(
      FollowOptions{
          .folder = arguments.request.checkpoint,
          .interval =
              std::chrono::milliseconds(static_cast<std::int64_t>(arguments.follow_seconds * 1e3)),
          .gate = arguments.gate,
          .report = [](const std::string& sentence) { std::cout << sentence << std::endl; }},
      served, step_of_folder_name(name).value());
}

// A single checkpoint, or another program's model, has no later one.
void require_folder_of_checkpoints(const ServeArguments& arguments) {
  const std::string& path = arguments.request.checkpoint;
  if (arguments.follow_seconds == 0 || !list_checkpoints(path).empty()) return;
  throw UserError({.operation = "cli.serve",
                   .where = "--follow",
                   .what = "no later checkpoint can appear at this path",
                   .expected = "a folder that holds several: train.checkpoint_folder of a run",
                   .got = path,
                   .fix = "name the folder, or leave out --follow"});
}

void run_serve(ServeArguments arguments, const ServingKinds& kinds) {
  ServeRequest& request = arguments.request;
  if (request.name.empty()) request.name = name_of_folder(request.checkpoint);
  ServingKind& kind = kinds.of(request.checkpoint);
  kinds.refuse_other_options(kind);
  if (kind.instead_of_serving(request)) return;
  const Signals signals;
  const auto start = std::chrono::steady_clock::now();
  const HttpListen address = listen_of(arguments);
  require_folder_of_checkpoints(arguments);
  const std::optional<InferenceListen> grpc_address = grpc_listen_of(arguments);
  if (!arguments.keys.empty())
    request.keys = std::make_shared<const Keys>(Keys::read(arguments.keys));
  const std::shared_ptr<ServedCheckpoint> served = kind.open(request);
  std::optional<ModelServers> servers;
  const auto listen = [&] {
    servers.emplace(address, grpc_address, served->routes(), served->models(), request.keys);
    std::cout << "serving   " << request.name << " at " << servers->addresses() << ": "
              << served->description() << std::endl;
    if (const std::string memory = served->memory(); !memory.empty())
      std::cout << "memory    " << memory << std::endl;
  };
  // Other processes may have the rank that decides; only with it there is something to serve.
  const bool alone = rendezvous_from_environment().alone();
  if (alone) listen();
  signals.let_end_program();
  served->wait_until_ready();
  if (!served->answers()) {
    while (!served->ends_within(std::chrono::hours(1))) continue;
    return;
  }
  signals.hold();
  if (!alone) listen();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << "ready     after " << seconds.count() << " s" << std::endl;
  const std::unique_ptr<CheckpointFollower> following = follower(arguments, served);
  while (!signals.take())
    if (served->ends_within(kSignalPoll)) return;
  signals.let_end_program();
  if (following) following->stop();
  std::cout << "draining  " << count_of(served->running(), "answer") << ", at most "
            << arguments.drain_seconds << " s; another signal ends the program at once"
            << std::endl;
  servers->drain(arguments.drain_seconds);
  std::cout << "stopped   " << served->totals() << std::endl;
}

}  // namespace

void add_serve_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("serve", "answer OpenAI's and KServe's clients with a trained model");
  auto arguments = std::make_shared<ServeArguments>();
  const auto add = [&](const char* name, const char* what, auto& target, const char* help) {
    return verb->add_option(name, target, help)->type_name(what);
  };
  add("checkpoint", "", arguments->request.checkpoint,
      "checkpoint, the folder that holds several, a Hugging Face folder, or a GGUF file")
      ->required();
  add("--listen", "HOST:PORT", arguments->listen,
      "address to answer at; port 0 chooses a free port")
      ->capture_default_str();
  add("--grpc-listen", "HOST:PORT", arguments->grpc_listen,
      "address to answer KServe's clients at by gRPC; without it none; port 0 chooses a free port");
  add("--name", "NAME", arguments->request.name,
      "the model's name for clients; default: the folder's name");
  add("--keys", "FILE", arguments->keys, "YAML with the keys of clients and their limits");
  CLI::Option* certificate = add("--tls-certificate", "FILE", arguments->tls.certificate_file,
                                 "PEM: the certificate, then those between it and a root");
  CLI::Option* key = add("--tls-key", "FILE", arguments->tls.key_file, "PEM, without a password");
  certificate->needs(key);
  key->needs(certificate);
  add("--waiting", "COUNT", arguments->request.waiting,
      "requests that wait, at most; others get status 429")
      ->check(at_least(1))
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
  add("--set", "FIELD=VALUE", arguments->request.overrides, "override a field of the recipe")
      ->allow_extra_args(false);
  const auto kinds = std::make_shared<const ServingKinds>(*verb);
  verb->callback([arguments, kinds] { run_serve(*arguments, *kinds); });
}

}  // namespace strata
