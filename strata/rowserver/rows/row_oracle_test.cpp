// A row table made of plain maps and vectors, written from the description in the headers and
// without the table's code; it shares only Philox, mix_key and the layout of a payload. Every
// operation runs on both, and everything visible of a row is compared bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "strata/base/errors.h"
#include "strata/base/philox.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/rows/row_table.h"

namespace strata {
namespace {

using Ids = std::vector<std::uint64_t>;
constexpr std::uint64_t kLargest = ~std::uint64_t{0};

#ifdef STRATA_SANITIZED
constexpr int kOperations = 20'000;
#else
constexpr int kOperations = 1'000'000;
#endif

struct PlainRow {
  std::uint64_t id = 0;
  std::int64_t step = 0;
  std::uint32_t hits = 0, recent = 0;
  std::string payload;
};

class PlainFeature {
 public:
  FeatureSpec spec;
  int number = 0;
  std::uint64_t key = 0;
  std::vector<PlainRow> rows, candidates;  // in the order of slots
  std::map<std::uint64_t, std::size_t> row_at, candidate_at;
  std::map<std::uint64_t, PlainRow> cold;
  std::size_t expiry[2] = {0, 0};
  std::uint64_t cold_expiry = 0;
  std::vector<int> bloom;

  explicit PlainFeature(FeatureSpec s, std::uint64_t seed, std::int64_t bloom_bytes)
      : spec(std::move(s)), bloom(bloom_bytes) {
    std::uint64_t hash = 0xCBF29CE484222325ull;
    for (const unsigned char c : spec.name) hash = (hash ^ c) * 0x100000001B3ull;
    key = mix_key(seed, hash);
  }

  int states() const { return spec.optimizer.kind == RowOptimizerKind::kAdagrad ? spec.width : 0; }
  int value_bytes() const {
    if (spec.precision == RowPrecision::kFp32) return 4 * spec.width;
    if (spec.precision == RowPrecision::kFp16) return (2 * spec.width + 3) / 4 * 4;
    return 4 + (spec.width + 3) / 4 * 4;
  }
  std::int64_t cost() const { return 26 + value_bytes() + 4 * states(); }
  std::int64_t used() const {
    return static_cast<std::int64_t>(rows.size()) * cost() +
           static_cast<std::int64_t>(candidates.size()) * 26;
  }
  bool filtered(RowAdmission::Filter filter) const { return spec.admission.filter == filter; }

  static std::uint32_t word(std::uint64_t key, std::uint64_t id, std::uint32_t step, int e) {
    return philox({static_cast<std::uint32_t>(e / 4), static_cast<std::uint32_t>(id),
                   static_cast<std::uint32_t>(id >> 32), step},
                  {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)})[e % 4];
  }

  std::vector<float> first(std::uint64_t id) const {
    std::vector<float> values(spec.width);
    for (int e = 0; e < spec.width; ++e) {
      const double odd = 2.0 * (word(mix_key(key, 0), id, 0, e) >> 9) + 1;
      values[e] = static_cast<float>(odd / 8388608 - 1) * static_cast<float>(spec.init.scale);
    }
    return values;
  }

  static float widened(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return static_cast<float>(bits >> 15 ? -magnitude : magnitude);
  }

  std::vector<float> values(const std::string& payload) const {
    std::vector<float> out(spec.width);
    for (int e = 0; e < spec.width; ++e) {
      if (spec.precision == RowPrecision::kFp32) {
        std::memcpy(&out[e], payload.data() + 4 * e, 4);
      } else if (spec.precision == RowPrecision::kFp16) {
        std::uint16_t bits;
        std::memcpy(&bits, payload.data() + 2 * e, 2);
        out[e] = widened(bits);
      } else {
        float scale;
        std::memcpy(&scale, payload.data(), 4);
        out[e] = scale * static_cast<float>(static_cast<std::int8_t>(payload[4 + e]));
      }
    }
    return out;
  }

