#include "strata/batching/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "strata/base/errors.h"

namespace strata {
namespace {

using Tokens = std::vector<std::int64_t>;
using Pages = std::vector<std::int32_t>;

std::uint64_t hash_to_one_value(std::uint64_t, std::span<const std::int64_t>) { return 7; }

// The pool in plain containers: a page is known by its scope and the whole text up to its end.
class PoolModel {
 public:
  using Text = std::tuple<std::uint64_t, std::uint64_t, Tokens>;

  explicit PoolModel(std::int64_t pages) : owners_(pages, 0), text_(pages) {}

  static Text text(const PageScope& scope, const Tokens& tokens, std::size_t size) {
    return {scope.weights, scope.key, Tokens(tokens.begin(), tokens.begin() + size)};
  }

  Pages find(const PageScope& scope, const Tokens& tokens, std::size_t page_tokens) const {
    Pages pages;
    for (std::size_t end = page_tokens; end <= tokens.size(); end += page_tokens) {
      const auto page = std::ranges::find(text_, text(scope, tokens, end));
      if (page == text_.end()) break;
      pages.push_back(static_cast<std::int32_t>(page - text_.begin()));
    }
    return pages;
  }

  // Checks which page the pool gives, and gives it.
  void allocate(std::optional<std::int32_t> page) {
    const auto is_empty = [&](std::size_t i) { return owners_[i] == 0 && text_[i] == Text(); };
    std::int64_t empty = 0;
    for (std::size_t i = 0; i < owners_.size(); ++i) empty += is_empty(i);
    if (empty == 0 && unused_.empty()) {
      EXPECT_FALSE(page.has_value());
      return;
    }
    ASSERT_TRUE(page.has_value());
    if (empty > 0) {
      EXPECT_TRUE(is_empty(*page));
    } else {
      EXPECT_EQ(*page, unused_.front());
      unused_.erase(unused_.begin());
      text_[*page] = {};
      ++evictions_;
    }
    owners_[*page] = 1;
  }

  void retain(std::int32_t page) {
    if (owners_[page]++ == 0) std::erase(unused_, page);
  }

  void release(const Pages& pages) {
    for (std::size_t i = pages.size(); i-- > 0;)
      if (--owners_[pages[i]] == 0 && text_[pages[i]] != Text()) unused_.push_back(pages[i]);
  }

  void publish(std::int32_t page, std::int32_t result, const Text& text) {
    const auto equal = std::ranges::find(text_, text);
    if (equal == text_.end()) {
      EXPECT_EQ(result, page);
      text_[page] = text;
    } else {
      EXPECT_EQ(result, equal - text_.begin());
      retain(result);
      owners_[page] = 0;
    }
  }

  void expect_equal(const PagePool& pool) const {
    std::int64_t used = 0, findable = 0;
    for (std::size_t page = 0; page < owners_.size(); ++page) {
      EXPECT_EQ(pool.owners(static_cast<std::int32_t>(page)), owners_[page]) << page;
      used += owners_[page] > 0;
      findable += text_[page] != Text();
    }
    EXPECT_EQ(pool.used(), used);
    EXPECT_EQ(pool.available(), pool.pages() - used);
    EXPECT_EQ(pool.findable(), findable);
    EXPECT_EQ(pool.forgotten(), evictions_);
  }

 private:
  std::vector<std::int64_t> owners_;
  std::vector<Text> text_;
  Pages unused_;
  std::int64_t evictions_ = 0;
};

struct Owner {
  PageScope scope;
  Tokens tokens;
  Pages pages;
  std::size_t published = 0;  // pages
};

// A pool and its model, and sequences that own pages of both.
class PoolPair {
 public:
  PoolPair(PageHash hash, std::uint64_t seed) : pool_(12, kPageTokens, {}, hash), random_(seed) {}

  void step() {
    const std::uint64_t kind = below(3);
    if (sequences_.empty() || (kind == 0 && sequences_.size() < 8)) {
      add();
    } else if (kind == 1) {
      release();
    } else {
      publish(sequences_[below(sequences_.size())]);
    }
    model_.expect_equal(pool_);
  }

  void end() {
    while (!sequences_.empty()) release();
    EXPECT_EQ(pool_.used(), 0);
    EXPECT_GT(pool_.forgotten(), 100);
    EXPECT_GT(replaced_, 3);
  }

 private:
  static constexpr std::int64_t kPageTokens = 2;

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  void add() {
    Owner owner{{below(2), below(2)}, Tokens(1 + below(9)), {}};
    for (std::int64_t& token : owner.tokens) token = static_cast<std::int64_t>(below(2));
    owner.pages = pool_.find(owner.scope, owner.tokens).pages;
    EXPECT_EQ(owner.pages, model_.find(owner.scope, owner.tokens, kPageTokens));
    for (const std::int32_t page : owner.pages) model_.retain(page);
    owner.published = owner.pages.size();
    while (std::ssize(owner.pages) < pool_.pages_for(std::ssize(owner.tokens))) {
      const auto page = pool_.allocate();
      model_.allocate(page);
      if (!page) break;
      owner.pages.push_back(*page);
    }
    sequences_.push_back(std::move(owner));
  }

