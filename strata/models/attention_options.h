/// Reads an attention pattern from recipes, checks it, and writes it as text.
#pragma once

#include <string>

#include "strata/base/options.h"
#include "strata/nn/primitives/attention_pattern.h"

namespace strata {

void describe(OptionSet& set, const std::string& prefix, AttentionPattern& pattern);
void describe(OptionSet& set, const std::string& prefix, WindowLength& window);
void describe(OptionSet& set, const std::string& prefix, BlockIndex& global);

/// Errors  UserError: fields that the pattern does not have, or that contradict each other or the
///         number of heads of queries.
void check_pattern(const AttentionPattern& pattern, std::int64_t heads);

/// The fields that the pattern has, in one line: "{pattern: sliding, window: 1024}". Equal for
/// patterns by which tokens attend to the same ones.
std::string pattern_text(const AttentionPattern& pattern);

/// Reads pattern_text(); `where` names it in errors.
AttentionPattern read_pattern(const std::string& text, const std::string& where);

}  // namespace strata
