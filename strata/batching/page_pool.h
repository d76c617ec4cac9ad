/// Counts the owners of pages of keys and values, and finds full pages again by their tokens.
///
/// A page that has an owner is used. Each owner of a sequence's pages may write its last, not yet
/// full page; full pages are only read, so several sequences may own them. A published page stays
/// findable after its last owner releases it, until its room is needed: the pool evicts the page
/// that was released first. An evicted page moves to a lower tier (batching/pass.h), if there is
/// one, and is forgotten only when the lowest tier is full; load() brings it back.
///
/// Source   Kwon et al. 2023 (paged attention); prefix cache by chained hashes as in vLLM.
/// Threads  one.
/// Cost     allocate, retain, release: O(1) a page. find, publish: one hash and one comparison of
///          page_tokens tokens a page. Memory: 8 * page_tokens + 100 bytes a page, of any tier.
/// Errors   InternalError: misuse, such as a release of a page without an owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "strata/batching/pass.h"

namespace strata {

/// Sequences share pages only if both numbers are equal.
struct PageScope {
  std::uint64_t weights = 0;  ///< version of the weights that computed the keys and values
  std::uint64_t key = 0;      ///< of the clients that may learn that a text was seen before
  bool operator==(const PageScope&) const = default;
};

/// Hashes the tokens of a page, given the hash of the page before it.
using PageHash = std::uint64_t (*)(std::uint64_t previous, std::span<const std::int64_t> tokens);
std::uint64_t hash_page(std::uint64_t previous, std::span<const std::int64_t> tokens);

class PagePool {
 public:
  static constexpr std::int32_t kNoPage = -1;

  /// `pages`: on the device; they have the numbers 0 to pages - 1. `lower`: pages of each lower
  /// tier. `hash` may be weak: tokens are compared, too.
  PagePool(std::int64_t pages, std::int64_t page_tokens,
           const std::vector<std::int64_t>& lower = {}, PageHash hash = hash_page);

  std::int64_t pages() const { return pages_; }
  std::int64_t page_tokens() const { return page_tokens_; }
  std::int64_t used() const { return pages() - available(); }  ///< pages that have an owner
  std::int64_t available() const;
  std::int64_t findable() const { return std::int64_t(by_hash_.size()); }  ///< in all tiers
  std::int64_t forgotten() const { return forgotten_; }  ///< published pages, from the start on
  std::int64_t owners(std::int32_t page) const { return at(page).owners; }
  /// Pages that `tokens` tokens need.
  std::int64_t pages_for(std::int64_t tokens) const {
    return (tokens + page_tokens_ - 1) / page_tokens_;
  }

  /// Gives a page to one owner; nothing if all are used.
  std::optional<std::int32_t> allocate();

  struct Found {
    std::vector<std::int32_t> pages;  ///< in the order of the text
    std::int64_t on_device = 0;       ///< the first ones; the others lie in lower tiers
  };
  /// Finds the longest published beginning of `tokens`, in full pages, and adds an owner to each.
  Found find(const PageScope& scope, std::span<const std::int64_t> tokens);

  /// Moves pages of lower tiers, which one owner has just found, to the device, and replaces their
  /// numbers. As many pages must be available.
  void load(std::span<std::int32_t> pages);

  /// The moves since the last call.
  PageMoves take_moves() { return std::exchange(moves_, {}); }

  /// Makes a full page findable. `previous` is the published page before it, kNoPage for the first.
  /// Returns the page to use from now on: if another page has the same text, it gets the owner that
  /// `page` loses.
  std::int32_t publish(std::int32_t page, std::int32_t previous, const PageScope& scope,
                       std::span<const std::int64_t> tokens);

  /// Removes one owner of each page of a sequence; `pages` in the order of the text.
  void release(std::span<const std::int32_t> pages);

  /// Forgets the texts of all pages without an owner.
  void forget_unused();

 private:
  struct Record {
    std::int64_t owners = 0;
    bool published = false;
    // The following lines are valid for published pages.
    std::uint64_t hash = 0;
    PageScope scope = {};
    std::uint64_t text = 0;      // a number for the text up to the end of the page, from 1 on
    std::uint64_t previous = 0;  // that of the page before; 0: none
    std::vector<std::int64_t> tokens = {};
    std::list<std::int32_t>::iterator unused = {};  // valid without owners
  };
  // The device, or a lower tier.
  struct TierPages {
    std::int32_t end = 0;             // of its numbers
    std::vector<std::int32_t> empty;  // without owner and text
    std::list<std::int32_t> unused;   // published, without owner; the first is evicted first
  };

  const Record& at(std::int32_t page) const;
  Record& at(std::int32_t page);
  std::size_t tier_of(std::int32_t page) const;
  std::uint64_t hash_after(std::int32_t previous, const PageScope& scope,
                           std::span<const std::int64_t> tokens) const;
  std::int32_t lookup(std::uint64_t hash, std::int32_t previous, const PageScope& scope,
                      std::span<const std::int64_t> tokens) const;
  std::unordered_multimap<std::uint64_t, std::int32_t>::iterator entry_of(std::int32_t page);
  void retain(std::int32_t page);
  void release(std::int32_t page);
  std::optional<std::int32_t> take(std::size_t tier);
  void evict(std::size_t tier);
  void move(std::int32_t from, std::int32_t to);
  void forget(std::int32_t page);

  std::int64_t pages_;
  std::int64_t page_tokens_;
  PageHash hash_;
  std::vector<Record> records_;   // of all tiers
  std::vector<TierPages> tiers_;  // the device first
  std::unordered_multimap<std::uint64_t, std::int32_t> by_hash_;
  PageMoves moves_;
  std::uint64_t last_text_ = 0;
  std::int64_t forgotten_ = 0;
};

}  // namespace strata
