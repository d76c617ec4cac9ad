// Servers as processes of their own, which are killed. The test program is the server, too: it is started
// again with STRATA_TEST_SERVER in its environment, since a fork after gRPC has begun would not do.
#include "strata/embed/wire/embed_server.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/embed/local_servers.h"
#include "strata/embed/rows/row_table_state.h"
#include "strata/embed/shard/map_row_store_test.h"
#include "strata/embed/wire/grpc_client.h"
#include "strata/embed/wire/remote_servers.h"

namespace strata {
namespace {

ServerOptions options_for_test(const std::string& folder, int shard, int shards, int ranks) {
  ServerOptions options;
  options.features = features_for_test();
  options.features[1].optimizer.kind = RowOptimizerKind::kAdam;
  options.seed = 3;
  options.shard = shard, options.shards = shards, options.ranks = ranks;
  options.folder = folder + "/rows" + std::to_string(shard);
  options.listen = "unix:" + folder + "/socket" + std::to_string(shard);
  return options;
}

// Of that shard's server.
ServerOptions replica_for_test(const std::string& folder, int shard, int shards, int ranks) {
  ServerOptions options = options_for_test(folder, shard, shards, ranks);
  options.follow = options.listen;
  options.folder = folder + "/replica" + std::to_string(shard);
  options.listen = "unix:" + folder + "/replica-socket" + std::to_string(shard);
  return options;
}

// Before main(): what was asked for by environment is all that this process does.
const bool kIsServer = [] {
  const char* asked = std::getenv("STRATA_TEST_SERVER");
  if (!asked) return false;
  const auto json = nlohmann::json::parse(asked);
  // Not by PR_SET_PDEATHSIG: that comes when the thread ends that started us.
  std::thread([parent = json["parent"].get<int>()] {
    while (::getppid() == parent) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::_exit(3);
  }).detach();
  try {
    const auto options = json["replica"] ? replica_for_test : options_for_test;
    ServerOptions mine = options(json["folder"], json["shard"], json["shards"], json["ranks"]);
    mine.log_limit = json["log_limit"];
    EmbedServer server(std::move(mine));
    std::cout << "server " << json["shard"] << ": " << server.recovery() << std::endl;
    server.wait();
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    ::_exit(exit_code(error));
  }
  ::_exit(0);
}();

class ServerProcesses {
 public:
  ServerProcesses(std::string folder, int shards, int ranks, bool replicas = false,
                  std::int64_t log_limit = 0)
      : folder_(std::move(folder)),
        ranks_(ranks),
        replicas_(replicas),
        log_limit_(log_limit),
        pids_(static_cast<std::size_t>(shards), -1) {
    for (int shard = 0; shard < shards; ++shard) start(shard);
  }
  ~ServerProcesses() {
    for (int shard = 0; shard < shards(); ++shard) kill(shard);
  }
  ServerProcesses(const ServerProcesses&) = delete;
  ServerProcesses& operator=(const ServerProcesses&) = delete;

