#include "strata/embed/wire/remote_servers.h"

#include <utility>

#include "strata/base/errors.h"
#include "strata/embed/wire/grpc_client.h"
#include "strata/embed/wire/remote_channel.h"

namespace strata {

std::unique_ptr<RowServers> make_remote_servers(const RemoteServersOptions& options) {
  if (options.addresses.empty())
    throw UserError({.operation = "embed.servers",
                     .where = "embedding.servers",
                     .what = "no servers are named",
                     .expected = "local, or a list of HOST:PORT",
                     .got = "an empty list",
                     .fix = "name them"});
  std::vector<std::unique_ptr<ShardChannel>> channels;
  const auto shards = static_cast<std::int32_t>(options.addresses.size());
  for (std::int32_t shard = 0; shard < shards; ++shard) {
    const std::string& address = options.addresses[static_cast<std::size_t>(shard)];
    RemoteChannelOptions channel;
    channel.address = address;
    channel.features = options.features;
    channel.hello.fingerprint = fingerprint_of(options.features, options.seed);
    channel.hello.shard = shard, channel.hello.shards = shards;
    channel.hello.rank = options.rank, channel.hello.ranks = options.ranks;
    channel.hello.run = options.run, channel.hello.begin = options.version;
    channel.hello.wire = options.wire;
    channel.hello.abandoned = options.abandoned;
    channel.notice = options.notice;
    channel.deadline = options.deadline;
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
