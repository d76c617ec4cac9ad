// Servers as processes of their own, which are killed, and ranks that train with them. The test
// program is the server, too: it is started again with STRATA_TEST_SERVER in its environment,
// because gRPC does not support fork() after its start.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "strata/base/errors.h"
#include "strata/rowserver/shard/map_row_store_test.h"
#include "strata/rowserver/wire/embed_server.h"
#include "strata/rowserver/wire/remote_servers.h"

namespace strata {

inline ServerOptions options_for_test(const std::string& folder, int shard, int shards, int ranks) {
  ServerOptions options;
  options.features = features_for_test();
  options.features[1].optimizer.kind = RowOptimizerKind::kAdam;
  options.seed = 3;
  options.shard = shard, options.shards = shards, options.ranks = ranks;
  options.folder = folder + "/rows" + std::to_string(shard);
  options.listen = "unix:" + folder + "/socket" + std::to_string(shard);
  return options;
}

// The address of that shard's server.
inline ServerOptions replica_for_test(const std::string& folder, int shard, int shards, int ranks) {
  ServerOptions options = options_for_test(folder, shard, shards, ranks);
  options.follow = options.listen;
  options.folder = folder + "/replica" + std::to_string(shard);
  options.listen = "unix:" + folder + "/replica-socket" + std::to_string(shard);
  return options;
}

// Before main(): a process with this variable is a server and runs no test.
inline const bool kIsServer = [] {
  const char* setup = std::getenv("STRATA_TEST_SERVER");
  if (!setup) return false;
  const auto json = nlohmann::json::parse(setup);
  // Not by PR_SET_PDEATHSIG, which fires when the thread that started this process ends.
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
    const std::string setup =
        "STRATA_TEST_SERVER=" + nlohmann::json{{"folder", folder_},    {"shard", shard},
                                               {"shards", shards()},   {"ranks", ranks_},
                                               {"replica", replicas_}, {"log_limit", log_limit_},
                                               {"parent", ::getpid()}}
                                    .dump();
    const auto variable = [](const std::string& name) {
      const char* value = std::getenv(name.c_str());
      return name + "=" + (value ? value : "");
    };
    const std::string home = variable("HOME"), config = variable("XDG_CONFIG_HOME");
    const pid_t pid = ::vfork();
    if (pid == 0) {
      const char* const argv[] = {"embed_test", nullptr};
      // The same user: these variables name the folder of the user's secret.
      const char* const env[] = {setup.c_str(), home.c_str(), config.c_str(), nullptr};
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

// Trains from version `from` to `to`; gradients are the rows that were read, so that a wrong row
// changes all later ones.
inline void train_or_throw(RowServers& servers, int rank, std::int64_t from, std::int64_t to,
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

inline void train(RowServers& servers, int rank, std::int64_t from, std::int64_t to,
                  std::int64_t ahead, const std::function<void(std::int64_t)>& at_step = {}) {
  try {
    train_or_throw(servers, rank, from, to, ahead, at_step);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
  }
}

}  // namespace strata