  static std::uint16_t rounded_fp16(float value, std::uint32_t drawn) {
    const double magnitude = std::abs(double{value});
    const bool normal = magnitude >= std::ldexp(1, -14);
    const double ulp = std::ldexp(1, normal ? std::ilogb(magnitude) - 10 : -24);
    const double below = std::floor(magnitude / ulp), fraction = magnitude / ulp - below;
    const bool up = normal ? (drawn & 0x1FFF) + fraction * 8192 >= 8192
                           : (drawn >> 8) * std::ldexp(1, -24) < fraction;
    const auto mantissa = static_cast<int>(below) + (up ? 1 : 0);
    const int bits = normal ? ((std::ilogb(magnitude) + 14) << 10) + mantissa : mantissa;
    return static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000 : 0));
  }

  std::string payload(std::uint64_t id, std::int64_t step, const std::vector<float>& values,
                      const std::vector<float>& sums) const {
    std::string out(value_bytes(), '\0');
    float largest = 0;
    for (const float v : values) largest = std::max(largest, std::abs(v));
    const float scale = largest / 127.0f;
    for (int e = 0; e < spec.width; ++e) {
      const std::uint32_t drawn =
          word(mix_key(key, 1), id, static_cast<std::uint32_t>(step + 1) * 2, e);
      if (spec.precision == RowPrecision::kFp32) {
        std::memcpy(out.data() + 4 * e, &values[e], 4);
      } else if (spec.precision == RowPrecision::kFp16) {
        const std::uint16_t bits = rounded_fp16(values[e], drawn);
        std::memcpy(out.data() + 2 * e, &bits, 2);
      } else {
        std::memcpy(out.data(), &scale, 4);
        const float at = values[e] / scale, below = std::floor(at);
        const bool up = (drawn >> 8) * std::ldexp(1, -24) < double{at} - below;
        out[4 + e] = static_cast<char>(static_cast<int>(below) + (up ? 1 : 0));
      }
    }
    out.append(reinterpret_cast<const char*>(sums.data()), 4 * sums.size());
    return out;
  }

  // Result of one update by Adagrad or SGD.
  PlainRow updated(PlainRow row, std::int64_t step, const float* gradient, float rate) const {
    std::vector<float> w = row.payload.empty() ? first(row.id) : values(row.payload);
    std::vector<float> sums(states());
    if (row.payload.empty()) {
      std::fill(sums.begin(), sums.end(), static_cast<float>(spec.optimizer.initial_accumulator));
    } else if (!sums.empty()) {
      std::memcpy(sums.data(), row.payload.data() + value_bytes(), 4 * sums.size());
    }
    for (int e = 0; e < spec.width; ++e) {
      if (sums.empty()) {
        w[e] -= rate * gradient[e];
      } else {
        sums[e] += gradient[e] * gradient[e];
        w[e] -=
            rate * gradient[e] / (std::sqrt(sums[e]) + static_cast<float>(spec.optimizer.epsilon));
      }
    }
    row.step = step;
    ++row.hits;
    row.recent =
        spec.eviction.policy == RowEviction::Policy::kClock ? 1 : std::min(row.recent + 1, 255u);
    row.payload = payload(row.id, step, w, sums);
    return row;
  }

  // ---- The counting Bloom filter: 4 counters by double hashing; the count is their minimum.
  std::vector<std::size_t> places(std::uint64_t id) const {
    const std::uint64_t hash = mix_key(id, 0);
    std::vector<std::size_t> out;
    for (std::uint64_t k = 0; k < 4; ++k) {
      const std::uint64_t mixed = hash + k * ((hash << 32 | hash >> 32) | 1);
      out.push_back(static_cast<std::size_t>((mixed >> 32) * bloom.size() >> 32));
    }
    return out;
  }
  int counted(std::uint64_t id) const {
    int least = 255;
    for (const std::size_t place : places(id)) least = std::min(least, bloom[place]);
    return least;
  }
  void count(std::uint64_t id) {
    const int before = counted(id);
    for (const std::size_t place : places(id))
      if (bloom[place] == before && before < 255) bloom[place] = before + 1;
  }

  // ---- Slots: the last row moves to the place of a removed row.
  void append(bool candidate, PlainRow row) {
    auto& list = candidate ? candidates : rows;
    (candidate ? candidate_at : row_at)[row.id] = list.size();
    list.push_back(std::move(row));
  }
  void remove(bool candidate, std::size_t slot) {
    auto& list = candidate ? candidates : rows;
    auto& at = candidate ? candidate_at : row_at;
    at.erase(list[slot].id);
    if (slot + 1 != list.size()) {
      list[slot] = list.back();
      at[list[slot].id] = slot;
    }
    list.pop_back();
  }
  void evict(bool candidate, std::size_t slot, bool has_cold) {
    if (has_cold && !candidate) cold[rows[slot].id] = rows[slot];
    remove(candidate, slot);
  }

  // Drops what was not updated for long; examines each row every steps_to_live / 4 steps.
  void expire(std::int64_t step) {
    const std::int64_t live = spec.eviction.steps_to_live;
    if (live == 0) return;
    const std::size_t every = static_cast<std::size_t>(std::max<std::int64_t>(1, live / 4));
    for (const bool candidate : {false, true}) {
      auto& list = candidate ? candidates : rows;
      std::size_t& position = expiry[candidate];
      for (std::size_t n = (list.size() + every - 1) / every; n > 0 && !list.empty(); --n) {
        if (position >= list.size()) position = 0;
        if (step - list[position].step >= live) {
          remove(candidate, position);
        } else {
          ++position;
        }
      }
    }
    if (cold.empty()) return;
    std::size_t n = (cold.size() + every - 1) / every;
    auto at = cold.lower_bound(cold_expiry);
    for (; n > 0 && at != cold.end(); --n)
      at = step - at->second.step >= live ? cold.erase(at) : std::next(at);
    cold_expiry = at == cold.end() ? 0 : at->first;
  }
};

