// Serves the rows of one shard until a signal ends it, or queries a running server.
//
// A thread waits for signals, because a handler could not shut gRPC down. All threads that start
// later inherit the mask.
#include <pthread.h>
#include <csignal>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/base/user_text.h"
#include "strata/cli/arguments.h"
#include "strata/cli/recommender/row_answers.h"
#include "strata/cli/recommender/row_routes.h"
#include "strata/cli/recommender/verbs.h"
#include "strata/http/http_server.h"
#include "strata/rowserver/feature_file.h"
#include "strata/rowserver/row_servers.h"
#include "strata/rowserver/wire/embed_server.h"
#include "strata/rowserver/wire/grpc_client.h"
#include "strata/rowserver/wire/grpc_inspection.h"
#include "strata/run/recipe_file.h"
#include "strata/task/recommender/recommender_task.h"
#include "strata/transport/server_address.h"

namespace strata {
namespace {

struct EmbedServerArguments {
  ServerOptions options;
  std::string recipe, features, memory, log_limit, ask, metrics_listen;
  std::vector<std::string> overrides;
};

// Reads this shard's fields from the recipe.
void take_from_recipe(EmbedServerArguments& arguments) {
  const Recipe recipe = load_recipe(arguments.recipe, arguments.overrides);
  const RecommenderFields* fields = recommender_fields(recipe);
  if (fields == nullptr)
    throw UserError({.operation = "cli.embed_server",
                     .where = arguments.recipe,
                     .what = "this model has no embedding servers",
                     .expected = "model.kind dlrm, dcn or deep_wide",
                     .got = recipe.task->title(),
                     .fix = "name a recommender's recipe"});
  const EmbeddingOptions& embedding = fields->embedding;
  ServerOptions& options = arguments.options;
  const auto shards = static_cast<int>(embedding.servers.size());
  if (embedding.is_local() || options.shard < 0 || options.shard >= shards)
    throw UserError({.operation = "cli.embed_server",
                     .where = embedding.is_local() ? "embedding.servers" : "--shard",
                     .what = "the recipe has no server of this number",
                     .expected = "an address in embedding.servers for each shard",
                     .got = "shard " + std::to_string(options.shard) + " of " +
                            (embedding.is_local() ? "local rows" : std::to_string(shards)),
                     .fix = "set embedding.servers to the addresses, or --shard to one of them"});
  options.features = worker_options(*fields).tables;
  options.seed = static_cast<std::uint64_t>(recipe.train.seed);
  options.ranks = recipe.mesh.axes[Axis::kData];
  options.shards = shards;
  options.memory_bytes = embedding.memory.count;
  options.log_limit = embedding.log_limit.count;
  const std::string name = "shard-" + std::to_string(options.shard);
  if (!options.follow.empty()) {
    // A replica must not lose rows that its primary has on disk.
    if (!embedding.cold.empty() && options.cold_folder.empty())
      throw UserError({.operation = "cli.embed_server",
                       .where = "--cold",
                       .what = "a replica needs a folder of its own for cold rows",
                       .expected = "--cold FOLDER, as the recipe has embedding.cold",
                       .got = "none",
                       .fix = "give it one that no other server has"});
    return;
  }
  if (options.listen.empty()) options.listen = embedding.servers[options.shard];
  if (options.folder.empty() && !embedding.folder.empty())
    options.folder = embedding.folder + "/" + name;
  if (options.cold_folder.empty() && !embedding.cold.empty())
    options.cold_folder = embedding.cold + "/" + name;
}

constexpr const char* kDefaultAddress = "127.0.0.1:7001";

constexpr int kAskSeconds = 60;
// updates, or milliseconds, until pending updates are made durable together
constexpr double kMostSynced = 1e6;

// Reports long waits: a digest may wait until its version is trained.
std::string ask_patiently(const std::string& address, const ServerAccess& access,
                          const std::string& question) {
  std::future<std::string> answer = std::async(std::launch::async, [&] {
    return answer_to(question, *remote_inspection(address, access, {.seconds = kAskSeconds}));
  });
  if (answer.wait_for(std::chrono::seconds(2)) == std::future_status::timeout)
    std::cerr << "waiting   " << address << " has no answer to '" << question << "' yet; up to "
              << kAskSeconds << " s" << std::endl;
  return answer.get();
}

void print_answer(const EmbedServerArguments& arguments) {
  const std::string& address = arguments.options.listen;
  const ServerAccess& access = arguments.options.access;
  if (arguments.ask != "health") {
    const std::string answer = ask_patiently(address, access, arguments.ask);
    std::cout << answer << (answer.ends_with('\n') ? "" : "\n");
    return;
  }
  std::cout << grpc_health(address, access) << '\n';
  const auto lag = remote_inspection(address, access, {.seconds = kAskSeconds})->lag();
  if (lag) std::cout << json_of(*lag) << '\n';
}

sigset_t signals_waited_for() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR2}) sigaddset(&signals, signal);
  return signals;
}

