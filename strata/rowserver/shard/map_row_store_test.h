// Rows in a plain map, with an update that depends on the order of updates and on the step. Tests
// of servers and logs use it instead of the table.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/philox.h"
#include "strata/rowserver/codec/wire_values.h"
#include "strata/rowserver/rows/row_store.h"
#include "strata/rowserver/rows/shard_state.h"
#include "strata/rowserver/shard/update_part.h"

namespace strata {

inline std::vector<FeatureSpec> features_for_test() {
  FeatureSpec user, word;
  user.name = "user", user.width = 4;
  word.name = "word", word.width = 3;
  return {user, word};
}

class MapRowStore : public RowStore {
 public:
  using Rows = std::map<std::pair<int, std::uint64_t>, std::vector<float>>;

  explicit MapRowStore(std::vector<FeatureSpec> features = features_for_test())
      : features_(std::move(features)) {}

  const std::vector<FeatureSpec>& features() const override { return features_; }

  void read(int feature, std::span<const std::uint64_t> ids, std::span<float> out) const override {
    const std::lock_guard lock(mutex_);
    const int width = features_[static_cast<std::size_t>(feature)].width;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto found = rows_.find({feature, ids[i]});
      const std::vector<float> row = found == rows_.end() ? first(feature, ids[i]) : found->second;
      std::copy(row.begin(), row.end(), out.begin() + static_cast<std::ptrdiff_t>(i) * width);
    }
  }

  void update(std::int64_t step, int feature, std::span<const std::uint64_t> ids,
              std::span<const float> gradients, double rate_factor) override {
    const std::lock_guard lock(mutex_);
    const auto width = static_cast<std::size_t>(features_[static_cast<std::size_t>(feature)].width);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      auto& row = rows_.try_emplace({feature, ids[i]}, first(feature, ids[i])).first->second;
      for (std::size_t k = 0; k < width; ++k)
        row[k] = row[k] * 0.75f - static_cast<float>(rate_factor) * gradients[i * width + k] +
                 static_cast<float>(step % 7) * 0.01f;
    }
  }

  void end_step(std::int64_t) override {}

  bool features_are_independent(std::span<const std::size_t>) const override { return true; }

  Rows rows() const {
    const std::lock_guard lock(mutex_);
    return rows_;
  }
  void set_rows(Rows rows) { rows_ = std::move(rows); }

 private:
  std::vector<float> first(int feature, std::uint64_t id) const {
    std::vector<float> row;
    for (int k = 0; k < features_[static_cast<std::size_t>(feature)].width; ++k)
      row.push_back(
          static_cast<float>(mix_key(id, static_cast<std::uint64_t>(k + 10 * feature)) % 1000) *
          1e-3f);
    return row;
  }

  std::vector<FeatureSpec> features_;
  mutable std::mutex mutex_;
  Rows rows_;
};

class MapShardState : public ShardState {
 public:
  MapRowStore store;

  RowStore& rows() override { return store; }
  void write(const std::function<void(const StateRecord&)>& sink) override {
    for (const auto& [key, row] : store.rows())
      sink({.feature = key.first,
            .kind = 0,
            .id = key.second,
            .bytes = std::as_bytes(std::span(row))});
  }
  void put(const StateRecord& record) override {
    std::vector<float> row(record.bytes.size() / sizeof(float));
    std::memcpy(row.data(), record.bytes.data(), record.bytes.size());
    loaded_[{record.feature, record.id}] = std::move(row);
  }
  void finish(std::int64_t, bool) override { store.set_rows(std::move(loaded_)); }
  std::vector<FeatureCounts> counts() const override {
    std::vector<FeatureCounts> counts(store.features().size());
    for (const auto& [key, row] : store.rows()) ++counts[static_cast<std::size_t>(key.first)].rows;
    return counts;
  }
  std::int64_t bytes() override { return 0; }
  RowDescription describe(int, std::uint64_t) override { return {}; }
  HotRows hottest(int, int) override { return HotRows(); }

 private:
  MapRowStore::Rows loaded_;
};