class PlainTable {
 public:
  PlainTable(const std::vector<FeatureSpec>& specs, const RowTableOptions& options)
      : limit(options.memory_bytes), has_cold(!options.cold.empty()) {
    for (const FeatureSpec& spec : specs) {
      features.emplace_back(spec, options.seed, options.bloom_bytes);
      features.back().number = static_cast<int>(features.size()) - 1;
    }
  }

  std::vector<PlainFeature> features;
  std::int64_t limit;
  bool has_cold;
  std::size_t hand_feature = 0, hand_position = 0;
  bool hand_candidates = false;

  std::int64_t used() const {
    std::int64_t sum = 0;
    for (const PlainFeature& f : features) sum += f.used();
    return sum;
  }

  void make_room(std::int64_t bytes) {
    while (used() + bytes > limit) {
      PlainFeature& f = features[hand_feature];
      auto& list = hand_candidates ? f.candidates : f.rows;
      if (hand_position >= list.size()) {
        hand_position = 0;
        if (hand_candidates) hand_feature = (hand_feature + 1) % features.size();
        hand_candidates = !hand_candidates;
      } else if (hand_candidates || f.spec.eviction.policy == RowEviction::Policy::kClock) {
        if (list[hand_position].recent == 0) {
          f.evict(hand_candidates, hand_position, has_cold);
        } else {
          list[hand_position++].recent = 0;
        }
      } else {
        const std::size_t n = std::min<std::size_t>(16, list.size());
        const std::size_t begin = std::min(hand_position, list.size() - n);
        std::size_t least = begin;
        for (std::size_t i = begin; i < begin + n; ++i)
          if (list[i].recent < list[least].recent) least = i;
        for (std::size_t i = begin; i < begin + n; ++i)
          if (i != least) list[i].recent /= 2;
        f.evict(false, least, has_cold);
        hand_position = begin + n - 1;
      }
    }
  }

  void update(std::int64_t step, int feature, const Ids& ids, const std::vector<float>& gradients,
              double factor) {
    PlainFeature& f = features[feature];
    const auto rate = static_cast<float>(f.spec.optimizer.learning_rate * factor);
    const auto threshold = static_cast<std::uint32_t>(f.spec.admission.threshold);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::uint64_t id = ids[i];
      const float* const gradient = gradients.data() + i * f.spec.width;
      if (const auto found = f.cold.find(id); found != f.cold.end()) {
        make_room(f.cost());
        f.append(false, f.cold.at(id));
        f.cold.erase(id);
      }
      if (const auto found = f.row_at.find(id); found != f.row_at.end()) {
        PlainRow& row = f.rows[found->second];
        row = f.updated(row, step, gradient, rate);
        continue;
      }
      if (f.filtered(RowAdmission::Filter::kExact)) {
        const auto found = f.candidate_at.find(id);
        if (found == f.candidate_at.end()) {
          make_room(26);
          f.append(true, {.id = id, .step = step, .hits = 1, .recent = 1, .payload = ""});
          continue;
        }
        PlainRow& candidate = f.candidates[found->second];
        if (candidate.hits + 1 < threshold) {
          ++candidate.hits;
          candidate.recent = 1;
          candidate.step = step;
          continue;
        }
        f.remove(true, found->second);
      } else if (f.filtered(RowAdmission::Filter::kBloom)) {
        const bool admitted = f.counted(id) + 1 >= static_cast<int>(threshold);
        f.count(id);
        if (!admitted) continue;
      }
      PlainRow row = f.updated({.id = id, .payload = ""}, step, gradient, rate);
      row.recent = 1;
      make_room(f.cost());
      f.append(false, std::move(row));
    }
  }

  std::vector<float> read(int feature, std::uint64_t id) const {
    const PlainFeature& f = features[feature];
    if (const auto found = f.row_at.find(id); found != f.row_at.end())
      return f.values(f.rows[found->second].payload);
    if (const auto found = f.cold.find(id); found != f.cold.end())
      return f.values(found->second.payload);
    const bool awaited =
        f.filtered(RowAdmission::Filter::kExact) ||
        (f.filtered(RowAdmission::Filter::kBloom) && f.counted(id) < f.spec.admission.threshold);
    return awaited ? std::vector<float>(f.spec.width) : f.first(id);
  }
};

