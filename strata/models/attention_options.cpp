#include "strata/models/attention_options.h"

#include <algorithm>
#include <map>

#include "strata/base/enum_names.h"
#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/nn/kernels/attention_tiles.h"

namespace strata {
namespace {

constexpr ErrorSource kPatternErrors{"models.options"};

constexpr std::int64_t kMostBlock = 256;
constexpr double kMostLength = 0x7fffffff;

std::string written(std::int64_t value) { return std::to_string(value); }
std::string written(const WindowLength& window) { return written(window.tokens); }
std::string written(const BlockIndex& global) { return written(global.index); }
template <typename T>
std::string written(const std::vector<T>& values) {
  std::string list;
  for (const T& value : values) list += (list.empty() ? "" : ",") + written(value);
  return "[" + list + "]";
}

// Calls f(name, field, whether the kind of pattern has it).
template <typename F>
void for_each_field(const AttentionPattern& p, F f) {
  using enum PatternKind;
  const auto of = [&](std::initializer_list<PatternKind> kinds) {
    return std::find(kinds.begin(), kinds.end(), p.kind) != kinds.end();
  };
  f("block", p.block, p.sparse() && p.kind != kSliding);
  f("window", p.window, of({kSliding, kFixed, kBigBird, kLongformer}));
  f("windows", p.windows, of({kVariable}));
  f("global_blocks", p.global_blocks, of({kFixed, kBigBird}));
  f("globals", p.globals, of({kVariable, kLongformer}));
  f("random_blocks", p.random_blocks, of({kVariable, kBigBird}));
  f("forms", p.forms, of({kFixed, kVariable, kBigBird}));
  f("dense_every", p.dense_every, p.sparse());
}

[[noreturn]] void refuse(const std::string& field, const std::string& what,
                         const std::string& expected, const std::string& got,
                         const std::string& fix) {
  throw kPatternErrors.user("model.attention." + field, what, expected, got, fix);
}

void require_blocks(const std::string& field, std::int64_t tokens, std::int64_t block) {
  if (tokens > 0 && tokens % block == 0) return;
  const std::int64_t nearest = std::max<std::int64_t>(1, (tokens + block / 2) / block) * block;
  refuse(field, "not a whole number of blocks",
         "a multiple of model.attention.block, " + written(block), written(tokens),
         "set model.attention." + field + " to " + written(nearest));
}

}  // namespace

void describe(OptionSet& set, const std::string& prefix, WindowLength& window) {
  set.add(prefix + ".tokens", &window.tokens,
          {.help = "Its length; a multiple of the block.",
           .unit = "tokens",
           .minimum = kernels::kTileUnit,
           .maximum = kMostLength});
}

void describe(OptionSet& set, const std::string& prefix, BlockIndex& global) {
  set.add(prefix + ".index", &global.index,
          {.help = "Which block of a sample.", .minimum = 0, .maximum = kMostLength});
}

void describe(OptionSet& set, const std::string& prefix, AttentionPattern& pattern) {
  set.add(prefix + ".pattern", &pattern.kind, all_named<PatternKind>(),
          {.help = "Which earlier tokens a token attends to: all, or those of some blocks."});
  set.add(prefix + ".block", &pattern.block,
          {.help = "Length of a block, a multiple of 16; not for sliding.",
           .unit = "tokens",
           .minimum = kernels::kTileUnit,
           .maximum = kMostBlock});
  set.add(prefix + ".window", &pattern.window,
          {.help = "sliding: the last tokens, the token itself among them; bigbird, longformer: "
                   "the same in blocks; fixed: the length of the windows side by side.",
           .unit = "tokens",
           .minimum = 1,
           .maximum = kMostLength});
  set.add(prefix + ".windows", &pattern.windows, "tokens",
          {.help = "variable: lengths of the windows side by side; the last one repeats."});
  set.add(
      prefix + ".global_blocks", &pattern.global_blocks,
      {.help = "Blocks to which all later tokens attend; fixed: so many of each window, the last "
               "ones in the first form; bigbird: the first ones of a sample.",
       .unit = "blocks",
       .minimum = 0,
       .maximum = kMostLength});
  set.add(prefix + ".globals", &pattern.globals, "index",
          {.help = "variable, longformer: the blocks to which all later tokens attend; with "
                   "longformer their tokens attend to all earlier ones."});
  set.add(
      prefix + ".random_blocks", &pattern.random_blocks,
      {.help = "variable, bigbird: blocks drawn for each block from all up to its own; the same "
               "in every run.",
       .unit = "blocks",
       .minimum = 0,
       .maximum = kMostLength});
  set.add(prefix + ".forms", &pattern.forms,
          {.help = "Heads take so many forms in turn; fixed: with other global blocks; variable, "
                   "bigbird: with other random blocks.",
           .minimum = 1,
           .maximum = kMostLength});
  set.add(prefix + ".dense_every", &pattern.dense_every,
          {.help = "Each so-many-th transformer block attends to all earlier tokens; 0: none.",
           .unit = "layers",
           .minimum = 0,
           .maximum = kMostLength});
}

namespace {

void check_forms(const AttentionPattern& p, const PatternLimits& limits) {
  if (p.forms > limits.heads)
    refuse("forms", "more forms than heads", "at most " + written(limits.heads), written(p.forms),
           "set model.attention.forms to " + written(limits.heads));
  const bool differ = p.kind == PatternKind::kFixed ? p.global_blocks > 0 : p.random_blocks > 0;
  if (p.forms > 1 && !differ)
    refuse("forms", "all forms would be the same",
           p.kind == PatternKind::kFixed ? "model.attention.global_blocks of at least 1"
                                         : "model.attention.random_blocks of at least 1",
           "0", "set model.attention.forms to 1");
}

void check_globals(const AttentionPattern& p, const PatternLimits& limits) {
  const std::int64_t blocks = (limits.context + p.block - 1) / p.block;
  for (const BlockIndex& global : p.globals)
    if (global.index >= blocks)
      refuse("globals", "a block after the end of every sample",
             "at most " + written(blocks - 1) + ", the last block of model.context",
             written(global.index), "leave it out");
}

void check_windows(const AttentionPattern& p) {
  if (p.kind == PatternKind::kVariable) {
    if (p.windows.empty())
      refuse("windows", "the pattern variable has no windows", "a list of lengths", "none",
             "set model.attention.windows to [256, 512], say");
    for (std::size_t i = 0; i < p.windows.size(); ++i)
      require_blocks("windows[" + std::to_string(i) + "]", p.windows[i].tokens, p.block);
    return;
  }
  if (p.kind != PatternKind::kSliding) require_blocks("window", p.window, p.block);
  const std::int64_t in_window = p.window / p.block;
  if (p.kind == PatternKind::kFixed && p.forms * p.global_blocks > in_window)
    refuse("global_blocks", "a window has fewer blocks than its forms have global ones",
           "forms times global_blocks at most " + written(in_window),
           written(p.forms * p.global_blocks),
           "set model.attention.forms to 1, or a longer window");
}

}  // namespace

void check_pattern(const AttentionPattern& p, const PatternLimits& limits) {
  std::map<std::string, std::string> usual;
  for_each_field(AttentionPattern(), [&](const std::string& name, const auto& value, bool) {
    usual[name] = written(value);
  });
  for_each_field(p, [&](const std::string& name, const auto& value, bool has) {
    if (!has && written(value) != usual[name])
      refuse(name, "a field that the pattern " + std::string(name_of(p.kind)) + " does not have",
             usual[name], written(value),
             "set model.attention." + name + "=" + usual[name] +
                 ", or choose another model.attention.pattern");
  });
  if (!p.sparse()) return;
  if (p.block % kernels::kTileUnit != 0)
    refuse("block", "a block of another length", "a multiple of " + written(kernels::kTileUnit),
           written(p.block), "set model.attention.block to 64");
  if (p.dense_every == 1 || p.dense_every > limits.layers)
    refuse("dense_every",
           p.dense_every == 1 ? "all layers would be dense" : "no layer would be dense",
           "0, or 2 to " + written(limits.layers), written(p.dense_every),
           "set model.attention.dense_every to 0");
  check_windows(p);
  check_forms(p, limits);
  if (p.kind == PatternKind::kVariable || p.kind == PatternKind::kLongformer)
    check_globals(p, limits);
}

std::vector<std::pair<std::string, std::string>> pattern_fields(const AttentionPattern& p) {
  std::vector<std::pair<std::string, std::string>> fields = {{"pattern", name_of(p.kind)}};
  for_each_field(p, [&](const std::string& name, const auto& value, bool has) {
    if (has) fields.emplace_back(name, written(value));
  });
  return fields;
}

std::string pattern_text(const AttentionPattern& p) {
  std::string text;
  for (const auto& [name, value] : pattern_fields(p))
    text += (text.empty() ? "" : ", ") + name + ": " + value;
  return "{" + text + "}";
}

AttentionPattern read_pattern(const std::string& text, const std::string& where) {
  AttentionPattern pattern;
  OptionSet set;
  describe(set, "attention", pattern);
  set.load_yaml("attention: " + text, where);
  return pattern;
}

}  // namespace strata
