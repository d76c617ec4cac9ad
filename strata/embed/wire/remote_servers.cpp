#include "strata/embed/wire/remote_servers.h"

#include <chrono>
#include <thread>
#include <utility>

#include "strata/base/errors.h"
#include "strata/embed/wire/grpc_client.h"
#include "strata/embed/wire/remote_channel.h"

namespace strata {

namespace {

constexpr double kAskSeconds = 30;  // longer than a server waits for a run that may be over
constexpr std::chrono::milliseconds kPause{100};

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

std::string ask_patiently(const RemoteServersOptions& options, const std::string& address,
                          const std::string& question) {
  for (ServerWait wait(wait_options(options, address));;) try {
      return grpc_ask(address, options.tls, question, kAskSeconds);
    } catch (const SystemError& error) {
      if (error.text().operation != "embed.connect") throw;
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
    runs.push_back(std::stoull(ask_patiently(options, address, "run")));
  return runs;
}

std::unique_ptr<RowServers> make_remote_servers(const RemoteServersOptions& options) {
  require_servers(options);
  std::vector<std::unique_ptr<ShardChannel>> channels;
  const auto shards = static_cast<std::int32_t>(options.addresses.size());
  for (std::int32_t shard = 0; shard < shards; ++shard) {
    const std::string& address = options.addresses[static_cast<std::size_t>(shard)];
    RemoteChannelOptions channel;
    channel.wait = wait_options(options, address);
    channel.features = options.features;
    channel.hello.fingerprint = fingerprint_of(options.features, options.seed);
    channel.hello.shard = shard, channel.hello.shards = shards;
    channel.hello.rank = options.rank, channel.hello.ranks = options.ranks;
    channel.hello.run = options.run, channel.hello.begin = options.version;
    if (!options.follows.empty())
      channel.hello.follows = options.follows.at(static_cast<std::size_t>(shard));
    channel.hello.holder = options.holder;
    channel.hello.wire = options.wire;
    channel.hello.abandoned = options.abandoned;
    channel.credit_bytes = options.credit_bytes;
    channels.push_back(
        std::make_unique<RemoteChannel>(std::move(channel), grpc_sessions(address, options.tls)));
  }
  return make_sharded_servers(options.features, std::move(channels));
}

std::string ask_server(const std::string& address, const TlsFiles& tls,
                       const std::string& question) {
  return grpc_ask(address, tls, question);
}

}  // namespace strata