// ---- Both ---------------------------------------------------------------------------------------

std::vector<FeatureSpec> features() {
  std::vector<FeatureSpec> out(5);
  const char* const names[] = {"user", "item", "word", "shop", "page"};
  const int widths[] = {4, 3, 17, 6, 1};
  const RowPrecision precisions[] = {RowPrecision::kFp32, RowPrecision::kFp16, RowPrecision::kInt8,
                                     RowPrecision::kFp16, RowPrecision::kFp32};
  for (int i = 0; i < 5; ++i) {
    out[i].name = names[i];
    out[i].width = widths[i];
    out[i].precision = precisions[i];
    if (i % 2) out[i].optimizer.kind = RowOptimizerKind::kSgd;
    out[i].optimizer.initial_accumulator = 0.01;
  }
  out[1].eviction.policy = RowEviction::Policy::kLeastFrequent;
  out[1].init.scale = 2e-4;  // rows among the denormal numbers of fp16
  out[1].optimizer.learning_rate = 1e-4;
  out[2].admission = {.filter = RowAdmission::Filter::kExact, .threshold = 3};
  out[2].eviction.steps_to_live = 200;
  out[3].admission = {.filter = RowAdmission::Filter::kBloom, .threshold = 2};
  out[4].eviction.steps_to_live = 60;
  return out;
}

// Ids that all features share: often small, sometimes at the ends of the range.
std::uint64_t some_id(std::mt19937_64& random) {
  switch (random() % 50) {
    case 0:
      return 0;
    case 1:
      return kLargest;
    case 2:
      return kLargest - random() % 300;
    default:
      return random() % (random() % 2 ? 50 : 1500);
  }
}

Ids some_ids(std::mt19937_64& random, std::size_t most) {
  std::set<std::uint64_t> ids;
  for (std::size_t n = 1 + random() % most; n > 0; --n) ids.insert(some_id(random));
  return {ids.begin(), ids.end()};
}

void expect_same_row(const RowRecord& row, const PlainRow& plain, RowTier tier) {
  ASSERT_EQ(row.id, plain.id);
  ASSERT_EQ(row.step, plain.step) << row.id;
  ASSERT_EQ(row.hits, plain.hits) << row.id;
  ASSERT_EQ(row.recent, plain.recent) << row.id;
  ASSERT_EQ(row.tier, tier);
  ASSERT_EQ(std::string(reinterpret_cast<const char*>(row.payload.data()), row.payload.size()),
            plain.payload)
      << row.id;
}

// Compares every row in the order of slots.
void expect_same_rows(const RowTable& table, const PlainTable& plain) {
  ASSERT_EQ(table.used_bytes(), plain.used());
  std::vector<std::pair<int, PlainRow>> expected;
  std::vector<RowTier> tiers;
  for (const PlainFeature& f : plain.features) {
    for (const auto* list : {&f.rows, &f.candidates})
      for (const PlainRow& row : *list) {
        expected.emplace_back(f.number, row);
        tiers.push_back(RowTier::kMemory);
      }
    for (const auto& [id, row] : f.cold) {
      expected.emplace_back(f.number, row);
      tiers.push_back(RowTier::kDisk);
    }
  }
  std::size_t at = 0;
  table.for_each_row([&](const RowRecord& row) {
    if (at < expected.size() && !testing::Test::HasFatalFailure()) {
      ASSERT_EQ(row.feature, expected[at].first);
      expect_same_row(row, expected[at].second, tiers[at]);
    }
    ++at;
  });
  ASSERT_EQ(at, expected.size());
}

// A copy made through the interface of snapshots.
std::unique_ptr<RowTable> restarted(const RowTable& table, const RowTableOptions& options) {
  auto copy = std::make_unique<RowTable>(table.features(), options);
  table.for_each_row([&](const RowRecord& row) { copy->insert_row(row); });
  copy->restore_bookkeeping(table.bookkeeping(), RowTable::Bookkeeping::kWhole);
  return copy;
}

