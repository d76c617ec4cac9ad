// A sequence that owns a published page owns all pages before it, because publish() replaces a page
// by its equal, and release() goes from the last page to the first. So a page becomes unused after
// the pages that follow it, and is evicted after them: `previous` of a published page stays valid.
#include "strata/batching/page_pool.h"

#include <algorithm>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/base/philox.h"

namespace strata {
namespace {

constexpr const char* kPool = "batching.page_pool";

}  // namespace

std::uint64_t hash_page(std::uint64_t previous, std::span<const std::int64_t> tokens) {
  return mix_key(previous, checksum(std::as_bytes(tokens)));
}

PagePool::PagePool(std::int64_t pages, std::int64_t page_tokens, PageHash hash)
    : page_tokens_(page_tokens), hash_(hash) {
  STRATA_CHECK(pages > 0 && pages <= INT32_MAX && page_tokens > 0, kPool);
  records_.resize(pages);
  for (std::int64_t page = pages; page-- > 0;) empty_.push_back(static_cast<std::int32_t>(page));
  by_hash_.reserve(pages);
}

const PagePool::Record& PagePool::at(std::int32_t page) const {
  STRATA_CHECK(page >= 0 && page < pages(), kPool);
  return records_[page];
}

PagePool::Record& PagePool::at(std::int32_t page) {
  return const_cast<Record&>(std::as_const(*this).at(page));
}

std::optional<std::int32_t> PagePool::allocate() {
  if (empty_.empty()) {
    if (unused_.empty()) return std::nullopt;
    evict();
  }
  const std::int32_t page = empty_.back();
  empty_.pop_back();
  records_[page].owners = 1;
  return page;
}

void PagePool::evict() {
  const std::int32_t page = unused_.front();
  Record& record = records_[page];
  STRATA_CHECK_EQ(record.followers, 0, kPool);
  if (record.previous != kNoPage) --records_[record.previous].followers;
  const auto [first, last] = by_hash_.equal_range(record.hash);
  by_hash_.erase(
      std::find_if(first, last, [&](const auto& entry) { return entry.second == page; }));
  unused_.pop_front();
  record = {};
  empty_.push_back(page);
  ++evictions_;
}

std::uint64_t PagePool::hash_after(std::int32_t previous, const PageScope& scope,
                                   std::span<const std::int64_t> tokens) const {
  const std::uint64_t before =
      previous == kNoPage ? mix_key(scope.weights, scope.key) : records_[previous].hash;
  return hash_(before, tokens);
}

std::int32_t PagePool::lookup(std::uint64_t hash, std::int32_t previous, const PageScope& scope,
                              std::span<const std::int64_t> tokens) const {
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto entry = first; entry != last; ++entry) {
    const Record& record = records_[entry->second];
    if (record.previous == previous && record.scope == scope &&
        std::ranges::equal(record.tokens, tokens))
      return entry->second;
  }
  return kNoPage;
}

std::vector<std::int32_t> PagePool::find(const PageScope& scope,
                                         std::span<const std::int64_t> tokens) {
  std::vector<std::int32_t> pages;
  std::int32_t previous = kNoPage;
  for (std::size_t end = page_tokens_; end <= tokens.size(); end += page_tokens_) {
    const auto part = tokens.subspan(end - page_tokens_, page_tokens_);
    previous = lookup(hash_after(previous, scope, part), previous, scope, part);
    if (previous == kNoPage) break;
    retain(previous);
    pages.push_back(previous);
  }
  return pages;
}

std::int32_t PagePool::publish(std::int32_t page, std::int32_t previous, const PageScope& scope,
                               std::span<const std::int64_t> tokens) {
  Record& record = at(page);
  STRATA_CHECK(record.owners == 1 && !record.published, kPool);
  STRATA_CHECK_EQ(static_cast<std::int64_t>(tokens.size()), page_tokens_, kPool);
  if (previous != kNoPage) {
    const Record& before = at(previous);
    STRATA_CHECK(before.published && before.owners > 0 && before.scope == scope, kPool);
  }
  const std::uint64_t hash = hash_after(previous, scope, tokens);
  if (const std::int32_t equal = lookup(hash, previous, scope, tokens); equal != kNoPage) {
    retain(equal);
    release(page);
    return equal;
  }
  record.published = true;
  record.hash = hash;
  record.scope = scope;
  record.previous = previous;
  record.tokens.assign(tokens.begin(), tokens.end());
  if (previous != kNoPage) ++records_[previous].followers;
  by_hash_.emplace(hash, page);
  return page;
}

void PagePool::retain(std::int32_t page) {
  Record& record = records_[page];
  if (record.owners++ == 0) unused_.erase(record.unused);
}

void PagePool::release(std::int32_t page) {
  Record& record = at(page);
  STRATA_CHECK(record.owners > 0, kPool);
  if (--record.owners > 0) return;
  if (record.published) {
    record.unused = unused_.insert(unused_.end(), page);
  } else {
    empty_.push_back(page);
  }
}

void PagePool::release(std::span<const std::int32_t> pages) {
  for (std::size_t i = pages.size(); i-- > 0;) release(pages[i]);
}

}  // namespace strata
