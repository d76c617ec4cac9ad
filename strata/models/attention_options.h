/// Reads an attention pattern from recipes, checks it, and writes it as text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/options.h"
#include "strata/nn/primitives/attention_pattern.h"

namespace strata {

void describe(OptionSet& set, const std::string& prefix, AttentionPattern& pattern);
void describe(OptionSet& set, const std::string& prefix, WindowLength& window);
void describe(OptionSet& set, const std::string& prefix, BlockIndex& global);

/// Sizes of the model that a pattern must fit.
struct PatternLimits {
  std::int64_t layers, heads, context;
};

/// Errors  UserError: fields that the pattern does not have, that contradict each other or the
///         sizes, or that would change nothing.
void check_pattern(const AttentionPattern& pattern, const PatternLimits& limits);

/// The fields that the pattern has, and their values as recipes write them: {"pattern", "sliding"},
/// {"window", "1024"}.
std::vector<std::pair<std::string, std::string>> pattern_fields(const AttentionPattern& pattern);

/// The same in one line: "{pattern: sliding, window: 1024}".
std::string pattern_text(const AttentionPattern& pattern);

/// Reads pattern_text(); `where` names it in errors.
AttentionPattern read_pattern(const std::string& text, const std::string& where);

}  // namespace strata
