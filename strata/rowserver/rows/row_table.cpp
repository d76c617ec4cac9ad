#include "strata/rowserver/rows/row_table.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::int64_t kLeastRows = 64;  // smallest number of rows that a budget holds

void check_features(const std::vector<FeatureSpec>& features, const RowTableOptions& options) {
  std::set<std::string> names;
  std::int64_t widest = 0;
  for (const FeatureSpec& spec : features) {
    check_feature(spec);
    if (!names.insert(spec.name).second)
      throw UserError({.operation = "embed.table",
                       .where = "feature '" + spec.name + "'",
                       .what = "two features have this name",
                       .expected = "names that differ",
                       .got = "the same name twice",
                       .fix = "rename one"});
    widest = std::max<std::int64_t>(widest, RowLayout(spec).cost_bytes());
  }
  if (options.memory_bytes < 0 ||
      (options.memory_bytes && options.memory_bytes < kLeastRows * widest))
    throw UserError(
        {.operation = "embed.table",
         .where = "embedding.memory",
         .what = "so little memory holds no working set",
         .expected = std::to_string(kLeastRows * widest) + " bytes or more: 64 of the widest rows",
         .got = std::to_string(options.memory_bytes) + " bytes",
         .fix = "raise embedding.memory (--memory) to that, or set it to 0: no limit"});
  if (options.bloom_bytes < 1)
    throw UserError({.operation = "embed.table",
                     .where = "embedding.bloom",
                     .what = "a filter needs memory",
                     .expected = "a byte or more",
                     .got = std::to_string(options.bloom_bytes),
                     .fix = "set it to a byte or more"});
}

// Writes words as little-endian bytes.
class Writer {
 public:
  void word(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) text_.push_back(static_cast<char>(value >> 8 * i));
  }
  void byte(std::uint8_t value) { text_.push_back(static_cast<char>(value)); }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  std::uint64_t word() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value |= std::uint64_t{byte()} << 8 * i;
    return value;
  }
  std::uint8_t byte() {
    if (text_.empty()) refuse();
    const auto value = static_cast<std::uint8_t>(text_.front());
    text_.remove_prefix(1);
    return value;
  }
  void expect(std::uint64_t value) {
    if (word() != value) refuse();
  }
  void end() const {
    if (!text_.empty()) refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    throw UserError({.operation = "embed.bookkeeping",
                     .where = "snapshot",
                     .what = "the bookkeeping is not of a table with these features",
                     .expected = "the words that this program writes for them",
                     .got = "others",
                     .fix = "load it with the recipe that it was trained with"});
  }
  std::string_view text_;
};

constexpr std::uint64_t kBookkeepingFormat = 1;

std::uint64_t digest_of(const RowRecord& row) {
  Checksum sum;
  const std::uint64_t words[3] = {row.id, static_cast<std::uint64_t>(row.step),
                                  std::uint64_t{row.hits} << 1 | (row.candidate ? 1 : 0)};
  sum.add(std::as_bytes(std::span(words)));
  sum.add(row.payload);
  return sum.value();
}

}  // namespace

RowTable::RowTable(std::vector<FeatureSpec> features, RowTableOptions options)
    : specs_(std::move(features)), options_(std::move(options)) {
  check_features(specs_, options_);
  budget_.limit_bytes = options_.memory_bytes;
  budget_.make_room = [this](std::int64_t bytes) { make_room(bytes); };
  if (!options_.cold.empty()) cold_ = std::make_unique<ColdRows>(options_.cold);
  for (std::size_t i = 0; i < specs_.size(); ++i)
    features_.push_back(std::make_unique<FeatureTable>(
        specs_[i], static_cast<int>(i), options_.seed, options_.bloom_bytes, cold_.get(), budget_));
  publish_counts();
}

RowTable::~RowTable() = default;

FeatureTable& RowTable::rows_of(int feature) const {
  STRATA_CHECK(feature >= 0 && feature < static_cast<int>(features_.size()), "embed.table");
  return *features_[feature];
}