// Shuts the server down at SIGINT and SIGTERM, which are blocked in every thread. The server must
// outlive this object.
class SignalWait {
 public:
  explicit SignalWait(EmbedServer& server)
      : waiting_([this, &server] {
          const sigset_t signals = signals_waited_for();
          // SIGUSR2 wakes this thread when the server has ended; if another process sent it, it is
          // ignored.
          for (int signal = SIGUSR2; signal == SIGUSR2 && !over_;) sigwait(&signals, &signal);
          if (!over_) server.shut_down();
        }) {}
  ~SignalWait() {
    over_ = true;
    pthread_kill(waiting_.native_handle(), SIGUSR2);
    waiting_.join();
  }
  SignalWait(const SignalWait&) = delete;
  SignalWait& operator=(const SignalWait&) = delete;

 private:
  std::atomic<bool> over_ = false;
  std::thread waiting_;
};

void run_embed_server(EmbedServerArguments arguments) {
  ServerAccess& access = arguments.options.access;
  access = {access.tls.on() ? access.tls : tls_from_environment(),
            access_from_environment().secret};
  if (!arguments.ask.empty() && arguments.options.listen.empty())
    arguments.options.listen = kDefaultAddress;
  if (!arguments.ask.empty()) return print_answer(arguments);
  ServerOptions& options = arguments.options;
  if (!arguments.recipe.empty()) take_from_recipe(arguments);
  if ((arguments.recipe.empty() && arguments.features.empty()) || options.folder.empty())
    throw UserError(
        {.operation = "cli.embed_server",
         .what = "a server needs the features of its rows and a folder",
         .expected = "a recipe, or --features FILE, and --folder FOLDER",
         .got = options.folder.empty() ? "no --folder" : "neither recipe nor --features",
         .fix = "give both, or --ask a server that runs"});
  if (!arguments.features.empty()) options.features = read_features(arguments.features);
  if (!options.follow.empty() && options.listen.empty())
    throw UserError({.operation = "cli.embed_server",
                     .where = "--follow",
                     .what = "a replica needs an address of its own",
                     .expected = "--listen HOST:PORT or unix:PATH",
                     .got = "none",
                     .fix = "give it one that is not the primary's"});
  if (options.listen.empty()) options.listen = kDefaultAddress;
  if (!arguments.log_limit.empty()) options.log_limit = parse_bytes(arguments.log_limit).count;
  if (!arguments.memory.empty()) options.memory_bytes = parse_bytes(arguments.memory).count;
  const sigset_t signals = signals_waited_for();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const ServerAddress metrics_address =
      arguments.metrics_listen.empty()
          ? ServerAddress{}
          : tcp_address(arguments.metrics_listen, "--metrics-listen", "127.0.0.1:9101");
  EmbedServer server(options);
  std::optional<HttpServer> http;
  if (!arguments.metrics_listen.empty())
    http.emplace(HttpListen{.host = metrics_address.host, .port = metrics_address.port},
                 row_routes(server));
  std::cout << "embed-server shard " << options.shard << " of " << options.shards << " at "
            << server.address() << ": " << server.recovery() << std::endl;
  if (http) std::cout << "metrics      http://" << http->address() << "/metrics" << std::endl;
  const SignalWait waiting(server);
  server.wait();
}

}  // namespace

