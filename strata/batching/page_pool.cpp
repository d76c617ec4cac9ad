// A sequence that owns a published page owns all pages before it, because publish() replaces a page
// by its equal, and release() goes from the last page to the first. So a page becomes unused after
// the pages that follow it, and leaves a tier after them: the pages of a text lie on the device up
// to some page, then in the next tier, and so on, and none outlives the page before it.
#include "strata/batching/page_pool.h"

#include <algorithm>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/base/philox.h"

namespace strata {
namespace {

constexpr const char* kPool = "batching.page_pool";
constexpr std::size_t kDevice = 0;  // of the tiers

}  // namespace

std::uint64_t hash_page(std::uint64_t previous, std::span<const std::int64_t> tokens) {
  return mix_key(previous, checksum(std::as_bytes(tokens)));
}

PagePool::PagePool(std::int64_t pages, std::int64_t page_tokens,
                   const std::vector<std::int64_t>& lower, PageHash hash)
    : pages_(pages), page_tokens_(page_tokens), hash_(hash) {
  STRATA_CHECK(pages > 0 && page_tokens > 0, kPool);
  std::vector<std::int64_t> sizes = {pages};
  sizes.insert(sizes.end(), lower.begin(), lower.end());
  std::int64_t end = 0;
  for (const std::int64_t size : sizes) {
    end += size;
    STRATA_CHECK(size >= 0 && end <= INT32_MAX, kPool);
    if (size == 0) continue;  // pages go past it
    TierPages tier{.end = static_cast<std::int32_t>(end), .empty = {}, .unused = {}};
    for (std::int64_t page = end; page-- > end - size;)
      tier.empty.push_back(static_cast<std::int32_t>(page));
    tiers_.push_back(std::move(tier));
  }
  records_.resize(static_cast<std::size_t>(end));
  by_hash_.reserve(records_.size());
}

const PagePool::Record& PagePool::at(std::int32_t page) const {
  STRATA_CHECK(page >= 0 && page < std::ssize(records_), kPool);
  return records_[page];
}

PagePool::Record& PagePool::at(std::int32_t page) {
  return const_cast<Record&>(std::as_const(*this).at(page));
}

std::size_t PagePool::tier_of(std::int32_t page) const {
  std::size_t tier = kDevice;
  while (page >= tiers_[tier].end) ++tier;
  return tier;
}

std::int64_t PagePool::available() const {
  return std::int64_t(tiers_[kDevice].empty.size() + tiers_[kDevice].unused.size());
}

std::optional<std::int32_t> PagePool::allocate() {
  const std::optional<std::int32_t> page = take(kDevice);
  if (page) records_[*page].owners = 1;
  return page;
}

// A page without text; none if all pages of the tier have owners.
std::optional<std::int32_t> PagePool::take(std::size_t tier) {
  TierPages& from = tiers_[tier];
  if (from.empty.empty()) {
    if (from.unused.empty()) return std::nullopt;
    evict(tier);
  }
  const std::int32_t page = from.empty.back();
  from.empty.pop_back();
  return page;
}

void PagePool::evict(std::size_t tier) {
  const std::int32_t page = tiers_[tier].unused.front();
  tiers_[tier].unused.pop_front();
  for (std::size_t below = tier + 1; below < tiers_.size(); ++below) {
    const std::optional<std::int32_t> to = take(below);
    if (!to) continue;  // all its pages have an owner, which loads them
    move(page, *to);
    records_[*to].unused = tiers_[below].unused.insert(tiers_[below].unused.end(), *to);
    return;
  }
  forget(page);
  ++forgotten_;
}

// Leaves `from` empty.
void PagePool::move(std::int32_t from, std::int32_t to) {
  entry_of(from)->second = to;
  records_[to] = std::exchange(records_[from], {});
  tiers_[tier_of(from)].empty.push_back(from);
  moves_.push_back({from, to});
}

// A page without owner that is in no list.
void PagePool::forget(std::int32_t page) {
  by_hash_.erase(entry_of(page));
  records_[page] = {};
  tiers_[tier_of(page)].empty.push_back(page);
}

void PagePool::forget_unused() {
  for (TierPages& tier : tiers_)
    for (; !tier.unused.empty(); tier.unused.pop_front(), ++forgotten_) forget(tier.unused.front());
}

std::uint64_t PagePool::hash_after(std::int32_t previous, const PageScope& scope,
                                   std::span<const std::int64_t> tokens) const {
  const std::uint64_t before =
      previous == kNoPage ? mix_key(scope.weights, scope.key) : records_[previous].hash;
  return hash_(before, tokens);
}

std::int32_t PagePool::lookup(std::uint64_t hash, std::int32_t previous, const PageScope& scope,
                              std::span<const std::int64_t> tokens) const {
  const std::uint64_t text = previous == kNoPage ? 0 : records_[previous].text;
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto entry = first; entry != last; ++entry) {
    const Record& record = records_[entry->second];
    if (record.previous == text && record.scope == scope &&
        std::ranges::equal(record.tokens, tokens))
      return entry->second;
  }
  return kNoPage;
}