// Rank `rank`'s part of update `version`, from rows of version `read`: some ids, some of them
// frequent.
inline std::vector<FeatureRows> gradients_for_test(int rank, std::int64_t version,
                                                   std::int64_t read) {
  std::vector<FeatureRows> gradients;
  const std::vector<FeatureSpec> features = features_for_test();
  for (int feature = 0; feature < static_cast<int>(features.size()); ++feature) {
    FeatureRows rows{.feature = feature, .version = read, .ids = {}, .values = {}};
    std::uint64_t key = mix_key(static_cast<std::uint64_t>(version),
                                static_cast<std::uint64_t>(100 * feature + rank));
    for (std::uint64_t id = key % 3; id < 40; id += 1 + (key = mix_key(key, id)) % 7) {
      rows.ids.push_back(id == 39 ? ~std::uint64_t{0} : id);
      for (int k = 0; k < features[static_cast<std::size_t>(feature)].width; ++k)
        rows.values.push_back(
            static_cast<float>(
                static_cast<int>(mix_key(key, static_cast<std::uint64_t>(k)) % 2001) - 1000) *
            1.1e-3f);
    }
    if (!rows.ids.empty()) gradients.push_back(std::move(rows));
  }
  return gradients;
}

// All ids that gradients_for_test() may use.
inline std::vector<FeatureRead> reads_for_test(std::int64_t version) {
  std::vector<FeatureRead> reads;
  for (int feature = 0; feature < 2; ++feature) {
    FeatureRead read{.feature = feature, .version = version, .ids = {}};
    for (std::uint64_t id = 0; id < 40; ++id) read.ids.push_back(id);
    read.ids.push_back(~std::uint64_t{0});
    reads.push_back(std::move(read));
  }
  return reads;
}

inline constexpr double kRateFactorForTest = 0.5;

// Rows of every version, computed one update after another.
class ReferenceRows {
 public:
  ReferenceRows(int ranks, std::int64_t versions, WirePrecision gradients = WirePrecision::kFp32)
      : stores_(static_cast<std::size_t>(versions) + 1) {
    for (std::int64_t version = 1; version <= versions; ++version) {
      MapRowStore& rows = stores_[static_cast<std::size_t>(version)];
      rows.set_rows(stores_[static_cast<std::size_t>(version) - 1].rows());
      for (int feature = 0; feature < 2; ++feature) {
        std::map<std::uint64_t, std::vector<float>> sum;
        for (int rank = 0; rank < ranks; ++rank)
          for (FeatureRows& part : gradients_for_test(rank, version, version - 1)) {
            if (part.feature != feature) continue;
            const int width = rows.features()[static_cast<std::size_t>(feature)].width;
            round_values(gradients, part.values, width);
            for (std::size_t i = 0; i < part.ids.size(); ++i) add(sum[part.ids[i]], part, i, width);
          }
        for (const auto& [id, values] : sum)
          rows.update(version, feature, {&id, 1}, values, kRateFactorForTest);
      }
    }
  }

  MapRowStore& at(std::int64_t version) { return stores_[static_cast<std::size_t>(version)]; }

  // The result of reads_for_test().
  std::vector<FeatureRows> read(std::int64_t version,
                                WirePrecision rounded = WirePrecision::kFp32) {
    std::vector<FeatureRows> rows;
    for (FeatureRead& read : reads_for_test(version)) {
      const int width = at(0).features()[static_cast<std::size_t>(read.feature)].width;
      FeatureRows got{.feature = read.feature, .version = version, .ids = read.ids, .values = {}};
      got.values.resize(read.ids.size() * static_cast<std::size_t>(width));
      at(version).read(read.feature, read.ids, got.values);
      round_values(rounded, got.values, width);
      rows.push_back(std::move(got));
    }
    return rows;
  }

 private:
  static void add(std::vector<float>& sum, const FeatureRows& part, std::size_t row, int width) {
    const float* values = part.values.data() + row * static_cast<std::size_t>(width);
    if (sum.empty()) {
      sum.assign(values, values + width);
    } else {
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += values[k];
    }
  }

  std::vector<MapRowStore> stores_;
};

inline bool same_rows(const std::vector<FeatureRows>& a, const std::vector<FeatureRows>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.feature == y.feature && x.version == y.version && x.ids == y.ids &&
           std::equal(x.values.begin(), x.values.end(), y.values.begin(), y.values.end(),
                      [](float u, float v) {
                        return std::bit_cast<std::uint32_t>(u) == std::bit_cast<std::uint32_t>(v);
                      });
  });
}

}  // namespace strata
