/// Reads grammars in the notation of llama.cpp (GBNF): rules "name ::= ...", of which "root"
/// matches the whole text.
///
/// A rule has alternatives ("|") of texts in quotation marks, classes ([a-z], [^"]), ".", names of
/// rules, groups, and the repetitions * + ? {m} {m,} {m,n}. A comment begins with "#". A rule ends
/// at the end of its line, unless a group is open or "|" is last.
///
/// Errors   UserError that names place and construct: not well formed, a name without a rule, two
///          rules of a name, no rule "root", names of tokens (<...>).
#pragma once

#include <string_view>

#include "strata/grammar/grammar.h"

namespace strata {

/// Returns a call of "root".
Grammar::Expression read_gbnf(Grammar& grammar, std::string_view text);

}  // namespace strata