std::unordered_multimap<std::uint64_t, std::int32_t>::iterator PagePool::entry_of(
    std::int32_t page) {
  const auto [first, last] = by_hash_.equal_range(records_[page].hash);
  return std::find_if(first, last, [&](const auto& entry) { return entry.second == page; });
}

PagePool::Found PagePool::find(const PageScope& scope, std::span<const std::int64_t> tokens) {
  Found found;
  std::int32_t previous = kNoPage;
  for (std::size_t end = page_tokens_; end <= tokens.size(); end += page_tokens_) {
    const auto part = tokens.subspan(end - page_tokens_, page_tokens_);
    previous = lookup(hash_after(previous, scope, part), previous, scope, part);
    if (previous == kNoPage) break;
    retain(previous);
    found.pages.push_back(previous);
    found.on_device += tier_of(previous) == kDevice ? 1 : 0;
  }
  return found;
}

void PagePool::load(std::span<std::int32_t> pages) {
  for (std::int32_t& page : pages) {
    if (tier_of(page) == kDevice) continue;
    STRATA_CHECK_EQ(at(page).owners, 1, kPool);
    const std::optional<std::int32_t> to = take(kDevice);
    STRATA_CHECK(to.has_value(), kPool);
    move(page, *to);
    page = *to;
  }
}

std::int32_t PagePool::publish(std::int32_t page, std::int32_t previous, const PageScope& scope,
                               std::span<const std::int64_t> tokens) {
  Record& record = at(page);
  STRATA_CHECK(record.owners == 1 && !record.published && tier_of(page) == kDevice, kPool);
  STRATA_CHECK_EQ(static_cast<std::int64_t>(tokens.size()), page_tokens_, kPool);
  if (previous != kNoPage) {
    const Record& before = at(previous);
    STRATA_CHECK(before.published && before.owners > 0 && before.scope == scope, kPool);
  }
  const std::uint64_t hash = hash_after(previous, scope, tokens);
  std::uint64_t text = ++last_text_;
  if (const std::int32_t equal = lookup(hash, previous, scope, tokens); equal != kNoPage) {
    if (tier_of(equal) == kDevice) {
      retain(equal);
      release(page);
      return equal;
    }
    STRATA_CHECK_EQ(records_[equal].owners, 0, kPool);
    text = records_[equal].text;  // the pages that follow it in lower tiers stay findable
    tiers_[tier_of(equal)].unused.erase(records_[equal].unused);
    forget(equal);
  }
  record.published = true;
  record.hash = hash;
  record.scope = scope;
  record.text = text;
  record.previous = previous == kNoPage ? 0 : records_[previous].text;
  record.tokens.assign(tokens.begin(), tokens.end());
  by_hash_.emplace(hash, page);
  return page;
}

void PagePool::retain(std::int32_t page) {
  Record& record = records_[page];
  if (record.owners++ == 0) tiers_[tier_of(page)].unused.erase(record.unused);
}

void PagePool::release(std::int32_t page) {
  Record& record = at(page);
  STRATA_CHECK(record.owners > 0, kPool);
  if (--record.owners > 0) return;
  TierPages& tier = tiers_[tier_of(page)];
  if (record.published) {
    record.unused = tier.unused.insert(tier.unused.end(), page);
  } else {
    tier.empty.push_back(page);
  }
}

void PagePool::release(std::span<const std::int32_t> pages) {
  for (std::size_t i = pages.size(); i-- > 0;) release(pages[i]);
}

}  // namespace strata
