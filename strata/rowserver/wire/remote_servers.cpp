#include "strata/rowserver/wire/remote_servers.h"

#include <chrono>
#include <stop_token>
#include <thread>
#include <utility>

#include "strata/base/errors.h"
#include "strata/rowserver/feature_changes.h"
#include "strata/rowserver/wire/grpc_client.h"
#include "strata/rowserver/wire/grpc_inspection.h"
#include "strata/rowserver/wire/remote_channel.h"

namespace strata {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // between two looks at the request to stop

// Polls for the request to stop, because a signal handler cannot wake a thread.
class StoppableServers : public RowServers {
 public:
  StoppableServers(std::unique_ptr<RowServers> servers, std::vector<RemoteChannel*> channels,
                   const std::atomic<bool>& stop)
      : servers_(std::move(servers)),
        channels_(std::move(channels)),
        stop_(stop),
        watching_([this](const std::stop_token& ended) { watch(ended); }) {}

  std::unique_ptr<PendingRows> read(std::vector<FeatureRead> features) override {
    return servers_->read(std::move(features));
  }
  void update(std::int64_t version, std::vector<FeatureRows> gradients,
              double rate_factor) override {
    servers_->update(version, std::move(gradients), rate_factor);
  }
  void await(std::int64_t version) override { servers_->await(version); }
  void save(std::int64_t version) override { servers_->save(version); }

 private:
  void watch(const std::stop_token& ended) {
    for (; !ended.stop_requested(); std::this_thread::sleep_for(kLook))
      if (stop_)
        for (RemoteChannel* channel : channels_) channel->stop_waiting();
  }

  std::unique_ptr<RowServers> servers_;
  std::vector<RemoteChannel*> channels_;  // of servers_
  const std::atomic<bool>& stop_;
  std::jthread watching_;  // ends before the channels do
};

constexpr double kAskSeconds = 30;  // longer than a server waits for a run that may be over
constexpr std::chrono::milliseconds kPause{100};
constexpr std::size_t kMostTableBytes = std::size_t{32} << 10;  // a first frame has 48 KiB

void require_servers(const RemoteServersOptions& options) {
  if (!options.addresses.empty()) return;
  throw UserError({.operation = "embed.servers",
                   .where = "embedding.servers",
                   .what = "no servers are named",
                   .expected = "local, or a list of HOST:PORT",
                   .got = "an empty list",
                   .fix = "name them"});
}

ServerWaitOptions wait_options(const RemoteServersOptions& options, const std::string& address) {
  return {.address = address, .deadline = options.deadline, .notice = options.notice};
}

std::uint64_t run_to_follow(const RemoteServersOptions& options, const std::string& address) {
  for (ServerWait wait(wait_options(options, address));;) try {
      return remote_inspection(address, options.access,
                               {.seconds = kAskSeconds, .stop = options.stop})
          ->run();
    } catch (const SystemError& error) {
      if (error.text().operation != "embed.connect") throw;
      if (options.stop && *options.stop) throw wait.stopped();
      const std::string why = error.text().what;
      if (wait.is_over()) throw wait.error(why);
      wait.say(why);
      std::this_thread::sleep_for(kPause);
    }
}

}  // namespace

std::vector<std::uint64_t> runs_to_follow(const RemoteServersOptions& options) {
  require_servers(options);
  std::vector<std::uint64_t> runs;
  for (const std::string& address : options.addresses)
    runs.push_back(run_to_follow(options, address));
  return runs;
}

std::unique_ptr<RowServers> make_remote_servers(const RemoteServersOptions& options) {
  require_servers(options);
  std::vector<std::unique_ptr<ShardChannel>> channels;
  std::vector<RemoteChannel*> stoppable;
  const auto shards = static_cast<std::int32_t>(options.addresses.size());
  for (std::int32_t shard = 0; shard < shards; ++shard) {
    const std::string& address = options.addresses[static_cast<std::size_t>(shard)];
    RemoteChannelOptions channel;
    channel.wait = wait_options(options, address);
    channel.features = options.features;
    channel.hello.fingerprint = fingerprint_of(options.features, options.seed);
    channel.hello.tables = pack_features(options.features, options.seed);
    if (channel.hello.tables.size() > kMostTableBytes) channel.hello.tables.clear();
    channel.hello.shard = shard, channel.hello.shards = shards;
    channel.hello.rank = options.rank, channel.hello.ranks = options.ranks;
    channel.hello.run = options.run, channel.hello.begin = options.version;
    if (!options.follows.empty())
      channel.hello.follows = options.follows.at(static_cast<std::size_t>(shard));
    channel.hello.holder = options.holder;
    channel.hello.wire = options.wire;
    channel.hello.abandoned = options.abandoned;
    channel.credit_bytes = options.credit_bytes;
    auto made =
        std::make_unique<RemoteChannel>(std::move(channel), grpc_sessions(address, options.access));
    stoppable.push_back(made.get());
    channels.push_back(std::move(made));
  }
  auto servers = make_sharded_servers(options.features, std::move(channels));
  if (!options.stop) return servers;
  return std::make_unique<StoppableServers>(std::move(servers), std::move(stoppable),
                                            *options.stop);
}

}  // namespace strata
