// A reader sees a row in at least one place: a row is in memory before it leaves the disk, and on
// disk before it leaves memory. A reader that finds a row in neither place checks whether its
// segment of the index has changed in the meantime.
#include "strata/rowserver/rows/feature_table.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "hwy/cache_control.h"
#include "strata/base/enum_names.h"
#include "strata/base/errors.h"
#include "strata/rowserver/codec/row_rounding.h"
#include "strata/rowserver/rows/row_draws.h"
#include "strata/rowserver/rows/row_search.h"
#include "strata/rowserver/rows/row_update.h"

namespace strata {
namespace {

constexpr std::size_t kBlock = 32;   // ids that are searched together
constexpr int kFetchedBytes = 1024;  // bytes of a row that are prefetched

// base^n by multiplication only: the last bits of pow() differ between processors.
double power(double base, std::uint32_t n) {
  double result = 1;
  for (; n; n >>= 1, base *= base)
    if (n & 1) result *= base;
  return result;
}

void fetch(std::byte* from, int bytes) {
  for (int at = 0; at < std::min(bytes, kFetchedBytes); at += 64) hwy::Prefetch(from + at);
}

}  // namespace

const char* name_of(RowTier tier) {
  using enum RowTier;
  static constexpr EnumNames<RowTier> kNames{{kMemory, "memory"}, {kDisk, "disk"}};
  return kNames[tier];
}

struct FeatureTable::Step {
  std::uint32_t version;
  kernels::RowUpdate update;  // except for what depends on the number of the row's updates
  double rate;
};

FeatureTable::FeatureTable(const FeatureSpec& spec, int number, std::uint64_t seed,
                           std::int64_t bloom_bytes, ColdRows* cold, RowBudget& budget)
    : bloom(spec.admission.filter == RowAdmission::Filter::kBloom && spec.admission.threshold > 1
                ? bloom_bytes
                : 0),
      spec_(spec),
      number_(number),
      key_(feature_key(seed, spec.name)),
      layout_(spec),
      cold_(cold),
      budget_(budget),
      rows_(layout_.row_bytes()),
      candidates_(kRowHeaderBytes),
      index_(epochs_),
      hash_of_slot_([this](std::uint32_t slot) { return row_hash(row(slot).id()); }),
      values_(layout_.width),
      states_(layout_.num_states),
      words_(layout_.width + 32),
      stored_(layout_.value_bytes) {}

// ---- Reading ------------------------------------------------------------------------------------

void FeatureTable::widen(const std::byte* values, float* out) const {
  switch (layout_.precision) {
    case RowPrecision::kFp32:
      std::memcpy(out, values, layout_.value_bytes);
      return;
    case RowPrecision::kFp16:
      return kernels::widen_fp16(reinterpret_cast<const std::uint16_t*>(values), out,
                                 layout_.width);
    case RowPrecision::kInt8:
      float scale;
      std::memcpy(&scale, values, sizeof(scale));
      return kernels::widen_int8(reinterpret_cast<const std::int8_t*>(values + sizeof(scale)),
                                 scale, out, layout_.width);
  }
}

RowBytes::Copied FeatureTable::copy_row(std::uint32_t slot, std::uint64_t id, float* out) const {
  const RowBytes from = row(slot);
  if (slot & kCandidate) {
    const RowBytes::Copied copied = from.copy(id, nullptr, 0);
    if (copied == RowBytes::Copied::kYes) std::fill_n(out, layout_.width, 0.0f);
    return copied;
  }
  if (layout_.precision == RowPrecision::kFp32) return from.copy(id, out, layout_.value_bytes);
  alignas(8) std::byte values[2 * kMaxRowWidth + 8];
  const RowBytes::Copied copied = from.copy(id, values, layout_.value_bytes);
  if (copied == RowBytes::Copied::kYes) widen(values, out);
  return copied;
}

// Three blocks are in progress: while the chunks of one block are prefetched, the block before is
// searched and its rows are prefetched, and the rows of the block before that are visited.
template <typename Visit>
void FeatureTable::find_ahead(std::span<const std::uint64_t> ids, int fetched_bytes,
                              Visit visit) const {
  kernels::SearchStart starts[2][kBlock];
  std::uint32_t slots[2][kBlock];
  const std::size_t blocks = (ids.size() + kBlock - 1) / kBlock;
  const auto block = [&](std::size_t b) {
    return ids.subspan(b * kBlock, std::min(kBlock, ids.size() - b * kBlock));
  };
  for (std::size_t b = 0; b < blocks + 2; ++b) {
    if (b < blocks) kernels::begin_search(index_, block(b), starts[b % 2]);
    if (b >= 1 && b <= blocks) {
      const std::size_t n = block(b - 1).size();
      kernels::search({starts[(b - 1) % 2], n}, slots[(b - 1) % 2]);
      for (const std::uint32_t slot : std::span(slots[(b - 1) % 2], n))
        if (slot != kNoSlot) fetch(memory(slot).address(slot & ~kCandidate), fetched_bytes);
    }
    if (b < 2) continue;
    const std::size_t n = block(b - 2).size();
    for (std::size_t i = 0; i < n; ++i) visit((b - 2) * kBlock + i, slots[b % 2][i]);
  }
}

void FeatureTable::read(std::span<const std::uint64_t> ids, std::span<float> rows) const {
  const bool plain = layout_.precision == RowPrecision::kFp32;
  find_ahead(ids, kRowHeaderBytes + layout_.value_bytes, [&](std::size_t i, std::uint32_t slot) {
    float* const out = rows.data() + i * layout_.width;
    if (slot == kNoSlot) return read_slowly(ids[i], out);
    const RowBytes::Copied copied = plain && !(slot & kCandidate)
                                        ? rows_.row(slot).copy(ids[i], out, layout_.value_bytes)
                                        : copy_row(slot, ids[i], out);
    if (copied != RowBytes::Copied::kYes) read_slowly(ids[i], out);
  });
}

void FeatureTable::read_slowly(std::uint64_t id, float* out) const {
  const std::uint64_t hash = row_hash(id);
  for (int attempt = 0;; ++attempt) {
    if (attempt > 64) std::this_thread::yield();
    const std::uint32_t version = index_.version(hash);
    RowBytes::Copied copied = RowBytes::Copied::kOtherRow;
    index_.find(hash, [&](std::uint32_t slot) {
      copied = copy_row(slot, id, out);
      return copied != RowBytes::Copied::kOtherRow;
    });
    if (copied == RowBytes::Copied::kYes) return;
    if (copied == RowBytes::Copied::kBusy || version % 2) continue;
    read_absent(id, hash, out);
    if (index_.unchanged(hash, version)) return;
  }
}

void FeatureTable::read_absent(std::uint64_t id, std::uint64_t hash, float* out) const {
  if (cold_rows_.load(std::memory_order_relaxed) > 0) {
    std::string row;
    if (cold_->get(number_, id, row)) {
      read_cold_.fetch_add(1, std::memory_order_relaxed);
      return widen(reinterpret_cast<const std::byte*>(row.data()) + kColdHeaderBytes, out);
    }
  }
  const bool awaited =
      filtered(RowAdmission::Filter::kExact) ||
      (filtered(RowAdmission::Filter::kBloom) && bloom.count(hash) < spec_.admission.threshold);
  if (awaited) return static_cast<void>(std::fill_n(out, layout_.width, 0.0f));
  draw_first_values(spec_.init, key_, id, {out, static_cast<std::size_t>(layout_.width)});
}

// ---- Updating -----------------------------------------------------------------------------------

bool FeatureTable::holds(std::uint32_t slot, std::uint64_t id) const {
  if (slot == kNoSlot || (slot & ~kCandidate) >= memory(slot).size()) return false;
  const RowBytes found = row(slot);
  return found.version() != 0 && found.id() == id;
}

std::uint32_t FeatureTable::slot_of(std::uint64_t id) const {
  return index_.find(row_hash(id), [&](std::uint32_t slot) { return holds(slot, id); });
}

void FeatureTable::update(std::int64_t step, std::span<const std::uint64_t> ids,
                          std::span<const float> gradients, double rate_factor) {
  const RowOptimizerOptions& o = spec_.optimizer;
  Step now = {.version = version_of(step), .update = {}, .rate = o.learning_rate * rate_factor};
  kernels::RowUpdate& u = now.update;
  u.kind = o.kind;
  u.rate = u.size = static_cast<float>(now.rate);
  u.epsilon = static_cast<float>(o.epsilon);
  const bool decoupled = o.kind == RowOptimizerKind::kAdamW;
  u.weight_decay = decoupled ? 0.0f : static_cast<float>(o.weight_decay);
  u.kept = decoupled ? static_cast<float>(1 - now.rate * o.weight_decay) : 1.0f;
  u.momentum = static_cast<float>(o.momentum);
  u.mean_kept = static_cast<float>(o.beta1);
  u.mean_share = static_cast<float>(1 - o.beta1);
  u.square_kept = static_cast<float>(o.beta2);
  u.square_share = static_cast<float>(1 - o.beta2);
  u.l1 = static_cast<float>(o.l1);
  u.l2 = static_cast<float>(o.l2);

  find_ahead(ids, layout_.row_bytes(), [&](std::size_t i, std::uint32_t slot) {
    update_row(now, ids[i], slot, gradients.data() + i * layout_.width);
  });
  last_step = step;
}

// The slot was correct when it was searched; an eviction since then may have moved the row.
void FeatureTable::update_row(const Step& step, std::uint64_t id, std::uint32_t slot,
                              const float* gradient) {
  if (!holds(slot, id)) slot = slot_of(id);
  if (slot == kNoSlot && return_from_disk(id)) slot = rows_.size() - 1;
  if (slot == kNoSlot)
    return filtered(RowAdmission::Filter::kExact) ? start_counting(step, id)
                                                  : admit(step, id, gradient);
  if (slot & kCandidate) {
    if (hits_of(row(slot).uses()) + 1 < spec_.admission.threshold)
      return count_candidate(step, id, slot);
    remove(slot);
    return admit(step, id, gradient);
  }
  update_present(step, row(slot), gradient);
}

void FeatureTable::start_counting(const Step& step, std::uint64_t id) {
  make_room(kRowOverheadBytes);
  enter(id, append(candidates_, kCandidate, id, step.version, uses_of(1, 1), nullptr, nullptr));
  ++counts_.refused;
}

void FeatureTable::count_candidate(const Step& step, std::uint64_t id, std::uint32_t slot) {
  const RowBytes found = row(slot);
  found.set_uses(uses_of(hits_of(found.uses()) + 1, 1));
  found.write(id, step.version, nullptr, 0);
  ++counts_.refused;
}

// Sets values_ to the result of update number `hits` of a row with these values.
void FeatureTable::compute(const Step& step, std::uint32_t hits, const float* values,
                           const float* gradient, float* states) {
  const RowOptimizerOptions& o = spec_.optimizer;
  if (o.kind != RowOptimizerKind::kAdam && o.kind != RowOptimizerKind::kAdamW)
    return kernels::update_row(step.update, values, gradient, states, values_.data(),
                               layout_.width);
  kernels::RowUpdate update = step.update;
  update.size = static_cast<float>(step.rate / (1 - power(o.beta1, hits)));
  update.root_scale = static_cast<float>(1 / std::sqrt(1 - power(o.beta2, hits)));
  kernels::update_row(update, values, gradient, states, values_.data(), layout_.width);
}

// Converts values_ to the precision of the row.
const void* FeatureTable::stored(std::uint64_t id, std::uint32_t version) {
  if (layout_.precision == RowPrecision::kFp32) return values_.data();
  kernels::draw_words(mix_key(key_, 1), id, version, words_.data(), layout_.width);
  if (layout_.precision == RowPrecision::kFp16) {
    kernels::round_fp16(values_.data(), words_.data(),
                        reinterpret_cast<std::uint16_t*>(stored_.data()), layout_.width);
  } else {
    auto* const bytes = reinterpret_cast<std::int8_t*>(stored_.data());
    const float scale =
        kernels::round_int8(values_.data(), words_.data(), bytes + sizeof(float), layout_.width);
    std::memcpy(bytes, &scale, sizeof(scale));
  }
  return stored_.data();
}

void FeatureTable::use(RowBytes row, std::uint32_t hits) const {
  const bool clock = spec_.eviction.policy == RowEviction::Policy::kClock;
  const std::uint32_t recent = recent_of(row.uses());
  row.set_uses(uses_of(hits, clock ? 1 : std::min(recent + 1, 255u)));
}

void FeatureTable::update_present(const Step& step, RowBytes row, const float* gradient) {
  const std::uint32_t hits = std::min(hits_of(row.uses()) + 1, kMostHits);
  const bool plain = layout_.precision == RowPrecision::kFp32;
  if (!plain) widen(row.values(), values_.data());
  compute(step, hits, plain ? reinterpret_cast<const float*>(row.values()) : values_.data(),
          gradient, row.states(layout_.value_bytes));
  use(row, hits);
  const std::uint64_t id = row.id();
  row.write(id, step.version, stored(id, step.version), layout_.value_bytes);
}

// An id without a row, or with a saturated count: creates its row or counts it in the Bloom filter.
void FeatureTable::admit(const Step& step, std::uint64_t id, const float* gradient) {
  const std::uint64_t hash = row_hash(id);
  const std::int64_t threshold = spec_.admission.threshold;
  const bool bloomed = filtered(RowAdmission::Filter::kBloom);
  if (bloomed && bloom.count(hash) + 1 < threshold) {
    bloom.add(hash);
    ++counts_.refused;
    return;
  }
  draw_first_values(spec_.init, key_, id, values_);
  const bool squares = spec_.optimizer.kind == RowOptimizerKind::kAdagrad ||
                       spec_.optimizer.kind == RowOptimizerKind::kRowWiseAdagrad;
  const auto first = static_cast<float>(spec_.optimizer.initial_accumulator);
  std::fill(states_.begin(), states_.end(), squares ? first : 0.0f);
  if (spec_.optimizer.kind == RowOptimizerKind::kFtrl)
    std::fill(states_.begin() + layout_.width, states_.end(), first);
  compute(step, 1, values_.data(), gradient, states_.data());
  make_room(layout_.cost_bytes());
  const std::uint32_t slot =
      append(rows_, 0, id, step.version, uses_of(1, 1), stored(id, step.version), states_.data());
  const RowIndex::Change change(index_, hash);
  if (bloomed) bloom.add(hash);
  index_.insert(hash, slot, hash_of_slot_);
  ++counts_.admitted;
}

}  // namespace strata