  int shards() const { return static_cast<int>(pids_.size()); }
  std::string address(int shard) const {
    return (replicas_ ? replica_for_test : options_for_test)(folder_, shard, shards(), ranks_)
        .listen;
  }
  void start(int shard) {
    const std::string asked =
        "STRATA_TEST_SERVER=" + nlohmann::json{{"folder", folder_},    {"shard", shard},
                                               {"shards", shards()},   {"ranks", ranks_},
                                               {"replica", replicas_}, {"log_limit", log_limit_},
                                               {"parent", ::getpid()}}
                                    .dump();
    const pid_t pid = ::vfork();
    if (pid == 0) {
      const char* const argv[] = {"embed_test", nullptr};
      const char* const env[] = {asked.c_str(), nullptr};
      ::execve("/proc/self/exe", const_cast<char**>(argv), const_cast<char**>(env));
      ::_exit(127);
    }
    pids_[static_cast<std::size_t>(shard)] = pid;
  }
  void kill(int shard) {
    pid_t& pid = pids_[static_cast<std::size_t>(shard)];
    if (pid < 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }

 private:
  std::string folder_;
  int ranks_;
  bool replicas_;
  std::int64_t log_limit_;
  std::vector<pid_t> pids_;
};

RemoteServersOptions remote_options(const ServerProcesses& servers, int rank, int ranks) {
  RemoteServersOptions options;
  for (int shard = 0; shard < servers.shards(); ++shard)
    options.addresses.push_back(servers.address(shard));
  options.features = options_for_test("", 0, 1, 1).features;
  options.seed = 3;
  options.rank = rank, options.ranks = ranks;
  options.wire = {WirePrecision::kScaledFp16, WirePrecision::kScaledFp16};
  return options;
}

// Trains from version `from` to `to`; gradients are the rows that were read, so that a wrong row changes
// all later ones.
void train_or_throw(RowServers& servers, int rank, std::int64_t from, std::int64_t to,
                    std::int64_t ahead, const std::function<void(std::int64_t)>& at_step) {
  const auto reads_of = [&](std::int64_t step, std::int64_t version) {
    std::vector<FeatureRead> reads;
    for (const FeatureRows& rows : gradients_for_test(rank, step, 0))
      reads.push_back({.feature = rows.feature, .version = version, .ids = rows.ids});
    return reads;
  };
  std::deque<std::unique_ptr<PendingRows>> pending;
  std::int64_t sent = from;
  for (std::int64_t step = from + 1; step <= to; ++step) {
    while (sent < std::min(to, step + ahead - 1)) {
      ++sent;
      pending.push_back(servers.read(reads_of(sent, std::max(from, sent - ahead))));
    }
    std::vector<FeatureRows> rows = pending.front()->wait();
    pending.pop_front();
    const std::vector<FeatureRows> noise = gradients_for_test(rank, step, 0);
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t k = 0; k < rows[i].values.size(); ++k)
        rows[i].values[k] = rows[i].values[k] * 0.1f + noise[i].values[k];
    if (at_step) at_step(step);
    servers.update(step, std::move(rows), 1 / (1 + 0.01 * static_cast<double>(step)));
    if (step % 40 == 0) servers.save(step);
  }
  servers.await(to);
}

void train(RowServers& servers, int rank, std::int64_t from, std::int64_t to, std::int64_t ahead,
           const std::function<void(std::int64_t)>& at_step = {}) {
  try {
    train_or_throw(servers, rank, from, to, ahead, at_step);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
  }
}

// Of a run in one process that nothing disturbs.
std::uint64_t undisturbed_digest(int shards, int ranks, std::int64_t versions, std::int64_t ahead) {
  std::vector<std::unique_ptr<ShardState>> states;
  std::vector<std::shared_ptr<RowStore>> rows;
  for (int shard = 0; shard < shards; ++shard) {
    states.push_back(make_row_table_state(options_for_test("", 0, 1, 1).features, {.seed = 3}));
    rows.emplace_back(std::shared_ptr<void>(), &states.back()->rows());
  }
  LocalServersOptions options;
  options.ranks = ranks;
  options.wire = {WirePrecision::kScaledFp16, WirePrecision::kScaledFp16};
  options.save = [](int, std::int64_t) {};
  auto servers = make_local_servers(rows, options);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back(
        [&, rank] { train(*servers[static_cast<std::size_t>(rank)], rank, 0, versions, ahead); });
  for (std::thread& thread : threads) thread.join();
  std::uint64_t sum = 0;
  for (const auto& state : states) sum += digest_of(*state);
  return sum;
}

std::uint64_t digest_of(const ServerProcesses& servers, std::int64_t version) {
  std::uint64_t sum = 0;
  for (int shard = 0; shard < servers.shards(); ++shard) {
    const auto answer = nlohmann::json::parse(ask_server(servers.address(shard), {}, "digest"));
    EXPECT_EQ(answer["version"], version);
    sum += std::stoull(answer["digest"].get<std::string>(), nullptr, 16);
  }
  return sum;
}

int kills_wanted() {
  const char* kills = std::getenv("STRATA_KILLS");
  return kills ? std::atoi(kills) : 6;
}

TEST(EmbedServer, KilledAtRandomMomentsLosesAndDoublesNothing) {
  constexpr int kShards = 2, kRanks = 2;
  const int kills = kills_wanted();
  const std::int64_t versions = 60 + 12 * kills;
  for (const std::int64_t ahead : {1, 5}) {
    const ScratchFolder scratch;
    ServerProcesses servers(scratch.path(), kShards, kRanks);
    std::atomic<int> killed = 0;
    std::atomic<bool> over = false;
    double longest = 0;
    std::thread killer([&] {
      std::mt19937_64 random(static_cast<std::uint64_t>(ahead));
      while (!over && killed < kills) {
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 250));
        const int shard = static_cast<int>(random() % kShards);
        const auto began = std::chrono::steady_clock::now();
        servers.kill(shard);
        servers.start(shard);
        while (true) {
          try {
            ask_server(servers.address(shard), {}, "metrics");
            break;
          } catch (const SystemError&) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          }
        }
        longest = std::max(
            longest,
            std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
        ++killed;
      }
    });
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        const auto mine = make_remote_servers(remote_options(servers, rank, kRanks));
        train(*mine, rank, 0, versions, ahead, [&](std::int64_t step) {
          // Not faster than kills come, so that they come while it trains.
          while (killed < kills && step > 60 + 12 * killed)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
      });
    for (std::thread& thread : threads) thread.join();
    over = true;
    killer.join();
    EXPECT_EQ(killed, kills);
    EXPECT_EQ(digest_of(servers, versions), undisturbed_digest(kShards, kRanks, versions, ahead));
    std::cout << killed << " kills at staleness " << ahead << ", longest recovery " << longest
              << " s\n";
  }
}