void add_embed_server_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("embed-server", "serve one shard of a recommender's embedding rows");
  auto arguments = std::make_shared<EmbedServerArguments>();
  ServerOptions& options = arguments->options;
  options.listen.clear();
  const auto add = [&](const char* name, const char* what, auto& target, const std::string& help) {
    return verb->add_option(name, target, help)->type_name(what);
  };
  const auto path = [&](const char* name, const char* what, auto& target, const std::string& help) {
    return add(name, what, target, help)->check(refuse_empty_path);
  };
  path("recipe", "", arguments->recipe,
       "that trains: features, seed, ranks, shards, memory and addresses are its");
  add("--set", "FIELD=VALUE", arguments->overrides, "override a field of the recipe: a.b=c")
      ->allow_extra_args(false);
  path("--features", "FILE", arguments->features, "JSON with the features of the rows");
  add("--seed", "NUMBER", options.seed, "of first values")
      ->check(seed_number())
      ->capture_default_str();
  add("--shard", "NUMBER", options.shard, "which one this is, from 0")
      ->check(between(0, kMostShards - 1))
      ->capture_default_str();
  add("--shards", "COUNT", options.shards, "servers in all")
      ->check(between(1, kMostShards))
      ->capture_default_str();
  add("--ranks", "COUNT", options.ranks, "that train")
      ->check(between(1, kMostRanks))
      ->capture_default_str();
  add("--listen", "ADDRESS", options.listen,
      std::string("HOST:PORT or unix:PATH; with --ask: whom; else the recipe's, or ") +
          kDefaultAddress);
  add("--metrics-listen", "HOST:PORT", arguments->metrics_listen,
      "also answer HTTP there, without TLS or secret: GET /metrics (Prometheus), GET /health");
  path("--folder", "FOLDER", options.folder, "for snapshots and the log of updates");
  path("--from", "FOLDER", options.from,
       "those of another number of servers: an empty --folder starts with their rows");
  add("--memory", "BYTES", arguments->memory, "for rows: 2GiB; without it there is no limit");
  path("--cold", "FOLDER", options.cold_folder, "for rows that --memory has no room for");
  add("--sync-updates", "COUNT", options.sync.updates, "updates that wait to be durable together")
      ->check(between(1, kMostSynced))
      ->capture_default_str();
  add("--sync-milliseconds", "COUNT", options.sync.milliseconds, "that the first of them waits")
      ->check(between(1, kMostSynced))
      ->capture_default_str();
  add("--keep", "COUNT", options.kept_snapshots, "snapshots of checkpoints, 2 at least")
      ->check(at_least(2))
      ->capture_default_str();
  add("--log-limit", "BYTES", arguments->log_limit,
      "of the log: 4GiB; else the recipe's; beyond it the server makes a snapshot");
  add("--follow", "ADDRESS", options.follow,
      "be a replica of the server at HOST:PORT or unix:PATH: its rows, a little later");
  path("--tls-certificate", "FILE", options.access.tls.certificate,
       "PEM; without these three, what STRATA_TLS_CERTIFICATE names");
  path("--tls-key", "FILE", options.access.tls.key,
       "PEM; without these three, what STRATA_TLS_KEY names");
  path("--tls-authority", "FILE", options.access.tls.authority,
       "PEM with the certificates that trainers' have to be signed by");
  add("--ask", "QUESTION", arguments->ask,
      "ask a server that runs: metrics, sizes, digest [VERSION], row FEATURE ID, rows FEATURE "
      "ID..., hot "
      "FEATURE COUNT, lag, health");
  verb->callback([arguments] { run_embed_server(*arguments); });
}

}  // namespace strata