  // Gives the next full page its text.
  void publish(Owner& owner) {
    const std::size_t i = owner.published;
    if (i == owner.pages.size() || (i + 1) * kPageTokens > owner.tokens.size()) return;
    const std::int32_t page = owner.pages[i];
    owner.pages[i] =
        pool_.publish(page, i > 0 ? owner.pages[i - 1] : PagePool::kNoPage, owner.scope,
                      std::span(owner.tokens).subspan(i * kPageTokens, kPageTokens));
    model_.publish(page, owner.pages[i],
                   PoolModel::text(owner.scope, owner.tokens, (i + 1) * kPageTokens));
    replaced_ += owner.pages[i] != page;
    ++owner.published;
  }

  void release() {
    const auto owner = sequences_.begin() + static_cast<std::ptrdiff_t>(below(sequences_.size()));
    pool_.release(owner->pages);
    model_.release(owner->pages);
    sequences_.erase(owner);
  }

  PagePool pool_;
  PoolModel model_{12};
  std::mt19937 random_;
  std::vector<Owner> sequences_;
  int replaced_ = 0;  // pages of a text that another page had first
};

void compare_with_model(PageHash hash, std::uint64_t seed) {
  PoolPair pair(hash, seed);
  for (int step = 0; step < 3000 && !testing::Test::HasFailure(); ++step) pair.step();
  pair.end();
}

TEST(PagePool, EqualsAPlainModelInRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) compare_with_model(hash_page, seed);
}

TEST(PagePool, ComparesTokensWhenAllHashesAreEqual) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) compare_with_model(hash_to_one_value, seed);
}

// Gives the pages of a text that is computed from its first token to its last.
Pages store(PagePool& pool, const PageScope& scope, const Tokens& tokens) {
  Pages pages;
  const std::int64_t size = pool.page_tokens();
  for (std::int64_t i = 0; (i + 1) * size <= std::ssize(tokens); ++i)
    pages.push_back(pool.publish(*pool.allocate(), i > 0 ? pages.back() : PagePool::kNoPage, scope,
                                 std::span(tokens).subspan(i * size, size)));
  return pages;
}

TEST(PagePool, KeepsScopesApart) {
  PagePool pool(8, 2);
  store(pool, {1, 1}, {5, 6, 7, 8});
  EXPECT_EQ(pool.find({1, 1}, Tokens{5, 6, 7, 8}).pages.size(), 2u);
  EXPECT_TRUE(pool.find({2, 1}, Tokens{5, 6, 7, 8}).pages.empty());
  EXPECT_TRUE(pool.find({1, 2}, Tokens{5, 6, 7, 8}).pages.empty());
}

TEST(PagePool, EvictsTheLongestUnusedTextFromItsEnd) {
  PagePool pool(4, 1);
  const Pages first = store(pool, {}, {1, 2});
  const Pages second = store(pool, {}, {3, 4});
  pool.release(second);
  pool.release(first);
  EXPECT_EQ(pool.find({}, Tokens{3, 4}).pages, second);  // is used again, so it is released last
  pool.release(second);
  EXPECT_EQ(pool.allocate(), first[1]);
  EXPECT_EQ(pool.allocate(), first[0]);
  EXPECT_EQ(pool.find({}, Tokens{3, 4}).pages, second);
  EXPECT_FALSE(pool.allocate().has_value());
}

// What lies in each page, as the moves say; whether each text that is found is where the pool says.
class TieredTexts {
 public:
  TieredTexts(std::vector<std::int64_t> lower, PageHash hash, std::uint64_t seed)
      : pool_(kPages, 1, lower, hash),
        contents_(kPages + std::accumulate(lower.begin(), lower.end(), std::size_t{0})),
        random_(seed) {}

  void step() {
    if (owned_.size() > 2 || (!owned_.empty() && random_() % 2 == 0)) {
      const auto at = owned_.begin() + static_cast<std::ptrdiff_t>(random_() % owned_.size());
      pool_.release(*at);
      owned_.erase(at);
    } else {
      add(Tokens{static_cast<std::int64_t>(random_() % 3), static_cast<std::int64_t>(random_() % 3),
                 static_cast<std::int64_t>(random_() % 2)});
    }
    EXPECT_LE(pool_.findable(), std::ssize(contents_));
  }

  std::int64_t loaded() const { return loaded_; }
  std::int64_t forgotten() const { return pool_.forgotten(); }

 private:
  static constexpr std::int64_t kPages = 10;