// Until a server answers; how long that took.
double await_answer(const std::string& address) {
  const auto began = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  while (seconds() < 60) {
    try {
      ask_server(address, {}, "lag");
      return seconds();
    } catch (const SystemError&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  ADD_FAILURE() << address << " does not answer";
  return seconds();
}

nlohmann::json ask_json(const std::string& address, const std::string& question) {
  return nlohmann::json::parse(ask_server(address, {}, question));
}

TEST(EmbedServer, ReplicasFollowWhoeverIsKilled) {
  constexpr int kShards = 2;
  const int kills = std::max(kills_wanted(), 6);
  const std::int64_t versions = 60 + 12 * kills;
  const ScratchFolder scratch;
  // Limits so low that replicas that were away find no log.
  ServerProcesses primaries(scratch.path(), kShards, 1, false, 40 << 10);
  ServerProcesses replicas(scratch.path(), kShards, 1, true, 40 << 10);
  for (int shard = 0; shard < kShards; ++shard) await_answer(replicas.address(shard));
  std::atomic<int> killed = 0;
  double longest = 0;
  std::thread killer([&] {
    std::mt19937_64 random(7);
    for (; killed < kills; ++killed) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 250));
      const int shard = static_cast<int>(random() % kShards);
      ServerProcesses& which = random() % 2 == 0 ? primaries : replicas;
      which.kill(shard);
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 100));
      which.start(shard);
      longest = std::max(longest, await_answer(which.address(shard)));
    }
  });
  {
    const auto mine = make_remote_servers(remote_options(primaries, 0, 1));
    train(*mine, 0, 0, versions, 3, [&](std::int64_t step) {
      while (killed < kills && step > 60 + 12 * killed)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  killer.join();
  for (int shard = 0; shard < kShards; ++shard) {
    const auto theirs = ask_json(primaries.address(shard), "digest");
    EXPECT_EQ(theirs["version"], versions);
    // Waits for that version.
    EXPECT_EQ(ask_json(replicas.address(shard), "digest " + std::to_string(versions)), theirs);
    EXPECT_EQ(ask_json(replicas.address(shard), "lag")["version"], versions);
    EXPECT_EQ(grpc_health(replicas.address(shard), {}), "SERVING");
    const std::string metrics = ask_server(replicas.address(shard), {}, "metrics");
    EXPECT_NE(metrics.find("strata_embed_lag_updates 0\n"), std::string::npos) << metrics;
    EXPECT_NE(metrics.find("strata_embed_different_digests_total 0\n"), std::string::npos);
    std::string rows = "rows user";
    for (const std::uint64_t id : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3},
                                   std::uint64_t{4}, ~std::uint64_t{0}})
      if (shard_of(0, id, kShards) == shard) rows += " " + std::to_string(id);
    EXPECT_EQ(ask_json(replicas.address(shard), rows), ask_json(primaries.address(shard), rows));
  }
  EXPECT_EQ(digest_of(replicas, versions), undisturbed_digest(kShards, 1, versions, 3));
  std::cout << killed << " kills of servers and replicas, longest recovery " << longest << " s\n";
}

