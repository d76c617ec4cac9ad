/// Reads and writes the words of a question that a server of rows is asked: blanks part them, and a word with
/// blanks stands in quotation marks, with a backslash before each mark and backslash inside.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// `row "user id" 42` has three words.
std::vector<std::string> words_of_question(const std::string& question);

/// The name of a feature as a word: in quotation marks if it needs them.
std::string word_of_name(std::string_view name);

}  // namespace strata