  // Finds, loads and computes a text.
  void add(const Tokens& tokens) {
    PagePool::Found found = pool_.find({}, tokens);
    const std::int64_t missing = std::ssize(tokens) - found.on_device;
    if (missing > pool_.available()) return pool_.release(found.pages);
    for (std::size_t i = 0; i < found.pages.size(); ++i)
      EXPECT_EQ(found.pages[i] < kPages, i < static_cast<std::size_t>(found.on_device));
    pool_.load(found.pages);
    loaded_ += std::ssize(found.pages) - found.on_device;
    Pages pages = found.pages;
    while (pages.size() < tokens.size()) pages.push_back(*pool_.allocate());
    for (const PageMove& move : pool_.take_moves())
      contents_.at(move.to) = std::exchange(contents_.at(move.from), {});
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const Tokens text(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      EXPECT_LT(pages[i], kPages);
      if (i < found.pages.size()) {
        EXPECT_EQ(contents_.at(pages[i]), text);
        continue;
      }
      contents_.at(pages[i]) = text;
      pages[i] = pool_.publish(pages[i], i > 0 ? pages[i - 1] : PagePool::kNoPage, {},
                               std::span(tokens).subspan(i, 1));
      EXPECT_EQ(contents_.at(pages[i]), text);
    }
    owned_.push_back(std::move(pages));
  }

  PagePool pool_;
  std::vector<Tokens> contents_;
  std::mt19937 random_;
  std::vector<Pages> owned_;
  std::int64_t loaded_ = 0;
};

// There are 30 different texts and beginnings of texts. A page that comes back needs
// one page more of room.
TEST(PagePool, MovesPagesToLowerTiersAndBack) {
  for (const PageHash hash : {hash_page, hash_to_one_value})
    for (const std::vector<std::int64_t>& lower :
         {std::vector<std::int64_t>{6}, {0, 6}, {2, 3}, {21}, {4, 17}, {2, 19}}) {
      TieredTexts texts(lower, hash, 5);
      for (int step = 0; step < 3000 && !HasFailure(); ++step) texts.step();
      EXPECT_GT(texts.loaded(), 100);
      const bool all = std::accumulate(lower.begin(), lower.end(), 0) == 21;
      EXPECT_EQ(texts.forgotten() == 0, all) << texts.forgotten();
    }
}

// The text of a page that is computed again, although a lower tier has it, keeps its continuation.
TEST(PagePool, ContinuesATextWhoseBeginningIsComputedAgain) {
  PagePool pool(2, 1, {4});
  pool.release(store(pool, {}, {1, 2}));
  store(pool, {}, {3, 4});  // moves both pages to the lower tier
  EXPECT_EQ(pool.take_moves(), (PageMoves{{1, 2}, {0, 3}}));
  PagePool::Found found = pool.find({}, Tokens{1, 2});
  EXPECT_EQ(found.pages, (Pages{3, 2}));
  EXPECT_EQ(found.on_device, 0);
  pool.release(found.pages);
  pool.release(pool.find({}, Tokens{3, 4}).pages);
  pool.release(Pages{1, 0});  // 3 and 4 have no owner
  const std::int32_t again = *pool.allocate();
  EXPECT_EQ(pool.publish(again, PagePool::kNoPage, {}, Tokens{1}), again);
  found = pool.find({}, Tokens{1, 2});
  EXPECT_EQ(found.pages, (Pages{again, 2}));
  EXPECT_EQ(found.on_device, 1);
  pool.release(found.pages);
  pool.release(Pages{again});
  pool.forget_unused();
  EXPECT_EQ(pool.findable(), 0);
  EXPECT_EQ(pool.available(), 2);
  EXPECT_TRUE(pool.find({}, Tokens{1}).pages.empty());
}

TEST(PagePool, RefusesMisuse) {
  PagePool pool(4, 2);
  const std::int32_t page = *pool.allocate();
  const Tokens tokens = {1, 2};
  EXPECT_THROW(pool.release(Pages{3}), InternalError);
  EXPECT_THROW(pool.release(Pages{4}), InternalError);
  EXPECT_THROW(pool.release(Pages{-1}), InternalError);
  EXPECT_THROW(pool.publish(3, PagePool::kNoPage, {}, tokens), InternalError);
  EXPECT_THROW(pool.publish(page, PagePool::kNoPage, {}, Tokens{1}), InternalError);
  EXPECT_THROW(pool.publish(page, page, {}, tokens), InternalError);
  EXPECT_EQ(pool.publish(page, PagePool::kNoPage, {}, tokens), page);
  EXPECT_THROW(pool.publish(page, PagePool::kNoPage, {}, tokens), InternalError);
  const std::int32_t other = *pool.allocate();
  EXPECT_THROW(pool.publish(other, page, {1, 0}, tokens), InternalError);
  pool.release(Pages{page, other});
  EXPECT_THROW(pool.release(Pages{page}), InternalError);
  EXPECT_THROW(PagePool(0, 2), InternalError);
  EXPECT_THROW(PagePool(2, 0), InternalError);
  EXPECT_THROW(PagePool(2, 1, {-1}), InternalError);
}

}  // namespace
}  // namespace strata