// Rows that are divided among several tables and merged again are unchanged.
void expect_same_after_resharding(const RowTable& table, const RowTableOptions& options,
                                  std::uint64_t shards) {
  RowTableOptions unlimited = options;
  unlimited.memory_bytes = 0;
  unlimited.cold.clear();
  std::vector<std::unique_ptr<RowTable>> parts;
  for (std::uint64_t i = 0; i < shards; ++i)
    parts.push_back(std::make_unique<RowTable>(table.features(), unlimited));
  table.for_each_row([&](const RowRecord& row) { parts[row.id % shards]->insert_row(row); });
  RowTable whole(table.features(), unlimited);
  for (const auto& part : parts) {
    part->restore_bookkeeping(table.bookkeeping(), RowTable::Bookkeeping::kPart);
    part->for_each_row([&](const RowRecord& row) { whole.insert_row(row); });
    whole.restore_bookkeeping(part->bookkeeping(), RowTable::Bookkeeping::kPart);
  }
  ASSERT_EQ(whole.digest(), table.digest());
  std::mt19937_64 random(shards);
  for (int feature = 0; feature < 5; ++feature) {
    const Ids ids = some_ids(random, 100);
    const auto width = static_cast<std::size_t>(table.features()[feature].width);
    std::vector<float> a(ids.size() * width), b(a.size());
    table.read(feature, ids, a);
    whole.read(feature, ids, b);
    ASSERT_EQ(a, b);
  }
}

void run_both(const std::string& cold, int operations) {
  RowTableOptions options = {.seed = 7, .memory_bytes = 60'000, .cold = cold, .bloom_bytes = 4096};
  auto table = std::make_unique<RowTable>(features(), options);
  PlainTable plain(features(), options);
  std::mt19937_64 random(11);
  std::int64_t step = 0;
  int restarts = 0;
  for (int operation = 0; operation < operations; ++operation) {
    const auto kind = random() % 1000;
    const int feature = static_cast<int>(random() % 5);
    const auto width = static_cast<std::size_t>(table->features()[feature].width);
    if (kind < 550) {
      const Ids ids = some_ids(random, 4);
      std::vector<float> gradients(ids.size() * width);
      for (float& g : gradients)
        g = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 256;
      const double factor = random() % 4 ? 1.0 : 0.3;
      ++step;
      table->update(step, feature, ids, gradients, factor);
      plain.update(step, feature, ids, gradients, factor);
      if (random() % 4 == 0) {
        table->end_step(step);
        for (PlainFeature& f : plain.features) f.expire(step);
      }
    } else if (kind < 995) {
      const Ids ids = some_ids(random, 3);
      std::vector<float> rows(ids.size() * width);
      table->read(feature, ids, rows);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::vector<float> expected = plain.read(feature, ids[i]);
        for (std::size_t k = 0; k < width; ++k)
          ASSERT_EQ(rows[i * width + k], expected[k])
              << operation << " feature " << feature << " id " << ids[i];
      }
    } else if (kind < 998) {
      options.memory_bytes = 30'000 + static_cast<std::int64_t>(random() % 60'000);
      table->set_memory_bytes(options.memory_bytes);
      plain.limit = options.memory_bytes;
      plain.make_room(0);
    } else if (operation % 20 == 0) {
      RowTableOptions next = options;
      if (!cold.empty()) next.cold = cold + std::to_string(++restarts);
      auto again = restarted(*table, next);
      ASSERT_EQ(again->digest(), table->digest());
      table = std::move(again);
    }
    if (operation % 25'000 == 0) {
      ASSERT_NO_FATAL_FAILURE(expect_same_rows(*table, plain)) << operation;
      ASSERT_NO_FATAL_FAILURE(expect_same_after_resharding(*table, options, 2 + random() % 4));
    }
  }
  ASSERT_NO_FATAL_FAILURE(expect_same_rows(*table, plain));
  for (int feature = 0; feature < 5; ++feature) {
    const FeatureCounts counts = table->counts(feature);
    EXPECT_GT(counts.rows, 0);
    EXPECT_EQ(counts.cold_rows, plain.features[feature].cold.size());
  }
}

TEST(RowOracle, MatchesPlainMapsInMemory) { run_both("", kOperations * 4 / 5); }

TEST(RowOracle, MatchesPlainMapsWithRowsOnDisk) {
  const ScratchFolder folder;
  run_both(folder.path("cold"), kOperations / 5);
}

}  // namespace
}  // namespace strata
