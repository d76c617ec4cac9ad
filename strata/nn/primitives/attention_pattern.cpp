#include "strata/nn/primitives/attention_pattern.h"

#include <algorithm>
#include <deque>
#include <mutex>

#include "strata/base/enum_names.h"
#include "strata/base/philox.h"

namespace strata {
namespace {

// Any constant: patterns are the same in all runs.
constexpr std::array<std::uint32_t, 2> kRandomBlocksKey = {0x5bd1e995, 0x2545f491};

class BlockList {
 public:
  BlockList(std::int64_t query_block, std::vector<std::int32_t>& blocks)
      : query_block_(query_block), blocks_(blocks) {
    blocks_.clear();
  }

  // Blocks [first, end) up to that of the queries.
  void add(std::int64_t first, std::int64_t end) {
    for (std::int64_t block = std::max<std::int64_t>(first, 0);
         block < std::min(end, query_block_ + 1); ++block)
      blocks_.push_back(static_cast<std::int32_t>(block));
  }

  // `count` different blocks up to that of the queries (Bentley and Floyd 1987).
  void add_random(std::int64_t count, std::int64_t form) {
    const std::int64_t all = query_block_ + 1;
    if (count >= all) return add(0, all);
    const std::size_t begin = blocks_.size();
    for (std::int64_t i = all - count; i < all; ++i) {
      const PhiloxBlock words =
          philox({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(query_block_),
                  static_cast<std::uint32_t>(form), 0},
                 kRandomBlocksKey);
      const auto drawn = static_cast<std::int32_t>(
          std::uint64_t{words[0]} * static_cast<std::uint64_t>(i + 1) >> 32);
      const bool taken = std::find(blocks_.begin() + static_cast<std::ptrdiff_t>(begin),
                                   blocks_.end(), drawn) != blocks_.end();
      blocks_.push_back(taken ? static_cast<std::int32_t>(i) : drawn);
    }
  }

  void sort() {
    std::sort(blocks_.begin(), blocks_.end());
    blocks_.erase(std::unique(blocks_.begin(), blocks_.end()), blocks_.end());
  }

 private:
  std::int64_t query_block_;
  std::vector<std::int32_t>& blocks_;
};

// The first block of the window that has this block.
std::int64_t window_start(const std::vector<WindowLength>& windows, std::int64_t block_length,
                          std::int64_t block) {
  std::int64_t start = 0;
  for (std::size_t i = 0;; i = std::min(i + 1, windows.size() - 1)) {
    const std::int64_t blocks = windows[i].tokens / block_length;
    if (i + 1 == windows.size()) return start + (block - start) / blocks * blocks;
    if (block < start + blocks) return start;
    start += blocks;
  }
}

// The number of keys that the query attends to, of those in the block that begins at `key`.
std::int64_t attended(const AttentionPattern& pattern, std::int64_t query, std::int64_t key) {
  const std::int64_t end = std::min(key + pattern.block, query + 1);
  const std::int64_t window = pattern.exact_window();
  const std::int64_t begin = window > 0 ? std::max(key, query + 1 - window) : key;
  return std::max<std::int64_t>(0, end - begin);
}

}  // namespace

const char* name_of(PatternKind kind) {
  using enum PatternKind;
  static constexpr EnumNames<PatternKind> kNames{
      {kDense, "dense"},       {kSliding, "sliding"}, {kFixed, "fixed"},
      {kVariable, "variable"}, {kBigBird, "bigbird"}, {kLongformer, "longformer"}};
  return kNames[kind];
}

void AttentionPattern::key_blocks(std::int64_t form, std::int64_t query_block,
                                  std::vector<std::int32_t>& blocks) const {
  BlockList list(query_block, blocks);
  const std::int64_t in_window = std::max<std::int64_t>(1, window / block), all = query_block + 1;
  switch (kind) {
    case PatternKind::kDense:
      return list.add(0, all);
    case PatternKind::kSliding: {
      const std::int64_t first = query_block * block - window + 1;
      return list.add(std::max<std::int64_t>(0, first) / block, all);
    }
    case PatternKind::kFixed: {
      const std::int64_t start = query_block / in_window * in_window;
      const std::int64_t first = in_window - (1 + form) * global_blocks;
      for (std::int64_t earlier = 0; earlier < start; earlier += in_window)
        list.add(earlier + first, earlier + first + global_blocks);
      return list.add(start, all);
    }
    case PatternKind::kVariable:
      list.add(window_start(windows, block, query_block), all);
      for (const BlockIndex& global : globals) list.add(global.index, global.index + 1);
      list.add_random(random_blocks, form);
      break;
    case PatternKind::kBigBird:
      list.add(all - in_window, all);
      list.add(0, global_blocks);
      list.add_random(random_blocks, form);
      break;
    case PatternKind::kLongformer:
      if (std::find(globals.begin(), globals.end(), BlockIndex{query_block}) != globals.end())
        return list.add(0, all);
      list.add(all - in_window, all);
      for (const BlockIndex& global : globals) list.add(global.index, global.index + 1);
      break;
  }
  list.sort();
}

namespace {

// The number of blocks that key_blocks() lists. Fixed patterns list many of a long sample.
std::int64_t count_blocks(const AttentionPattern& p, std::int64_t form, std::int64_t query_block,
                          std::vector<std::int32_t>& list) {
  if (p.kind == PatternKind::kFixed) {
    const std::int64_t in_window = p.window / p.block, earlier = query_block / in_window;
    return earlier * p.global_blocks + query_block % in_window + 1;
  }
  p.key_blocks(form, query_block, list);
  return std::ssize(list);
}

PatternWork computed_work(const AttentionPattern& p, std::int64_t tokens) {
  double pairs = 0;
  std::int64_t most = 0;
  std::vector<std::int32_t> list;
  for (std::int64_t query = 0; query * p.block < tokens; ++query)
    for (std::int64_t form = 0; form < p.forms; ++form) {
      const std::int64_t blocks = count_blocks(p, form, query, list);
      const std::int64_t rows = std::min(p.block, tokens - query * p.block);
      pairs += static_cast<double>(rows * p.block) * static_cast<double>(blocks);
      most = std::max(most, blocks);
    }
  const auto length = static_cast<double>(tokens);
  return {.share = pairs / static_cast<double>(p.forms) / (length * length / 2),
          .most_keys = std::min(tokens, most * p.block)};
}

}  // namespace

PatternWork AttentionPattern::work(std::int64_t tokens) const {
  struct Known {
    AttentionPattern pattern;
    std::int64_t tokens;
    PatternWork work;
  };
  static std::mutex mutex;
  static std::deque<Known> known;
  const std::scoped_lock lock(mutex);
  for (const Known& one : known)
    if (one.tokens == tokens && one.pattern == *this) return one.work;
  return known.emplace_back(Known{*this, tokens, computed_work(*this, tokens)}).work;
}

double AttentionPattern::density(std::int64_t tokens) const {
  double pairs = 0;
  std::vector<std::int32_t> blocks;
  for (std::int64_t query = 0; query * block < tokens; ++query)
    for (std::int64_t i = 0; i < forms; ++i) {
      key_blocks(i, query, blocks);
      for (std::int64_t row = query * block; row < std::min(tokens, (query + 1) * block); ++row)
        for (const std::int32_t key : blocks)
          pairs += static_cast<double>(attended(*this, row, key * block));
    }
  const auto length = static_cast<double>(tokens);
  return pairs / static_cast<double>(forms) / (length * (length + 1) / 2);
}

}  // namespace strata
