// Ids ascend, and so do the ids of each shard. Merging the answers computes the shard of each id
// again, which is cheaper than storing it.
#include "strata/rowserver/wire/shard_channel.h"

#include <mutex>
#include <optional>
#include <utility>

#include "strata/base/completion.h"

namespace strata {
namespace {

// Collects the answers of several shards. The first error ends it, because the other shards may
// never answer.
class Gathering {
 public:
  explicit Gathering(std::size_t shards) : answers_(shards), left_(shards) {
    if (shards == 0) arrived_.complete();
  }

  void put(std::size_t shard, std::vector<FeatureRows> rows, std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      if (left_ == 0) return;
      answers_[shard] = std::move(rows);
      left_ = error ? 0 : left_ - 1;
      if (left_ > 0) return;
    }
    arrived_.end(std::move(error));
  }

  std::vector<std::vector<FeatureRows>> wait() {
    arrived_.completion().wait();
    return std::move(answers_);
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<FeatureRows>> answers_;
  std::size_t left_;
  Promise arrived_;
};

class ShardedRows : public PendingRows {
 public:
  ShardedRows(const std::vector<FeatureSpec>& features, std::vector<FeatureRead> reads,
              std::shared_ptr<Gathering> answers, int shards, std::optional<WirePrecision> rounded)
      : features_(features),
        reads_(std::move(reads)),
        answers_(std::move(answers)),
        shards_(shards),
        rounded_(rounded) {}

  std::vector<FeatureRows> wait() override {
    std::vector<std::vector<FeatureRows>> answers = answers_->wait();
    if (answers.empty()) return {};
    std::vector<FeatureRows> rows;
    if (shards_ == 1) {
      rows = std::move(answers.front());
    } else {
      for (std::size_t i = 0; i < reads_.size(); ++i) rows.push_back(merge(i, answers));
    }
    if (rounded_)
      for (FeatureRows& feature : rows)
        round_values(*rounded_, feature.values, width_of(feature.feature));
    return rows;
  }

 private:
  int width_of(int feature) const { return features_[static_cast<std::size_t>(feature)].width; }

  FeatureRows merge(std::size_t index, const std::vector<std::vector<FeatureRows>>& answers) {
    FeatureRead& read = reads_[index];
    const auto width = static_cast<std::size_t>(width_of(read.feature));
    FeatureRows rows{.feature = read.feature, .version = read.version, .ids = {}, .values = {}};
    rows.values.resize(read.ids.size() * width);
    std::vector<std::size_t> next(answers.size(), 0);
    float* out = rows.values.data();
    for (const std::uint64_t id : read.ids) {
      const auto shard = static_cast<std::size_t>(shard_of(read.feature, id, shards_));
      const float* from = answers[shard][index].values.data() + width * next[shard]++;
      out = std::copy(from, from + width, out);
    }
    rows.ids = std::move(read.ids);
    return rows;
  }

  const std::vector<FeatureSpec>& features_;
  std::vector<FeatureRead> reads_;
  std::shared_ptr<Gathering> answers_;
  int shards_;
  std::optional<WirePrecision> rounded_;
};

class ShardedServers : public RowServers {
 public:
  ShardedServers(std::vector<FeatureSpec> features,
                 std::vector<std::unique_ptr<ShardChannel>> channels,
                 std::optional<WirePrecision> rounded)
      : features_(std::move(features)), channels_(std::move(channels)), rounded_(rounded) {}

  std::unique_ptr<PendingRows> read(std::vector<FeatureRead> reads) override {
    const auto answers = std::make_shared<Gathering>(reads.empty() ? 0 : channels_.size());
    check_read(features_, reads, 0, 1);
    // With one shard, its answer is the result.
    auto rows = std::make_unique<ShardedRows>(
        features_, shards() > 1 ? reads : std::vector<FeatureRead>(), answers, shards(), rounded_);
    if (reads.empty()) return rows;
    std::vector<std::vector<FeatureRead>> parts = divide(std::move(reads));
    for (std::size_t shard = 0; shard < channels_.size(); ++shard)
      channels_[shard]->read(std::move(parts[shard]), [answers, shard](std::vector<FeatureRows> got,
                                                                       std::exception_ptr error) {
        answers->put(shard, std::move(got), std::move(error));
      });
    return rows;
  }