TEST(EmbedServer, AReplicaTakesNoUpdatesAndFollowsOnlyItsOwnKind) {
  const ScratchFolder scratch;
  EmbedServer primary(options_for_test(scratch.path(), 0, 1, 1));
  EmbedServer replica(replica_for_test(scratch.path(), 0, 1, 1));
  RemoteServersOptions remote;
  remote.addresses = {replica.address()};
  remote.features = options_for_test("", 0, 1, 1).features, remote.seed = 3;
  try {
    make_remote_servers(remote)->await(0);
    FAIL() << "a replica was trained";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("replica"), std::string::npos) << error.what();
  }
  ServerOptions other = replica_for_test(scratch.path(), 0, 1, 1);
  other.folder += "-other", other.listen += "-other", other.seed = 4;
  EmbedServer stranger(other);
  EXPECT_THROW(stranger.wait(), UserError);
  other.kept_snapshots = 1;
  EXPECT_THROW(EmbedServer{other}, UserError);
}

TEST(EmbedServer, ATrainerThatIsGoneIsFollowedByOneThatResumes) {
  const ScratchFolder scratch;
  ServerProcesses servers(scratch.path(), 2, 1);
  {
    const auto first = make_remote_servers(remote_options(servers, 0, 1));
    train(*first, 0, 0, 57, 1);
  }
  RemoteServersOptions options = remote_options(servers, 0, 1);
  options.run = 2, options.version = 40;
  const auto second = make_remote_servers(options);
  train(*second, 0, 40, 70, 1);
  EXPECT_EQ(digest_of(servers, 70), undisturbed_digest(2, 1, 70, 1));
}

TEST(EmbedServer, TellsPeopleAboutItsRows) {
  const ScratchFolder scratch;
  ServerOptions options = options_for_test(scratch.path(), 0, 1, 1);
  options.listen = "127.0.0.1:0";
  EmbedServer server(options);
  RemoteServersOptions remote;
  remote.addresses = {server.address()};
  remote.features = options.features, remote.seed = 3;
  const auto mine = make_remote_servers(remote);
  train(*mine, 0, 0, 12, 3);
  const std::string metrics = ask_server(server.address(), {}, "metrics");
  for (const char* line : {"strata_embed_version 12\n", "strata_embed_updates_total 12\n",
                           "strata_embed_staleness_count{feature=\"user\"} 12\n",
                           "strata_embed_staleness_bucket{feature=\"word\",le=\"1\"} 1\n",
                           "strata_embed_staleness_bucket{feature=\"word\",le=\"3\"} 12\n",
                           "strata_embed_connected_ranks 1\n"})
    EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics;
  const std::uint64_t id = gradients_for_test(0, 12, 0)[0].ids[0];
  const auto row =
      nlohmann::json::parse(ask_server(server.address(), {}, "row user " + std::to_string(id)));
  EXPECT_TRUE(row["there"]);
  EXPECT_EQ(row["last_update"], 12);
  EXPECT_EQ(row["value"].size(), 4u);
  EXPECT_FALSE(nlohmann::json::parse(ask_server(server.address(), {}, "row user 12345"))["there"]);
  const auto hot = nlohmann::json::parse(ask_server(server.address(), {}, "hot word 3"));
  ASSERT_EQ(hot["ids"].size(), 3u);
  EXPECT_GE(hot["ids"][0]["updates"], hot["ids"][2]["updates"]);
  EXPECT_GE(hot["updates"], hot["ids"][0]["updates"]);
  EXPECT_THROW(ask_server(server.address(), {}, "row usr 1"), UserError);
  EXPECT_THROW(ask_server(server.address(), {}, "digest 3"), UserError);  // gone
  EXPECT_EQ(grpc_health(server.address(), {}), "SERVING");
}

