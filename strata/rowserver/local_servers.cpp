#include "strata/rowserver/local_servers.h"

#include <utility>

#include "strata/base/errors.h"
#include "strata/rowserver/wire/shard_channel.h"

namespace strata {
namespace {

class LocalChannel : public ShardChannel {
 public:
  LocalChannel(std::shared_ptr<LocalShards> shards, int shard, int rank)
      : shards_(std::move(shards)), server_(shards_->shard(shard)), shard_(shard), rank_(rank) {}
  ~LocalChannel() override { server_.leave(rank_); }
  LocalChannel(const LocalChannel&) = delete;
  LocalChannel& operator=(const LocalChannel&) = delete;

  void read(std::vector<FeatureRead> reads, Answer answer) override {
    server_.read(rank_, std::move(reads), std::move(answer));
  }

  void update(std::int64_t version, UpdatePart part) override {
    for (FeatureRows& rows : part.gradients)
      round_values(shards_->options().wire.gradients, rows.values,
                   features()[static_cast<std::size_t>(rows.feature)].width);
    server_.update(rank_, version, std::move(part));
  }

  void when_reached(std::int64_t version, Done done) override {
    server_.when_reached(version, std::move(done));
  }

  void save(std::int64_t version, Done done) override {
    if (!shards_->options().save)
      throw UserError({.operation = "embed.save",
                       .what = "the servers of this run have no folder to save to",
                       .expected = "a folder for checkpoints or rows",
                       .got = "none",
                       .fix = "set train.checkpoint_folder"});
    server_.at(version, [shards = shards_, shard = shard_, version,
                         done = std::move(done)](std::exception_ptr error) {
      try {
        if (!error) shards->save(shard, version);
      } catch (...) {
        error = std::current_exception();
      }
      done(error);
    });
  }

 private:
  const std::vector<FeatureSpec>& features() const { return shards_->rows(shard_).features(); }

  std::shared_ptr<LocalShards> shards_;
  ShardServer& server_;
  int shard_;
  int rank_;
};

}  // namespace

LocalShards::LocalShards(std::vector<std::shared_ptr<RowStore>> rows, LocalServersOptions options)
    : rows_(std::move(rows)),
      options_(std::move(options)),
      threads_(std::make_shared<HelperThreads>(options_.threads)) {
  STRATA_CHECK(!rows_.empty() && options_.ranks > 0, "embed.servers");
  const int shards = static_cast<int>(rows_.size());
  saved_.resize(rows_.size(), -1);
  for (int shard = 0; shard < shards; ++shard)
    servers_.push_back(std::make_unique<ShardServer>(
        *rows_[static_cast<std::size_t>(shard)], ShardServer::Options{.shard = shard,
                                                                      .shards = shards,
                                                                      .ranks = options_.ranks,
                                                                      .version = options_.version,
                                                                      .replayed = options_.version,
                                                                      .threads = threads_}));
}

LocalShards::~LocalShards() = default;

void LocalShards::save(int shard, std::int64_t version) {
  std::int64_t& saved = saved_[static_cast<std::size_t>(shard)];
  if (saved == version) return;
  options_.save(shard, version);
  saved = version;
}

std::vector<std::unique_ptr<RowServers>> make_local_servers(std::shared_ptr<LocalShards> shards) {
  std::vector<std::unique_ptr<RowServers>> servers;
  for (int rank = 0; rank < shards->options().ranks; ++rank) {
    std::vector<std::unique_ptr<ShardChannel>> channels;
    for (int shard = 0; shard < shards->shards(); ++shard)
      channels.push_back(std::make_unique<LocalChannel>(shards, shard, rank));
    servers.push_back(make_sharded_servers(shards->rows(0).features(), std::move(channels),
                                           shards->options().wire.rows));
  }
  return servers;
}

std::vector<std::unique_ptr<RowServers>> make_local_servers(
    std::vector<std::shared_ptr<RowStore>> rows, const LocalServersOptions& options) {
  return make_local_servers(std::make_shared<LocalShards>(std::move(rows), options));
}

}  // namespace strata