void RowTable::read(int feature, std::span<const std::uint64_t> ids, std::span<float> rows) const {
  const FeatureTable& from = rows_of(feature);
  STRATA_CHECK_EQ(rows.size(), ids.size() * from.layout().width, "embed.read");
  const ReadEpochs::Reading reading(from.epochs());
  from.read(ids, rows);
}

template <typename Change>
void RowTable::change(Change change) {
  if (failed_)
    throw SystemError({.operation = "embed.update",
                       .where = "row table",
                       .what = "an update before this one failed halfway",
                       .expected = "rows of one version",
                       .got = "rows of two",
                       .fix = "load the last snapshot and repeat the updates since"});
  try {
    change();
  } catch (...) {
    failed_ = true;
    throw;
  }
}

void RowTable::update(std::int64_t step, int feature, std::span<const std::uint64_t> ids,
                      std::span<const float> gradients, double rate_factor) {
  FeatureTable& rows = rows_of(feature);
  STRATA_CHECK_EQ(gradients.size(), ids.size() * rows.layout().width, "embed.update");
  STRATA_CHECK(step > rows.last_step && step <= kLastStep, "embed.update");
  for (std::size_t i = 1; i < ids.size(); ++i) STRATA_CHECK(ids[i - 1] < ids[i], "embed.update");
  // It searches some ids ahead of its changes; memory that the search returned must not be freed
  // meanwhile.
  const ReadEpochs::Reading reading(rows.epochs());
  change([&] { rows.update(step, ids, gradients, rate_factor); });
}

void RowTable::end_step(std::int64_t step) {
  change([&] {
    for (auto& rows : features_) {
      rows->expire(step);
      rows->trim();
    }
  });
  publish_counts();
}

// Evictions and rows on disk affect other features; without them, a feature's rows depend on its
// own updates only.
bool RowTable::features_are_independent(std::span<const std::size_t> ids) const {
  STRATA_CHECK_EQ(ids.size(), features_.size(), "embed.table");
  if (cold_) return false;
  std::int64_t bytes = budget_.used_bytes;
  for (std::size_t i = 0; i < ids.size(); ++i)
    bytes += static_cast<std::int64_t>(ids[i]) * features_[i]->layout().cost_bytes();
  return budget_.limit_bytes == 0 || bytes <= budget_.limit_bytes;
}

void RowTable::set_memory_bytes(std::int64_t bytes) {
  RowTableOptions changed = options_;
  changed.memory_bytes = bytes;
  check_features(specs_, changed);
  options_ = changed;
  budget_.limit_bytes = bytes;
  change([&] { make_room(0); });
}

void RowTable::make_room(std::int64_t bytes) {
  if (budget_.limit_bytes == 0) return;
  while (budget_.used_bytes + bytes > budget_.limit_bytes) {
    if (features_[hand_feature_]->evict_from(hand_kind_, hand_position_)) continue;
    hand_position_ = 0;
    if (hand_kind_ == FeatureTable::Kind::kRows) {
      hand_kind_ = FeatureTable::Kind::kCandidates;
    } else {
      hand_kind_ = FeatureTable::Kind::kRows;
      hand_feature_ = (hand_feature_ + 1) % static_cast<int>(features_.size());
    }
  }
}

// ---- Queries
// -----------------------------------------------------------------------------------------

std::optional<RowInfo> RowTable::info(int feature, std::uint64_t id) const {
  const FeatureTable& rows = rows_of(feature);
  std::string payload;
  const std::optional<RowRecord> found = rows.find(id, payload);
  if (!found) return std::nullopt;
  RowInfo info = {
      .tier = found->tier, .candidate = found->candidate, .step = found->step, .hits = found->hits};
  if (found->candidate) return info;
  const RowLayout& layout = rows.layout();
  info.values.resize(layout.width);
  rows.widen(found->payload.data(), info.values.data());
  info.states.resize(layout.num_states);
  std::copy_n(found->payload.data() + layout.value_bytes, 4 * info.states.size(),
              reinterpret_cast<std::byte*>(info.states.data()));
  return info;
}

