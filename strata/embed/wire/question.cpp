#include "strata/embed/wire/question.h"

#include <iomanip>
#include <sstream>

namespace strata {

std::vector<std::string> words_of_question(const std::string& question) {
  std::istringstream in(question);
  std::vector<std::string> words;
  for (std::string word; in >> std::quoted(word);) words.push_back(word);
  return words;
}

std::string word_of_name(std::string_view name) {
  if (!name.empty() && name.find_first_of(" \t\r\n\v\f\"\\") == std::string_view::npos)
    return std::string(name);
  std::ostringstream out;
  out << std::quoted(name);
  return out.str();
}

}  // namespace strata