TEST(EmbedServer, NamesTheVersionThatItHasWhereALaterOneIsAskedFor) {
  const ScratchFolder scratch;
  EmbedServer server(options_for_test(scratch.path(), 0, 1, 1));
  RemoteServersOptions remote;
  remote.addresses = {server.address()};
  remote.features = options_for_test("", 0, 1, 1).features, remote.seed = 3;
  {
    const auto mine = make_remote_servers(remote);
    train(*mine, 0, 0, 12, 3);
  }
  try {
    server.ask("digest 9999");
    ADD_FAILURE() << "answered";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().expected, "version 12") << error.what();
  }
}

TEST(EmbedServer, AnswersForItsOwnIdsAlone) {
  const ScratchFolder scratch;
  EmbedServer server(options_for_test(scratch.path(), 0, 2, 1));
  std::uint64_t mine = 0, other = 0;
  while (shard_of(0, mine, 2) != 0) ++mine;
  while (shard_of(0, other, 2) != 1) ++other;
  const auto asked = [&](std::uint64_t id) { return "rows user " + std::to_string(id); };
  EXPECT_EQ(nlohmann::json::parse(server.ask(asked(mine)))["rows"].size(), 1u);
  for (const std::string& question : {asked(other), asked(mine) + " " + std::to_string(other),
                                      "row user " + std::to_string(other)})
    try {
      server.ask(question);
      ADD_FAILURE() << question;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("shard 1"), std::string::npos) << error.what();
    }
  std::string many = "rows user";
  for (int i = 0; i < 10'000; ++i) many += " " + std::to_string(mine);
  EXPECT_EQ(nlohmann::json::parse(server.ask(many))["rows"].size(), 10'000u);
  EXPECT_THROW(server.ask(many + " " + std::to_string(mine)), UserError);
}

TEST(EmbedServer, AddressesThatCannotBe) {
  const ScratchFolder scratch;
  ServerOptions options = options_for_test(scratch.path(), 0, 1, 1);
  options.listen = "0.0.0.0:0";  // beyond the machine, without TLS
  EXPECT_THROW(EmbedServer server(options), UserError);
  for (const char* none : {"nonsense", "host:", ":7001", "host:port", "unix:"}) try {
      ask_server(none, {}, "metrics");
      ADD_FAILURE() << none;
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().expected, "HOST:PORT or unix:PATH") << error.what();
    }
  options.listen = "127.0.0.1:0";
  const EmbedServer server(options);
  ServerOptions second = options_for_test(scratch.path(), 0, 1, 1);
  second.folder += "b";
  second.listen = server.address();
  EXPECT_THROW(EmbedServer taken(second), UserError);
}

ServerOptions another_for_test(const std::string& folder, const std::string& listen) {
  ServerOptions options = options_for_test(folder, 0, 1, 1);
  options.folder += "-another";
  options.listen = listen;
  return options;
}

std::vector<std::string> errors_of_a_taken_address(const std::vector<std::string>& addresses,
                                                   const std::string& folder) {
  std::vector<std::string> errors;
  for (const std::string& address : addresses) try {
      const EmbedServer taken(another_for_test(folder, address));
    } catch (const UserError& error) {
      const std::string text = error.what();
      errors.push_back(text.substr(text.find("the server cannot")));
    }
  return errors;
}