FeatureCounts RowTable::counts(int feature) const { return rows_of(feature).counts(); }

void RowTable::publish_counts() {
  std::vector<FeatureCounts> counts;
  counts.reserve(features_.size());
  for (const auto& rows : features_) counts.push_back(rows->counts());
  const std::lock_guard lock(published_mutex_);
  published_.swap(counts);
}

std::vector<FeatureCounts> RowTable::last_counts() const {
  const std::lock_guard lock(published_mutex_);
  return published_;
}

std::int64_t RowTable::bytes() const {
  std::int64_t sum = 0;
  for (const auto& rows : features_) sum += rows->counts().bytes;
  return sum;
}

std::int64_t RowTable::used_bytes() const { return budget_.used_bytes; }

HotRows RowTable::hottest(int feature, int count) const {
  HotRows hot(count);
  rows_of(feature).for_each([&](const RowRecord& row) { hot.add(row); });
  return hot;
}

std::uint64_t RowTable::digest(int feature) const {
  std::uint64_t sum = 0;
  rows_of(feature).for_each([&](const RowRecord& row) { sum += digest_of(row); });
  return sum;
}

std::uint64_t RowTable::digest() const {
  Checksum all;
  for (std::size_t i = 0; i < features_.size(); ++i) {
    const std::uint64_t one = digest(static_cast<int>(i));
    all.add(std::as_bytes(std::span(&one, 1)));
  }
  return all.value();
}

// ---- Snapshots ----------------------------------------------------------------------------------

void RowTable::for_each_row(const std::function<void(const RowRecord&)>& visitor) const {
  for (const auto& rows : features_) rows->for_each(visitor);
}

void RowTable::insert_row(const RowRecord& row) { rows_of(row.feature).insert(row); }

std::string RowTable::bookkeeping() const {
  Writer out;
  out.word(kBookkeepingFormat);
  out.word(features_.size());
  out.word(static_cast<std::uint64_t>(hand_feature_));
  out.word(static_cast<std::uint64_t>(hand_kind_));
  out.word(hand_position_);
  for (const auto& rows : features_) {
    out.word(static_cast<std::uint64_t>(rows->last_step));
    out.word(rows->expiry_position[0]);
    out.word(rows->expiry_position[1]);
    out.word(rows->cold_expiry_id);
    out.word(static_cast<std::uint64_t>(rows->bloom.bytes()));
    for (std::int64_t i = 0; i < rows->bloom.bytes(); ++i) out.byte(rows->bloom.at(i));
  }
  return std::move(out).text();
}

void RowTable::restore_bookkeeping(std::string_view text, Bookkeeping of) {
  const bool whole = of == Bookkeeping::kWhole;
  Reader in(text);
  in.expect(kBookkeepingFormat);
  in.expect(features_.size());
  const auto feature = static_cast<int>(in.word());
  const auto kind = static_cast<FeatureTable::Kind>(in.word());
  const auto position = static_cast<std::uint32_t>(in.word());
  if (whole) {
    hand_feature_ = feature % std::max<int>(1, static_cast<int>(features_.size()));
    hand_kind_ = kind;
    hand_position_ = position;
  }
  for (auto& rows : features_) {
    rows->last_step = std::max(rows->last_step, static_cast<std::int64_t>(in.word()));
    const std::uint64_t positions[3] = {in.word(), in.word(), in.word()};
    if (whole) {
      rows->expiry_position[0] = static_cast<std::uint32_t>(positions[0]);
      rows->expiry_position[1] = static_cast<std::uint32_t>(positions[1]);
      rows->cold_expiry_id = positions[2];
    }
    in.expect(static_cast<std::uint64_t>(rows->bloom.bytes()));
    for (std::int64_t i = 0; i < rows->bloom.bytes(); ++i)
      rows->bloom.set(i, std::max(rows->bloom.at(i), in.byte()));
  }
  in.end();
  publish_counts();
}

}  // namespace strata
