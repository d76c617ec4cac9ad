// Insertion, eviction and snapshots of rows. The order of slots depends on updates only and
// determines evictions, so snapshots write rows in that order and read them in the same order.
#include <algorithm>

#include "strata/base/errors.h"
#include "strata/rowserver/rows/feature_table.h"

namespace strata {
namespace {

constexpr std::uint32_t kWindow = 16;  // rows that lfu compares

std::uint32_t word_at(const char* from) {
  std::uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

std::span<const std::byte> bytes_of(const std::string& text, std::size_t from) {
  return std::as_bytes(std::span(text)).subspan(from);
}

// Number of the `rows` to examine per step, so that each is examined every steps_to_live / 4 steps.
std::int64_t looked_at(std::int64_t rows, std::int64_t steps_to_live) {
  const std::int64_t steps = std::max<std::int64_t>(1, steps_to_live / 4);
  return (rows + steps - 1) / steps;
}

}  // namespace

// ---- Insertion and removal
// ---------------------------------------------------------------------------

std::uint32_t FeatureTable::append(RowMemory& memory, std::uint32_t bit, std::uint64_t id,
                                   std::uint32_t version, std::uint32_t uses, const void* values,
                                   const void* states) {
  const std::uint32_t slot = memory.append() | bit;
  const RowBytes to = row(slot);
  to.set_uses(uses);
  if (states && layout_.num_states)
    std::memcpy(to.states(layout_.value_bytes), states, 4 * std::size_t(layout_.num_states));
  to.write(id, version, values, values ? layout_.value_bytes : 0);
  budget_.used_bytes += cost(slot);
  return slot;
}

void FeatureTable::enter(std::uint64_t id, std::uint32_t slot) {
  const std::uint64_t hash = row_hash(id);
  const RowIndex::Change change(index_, hash);
  index_.insert(hash, slot, hash_of_slot_);
}

// The last row moves to the place of the removed row.
void FeatureTable::remove(std::uint32_t slot) {
  RowMemory& from = memory(slot);
  const std::uint32_t last = (from.size() - 1) | (slot & kCandidate);
  {
    const std::uint64_t hash = row_hash(row(slot).id());
    const RowIndex::Change change(index_, hash);
    index_.erase(hash, slot, hash_of_slot_);
  }
  if (slot != last) {
    const RowBytes to = row(slot), moved = row(last);
    const bool whole = (slot & kCandidate) == 0;
    to.set_uses(moved.uses());
    if (whole)
      std::memcpy(to.states(layout_.value_bytes), moved.states(layout_.value_bytes),
                  4 * std::size_t(layout_.num_states));
    to.write(moved.id(), moved.version(), moved.values(), whole ? layout_.value_bytes : 0);
    const std::uint64_t hash = row_hash(moved.id());
    const RowIndex::Change change(index_, hash);
    index_.replace(hash, last, slot);
  }
  budget_.used_bytes -= cost(slot);
  from.pop();
}

void FeatureTable::evict(std::uint32_t slot) {
  const RowBytes gone = row(slot);
  if (cold_ && (slot & kCandidate) == 0) {
    const std::uint32_t header[2] = {gone.version(), gone.uses()};
    cold_row_.assign(reinterpret_cast<const char*>(header), sizeof(header));
    cold_row_.append(reinterpret_cast<const char*>(gone.values()), layout_.payload_bytes());
    cold_->put(number_, gone.id(), bytes_of(cold_row_, 0));
    cold_rows_.fetch_add(1, std::memory_order_relaxed);
    ++counts_.spilled;
  }
  ++counts_.evicted;
  remove(slot);
}

bool FeatureTable::return_from_disk(std::uint64_t id) {
  if (cold_rows_.load(std::memory_order_relaxed) == 0) return false;
  std::string kept;
  if (!cold_->get(number_, id, kept)) return false;
  make_room(layout_.cost_bytes());
  const char* const values = kept.data() + kColdHeaderBytes;
  const std::uint32_t slot = append(rows_, 0, id, word_at(kept.data()), word_at(kept.data() + 4),
                                    values, values + layout_.value_bytes);
  const std::uint64_t hash = row_hash(id);
  const RowIndex::Change change(index_, hash);
  index_.insert(hash, slot, hash_of_slot_);
  cold_->erase(number_, id);
  cold_rows_.fetch_sub(1, std::memory_order_relaxed);
  ++counts_.returned;
  return true;
}

bool FeatureTable::evict_from(Kind kind, std::uint32_t& position) {
  const std::uint32_t bit = kind == Kind::kCandidates ? kCandidate : 0;
  const RowMemory& from = memory(bit);
  if (position >= from.size()) return false;
  if (bit || spec_.eviction.policy == RowEviction::Policy::kClock) {
    for (; position < from.size(); ++position) {
      const RowBytes seen = from.row(position);
      if (recent_of(seen.uses()) == 0) {
        evict(position | bit);
        return true;
      }
      seen.set_uses(uses_of(hits_of(seen.uses()), 0));
    }
    return false;
  }
  const std::uint32_t n = std::min(kWindow, from.size());
  const std::uint32_t begin = std::min(position, from.size() - n);
  std::uint32_t least = begin;
  for (std::uint32_t slot = begin; slot < begin + n; ++slot)
    if (recent_of(from.row(slot).uses()) < recent_of(from.row(least).uses())) least = slot;
  for (std::uint32_t slot = begin; slot < begin + n; ++slot) {
    const std::uint32_t uses = from.row(slot).uses();
    if (slot != least) from.row(slot).set_uses(uses_of(hits_of(uses), recent_of(uses) / 2));
  }
  evict(least);
  position = begin + n - 1;
  return true;
}

void FeatureTable::expire(std::int64_t step) {
  const std::int64_t steps_to_live = spec_.eviction.steps_to_live;
  if (steps_to_live == 0) return;
  for (const std::uint32_t bit : {0u, kCandidate}) {
    const RowMemory& from = memory(bit);
    std::uint32_t& position = expiry_position[bit ? 1 : 0];
    for (std::int64_t left = looked_at(from.size(), steps_to_live); left > 0 && from.size() > 0;
         --left) {
      if (position >= from.size()) position = 0;
      if (step - step_of(from.row(position).version()) >= steps_to_live) {
        remove(position | bit);
        ++counts_.expired;
      } else {
        ++position;
      }
    }
  }
  expire_cold(step);
}

void FeatureTable::expire_cold(std::int64_t step) {
  std::int64_t left =
      looked_at(cold_rows_.load(std::memory_order_relaxed), spec_.eviction.steps_to_live);
  if (left == 0) return;
  std::vector<std::uint64_t> gone;
  bool ended = true;
  cold_->visit(number_, cold_expiry_id, [&](std::uint64_t id, std::span<const std::byte> kept) {
    if (left == 0) {
      cold_expiry_id = id;
      return ended = false;
    }
    --left;
    const std::uint32_t version = word_at(reinterpret_cast<const char*>(kept.data()));
    if (step - step_of(version) >= spec_.eviction.steps_to_live) gone.push_back(id);
    return true;
  });
  if (ended) cold_expiry_id = 0;
  for (const std::uint64_t id : gone) {
    const RowIndex::Change change(index_, row_hash(id));
    cold_->erase(number_, id);
    cold_rows_.fetch_sub(1, std::memory_order_relaxed);
    ++counts_.expired;
  }
}

void FeatureTable::trim() {
  rows_.trim();
  candidates_.trim();
  epochs_.collect();
}

// ---- Snapshots ----------------------------------------------------------------------------------

namespace {

RowRecord record(int feature, std::uint64_t id, std::uint32_t version, std::uint32_t uses) {
  return {.feature = feature,
          .id = id,
          .step = step_of(version),
          .hits = hits_of(uses),
          .recent = static_cast<std::uint8_t>(recent_of(uses))};
}

}  // namespace

void FeatureTable::for_each(const std::function<void(const RowRecord&)>& visitor) const {
  for (const std::uint32_t bit : {0u, kCandidate}) {
    const RowMemory& from = memory(bit);
    for (std::uint32_t slot = 0; slot < from.size(); ++slot) {
      const RowBytes seen = from.row(slot);
      RowRecord out = record(number_, seen.id(), seen.version(), seen.uses());
      out.candidate = bit != 0;
      if (!bit) out.payload = {seen.values(), static_cast<std::size_t>(layout_.payload_bytes())};
      visitor(out);
    }
  }
  if (cold_rows_.load(std::memory_order_relaxed) == 0) return;
  cold_->visit(number_, 0, [&](std::uint64_t id, std::span<const std::byte> kept) {
    const char* const header = reinterpret_cast<const char*>(kept.data());
    RowRecord out = record(number_, id, word_at(header), word_at(header + 4));
    out.tier = RowTier::kDisk;
    out.payload = kept.subspan(kColdHeaderBytes);
    visitor(out);
    return true;
  });
}

std::optional<RowRecord> FeatureTable::find(std::uint64_t id, std::string& payload) const {
  const std::uint32_t slot = slot_of(id);
  if (slot != kNoSlot) {
    const RowBytes seen = row(slot);
    RowRecord out = record(number_, id, seen.version(), seen.uses());
    out.candidate = (slot & kCandidate) != 0;
    if (!out.candidate) {
      payload.assign(reinterpret_cast<const char*>(seen.values()), layout_.payload_bytes());
      out.payload = bytes_of(payload, 0);
    }
    return out;
  }
  if (cold_rows_.load(std::memory_order_relaxed) == 0 || !cold_->get(number_, id, payload))
    return std::nullopt;
  RowRecord out = record(number_, id, word_at(payload.data()), word_at(payload.data() + 4));
  out.tier = RowTier::kDisk;
  out.payload = bytes_of(payload, kColdHeaderBytes);
  return out;
}

void FeatureTable::insert(const RowRecord& in) {
  const std::size_t expected = in.candidate ? 0 : layout_.payload_bytes();
  const std::string where = "feature '" + spec_.name + "', id " + std::to_string(in.id);
  if (in.payload.size() != expected)
    throw UserError({.operation = "embed.insert_row",
                     .where = where,
                     .what = "a row of another width, precision or optimizer",
                     .expected = std::to_string(expected) + " bytes: " + layout_text(spec_),
                     .got = std::to_string(in.payload.size()) + " bytes",
                     .fix = "load it with the recipe that it was trained with"});
  std::string unused;
  if (find(in.id, unused))
    throw UserError({.operation = "embed.insert_row",
                     .where = where,
                     .what = "this row is there already",
                     .expected = "a row of another id",
                     .got = "the same id twice",
                     .fix = "load rows into an empty table, each once"});
  const std::uint32_t version = version_of(in.step), uses = uses_of(in.hits, in.recent);
  if (in.tier == RowTier::kDisk && cold_) {
    const std::uint32_t header[2] = {version, uses};
    cold_row_.assign(reinterpret_cast<const char*>(header), sizeof(header));
    cold_row_.append(reinterpret_cast<const char*>(in.payload.data()), in.payload.size());
    cold_->put(number_, in.id, bytes_of(cold_row_, 0));
    cold_rows_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  make_room(in.candidate ? kRowOverheadBytes : layout_.cost_bytes());
  const std::byte* const values = in.payload.data();
  enter(in.id, in.candidate
                   ? append(candidates_, kCandidate, in.id, version, uses, nullptr, nullptr)
                   : append(rows_, 0, in.id, version, uses, values, values + layout_.value_bytes));
}

FeatureCounts FeatureTable::counts() const {
  FeatureCounts out = counts_;
  out.rows = rows_.size();
  out.candidates = candidates_.size();
  out.cold_rows = cold_rows_.load(std::memory_order_relaxed);
  out.cold_bytes =
      out.cold_rows * (static_cast<std::int64_t>(kColdHeaderBytes) + layout_.payload_bytes());
  out.bytes = rows_.bytes() + candidates_.bytes() + index_.bytes() + bloom.bytes();
  out.read_cold = read_cold_.load(std::memory_order_relaxed);
  return out;
}

}  // namespace strata