TEST(EmbedServer, ATakenSocketIsRefusedAsATakenPortIs) {
  const ScratchFolder scratch;
  ServerOptions tcp = options_for_test(scratch.path(), 1, 2, 1);
  tcp.listen = "127.0.0.1:0";
  const EmbedServer one(options_for_test(scratch.path(), 0, 1, 1)), two(tcp);
  const auto errors = errors_of_a_taken_address({two.address(), one.address()}, scratch.path());
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_EQ(grpc_health(one.address(), {}), "SERVING");
}

TEST(EmbedServer, ASocketWithoutAServerIsTakenOver) {
  const ScratchFolder scratch;
  ServerProcesses servers(scratch.path(), 1, 1);
  const std::string path = servers.address(0).substr(5);
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  servers.kill(0);
  ASSERT_TRUE(std::filesystem::exists(path));
  {
    const EmbedServer server(another_for_test(scratch.path(), servers.address(0)));
    EXPECT_EQ(grpc_health(server.address(), {}), "SERVING");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(EmbedServer, RemovesItsOwnSocketAlone) {
  const ScratchFolder scratch;
  auto first = std::make_unique<EmbedServer>(options_for_test(scratch.path(), 0, 1, 1));
  const std::string address = first->address();
  std::filesystem::remove(address.substr(5));
  const EmbedServer second(another_for_test(scratch.path(), address));
  first.reset();
  EXPECT_EQ(grpc_health(address, {}), "SERVING");
}

TEST(EmbedServer, AFileAtTheAddressStays) {
  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/text";
  std::ofstream(path) << "mine";
  EXPECT_EQ(errors_of_a_taken_address({"unix:" + path}, scratch.path()).size(), 1u);
  EXPECT_EQ(std::filesystem::file_size(path), 4u);
}

// Authority, and a certificate of it for localhost; another authority with one.
void make_certificates(const std::string& folder) {
  const std::string script =
      "cd " + folder +
      " && for a in one two; do "
      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$a -keyout $a-ca.key -out "
      "$a-ca.pem && "
      "openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout $a.key -out $a.csr && "
      "printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' > ext && "
      "openssl x509 -req -in $a.csr -CA $a-ca.pem -CAkey $a-ca.key -CAcreateserial -days 2 "
      "-extfile ext "
      "-out $a.pem; done >/dev/null 2>&1";
  ASSERT_EQ(std::system(script.c_str()), 0);
}

TEST(EmbedServer, BothSidesShowCertificates) {
  if (std::system("openssl version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no openssl here";
  const ScratchFolder scratch;
  make_certificates(scratch.path());
  const auto files = [&](const std::string& mine, const std::string& authority) {
    return TlsFiles{.certificate = scratch.path(mine + ".pem"),
                    .key = scratch.path(mine + ".key"),
                    .authority = scratch.path(authority + "-ca.pem")};
  };
  ServerOptions options = options_for_test(scratch.path(), 0, 1, 1);
  options.listen = "127.0.0.1:0";
  options.tls = files("one", "one");
  EmbedServer server(options);
  const std::string address =
      "localhost:" + server.address().substr(server.address().rfind(':') + 1);
  RemoteServersOptions remote;
  remote.addresses = {address};
  remote.features = options.features, remote.seed = 3;
  remote.tls = files("one", "one");
  remote.deadline = std::chrono::milliseconds(3000);
  make_remote_servers(remote)->await(0);
  remote.run = 2, remote.tls = files("one", "two");  // does not know the server's authority
  EXPECT_THROW(make_remote_servers(remote)->await(0), UserError);
  remote.run = 3, remote.tls = files("two", "one");  // shows a certificate of another authority
  EXPECT_THROW(make_remote_servers(remote)->await(0), Error);
  remote.run = 4, remote.tls = {};
  EXPECT_THROW(make_remote_servers(remote)->await(0), Error);
  remote.tls = {.certificate = "nowhere.pem", .key = "nowhere.key", .authority = "nowhere.pem"};
  EXPECT_THROW(make_remote_servers(remote), UserError);
}

}  // namespace
}  // namespace strata