  void update(std::int64_t version, std::vector<FeatureRows> gradients,
              double rate_factor) override {
    UpdatePart whole{.gradients = std::move(gradients), .rate_factor = rate_factor, .wire = {}};
    check_part(features_, version, whole, 0, 1);
    std::vector<UpdatePart> parts = divide(std::move(whole));
    for (std::size_t shard = 0; shard < channels_.size(); ++shard)
      channels_[shard]->update(version, std::move(parts[shard]));
  }

  void await(std::int64_t version) override {
    for_all([&](ShardChannel& channel, ShardChannel::Done done) {
      channel.when_reached(version, std::move(done));
    });
  }

  void save(std::int64_t version) override {
    for_all([&](ShardChannel& channel, ShardChannel::Done done) {
      channel.save(version, std::move(done));
    });
  }

 private:
  int shards() const { return static_cast<int>(channels_.size()); }

  template <typename Call>
  void for_all(const Call& call) {
    const auto answers = std::make_shared<Gathering>(channels_.size());
    for (std::size_t shard = 0; shard < channels_.size(); ++shard)
      call(*channels_[shard], [answers, shard](std::exception_ptr error) {
        answers->put(shard, {}, std::move(error));
      });
    answers->wait();
  }

  // Every shard gets every feature, so that answers keep the order of the request.
  std::vector<std::vector<FeatureRead>> divide(std::vector<FeatureRead> reads) const {
    if (channels_.size() == 1) return {std::move(reads)};
    std::vector<std::vector<FeatureRead>> parts(channels_.size());
    for (const FeatureRead& read : reads) {
      for (std::vector<FeatureRead>& part : parts)
        part.push_back({.feature = read.feature, .version = read.version, .ids = {}});
      for (const std::uint64_t id : read.ids)
        parts[static_cast<std::size_t>(shard_of(read.feature, id, shards()))].back().ids.push_back(
            id);
    }
    return parts;
  }

  std::vector<UpdatePart> divide(UpdatePart whole) const {
    std::vector<UpdatePart> parts(channels_.size());
    if (channels_.size() == 1) {
      parts.front() = std::move(whole);
      return parts;
    }
    for (UpdatePart& part : parts) part.rate_factor = whole.rate_factor;
    for (const FeatureRows& rows : whole.gradients) {
      const auto width =
          static_cast<std::size_t>(features_[static_cast<std::size_t>(rows.feature)].width);
      for (UpdatePart& part : parts)
        part.gradients.push_back(
            {.feature = rows.feature, .version = rows.version, .ids = {}, .values = {}});
      for (std::size_t i = 0; i < rows.ids.size(); ++i) {
        const auto shard = static_cast<std::size_t>(shard_of(rows.feature, rows.ids[i], shards()));
        FeatureRows& to = parts[shard].gradients.back();
        to.ids.push_back(rows.ids[i]);
        const float* values = rows.values.data() + i * width;
        to.values.insert(to.values.end(), values, values + width);
      }
    }
    return parts;
  }

  const std::vector<FeatureSpec> features_;
  std::vector<std::unique_ptr<ShardChannel>> channels_;
  const std::optional<WirePrecision> rounded_;
};

}  // namespace

std::unique_ptr<RowServers> make_sharded_servers(
    std::vector<FeatureSpec> features, std::vector<std::unique_ptr<ShardChannel>> channels,
    std::optional<WirePrecision> rounded) {
  return std::make_unique<ShardedServers>(std::move(features), std::move(channels), rounded);
}

}  // namespace strata
