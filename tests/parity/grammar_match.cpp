// Matches texts for tests that compare with other implementations (tests/parity/grammar_test.py):
// reads a JSON object a line, {"kind": "json"|"regex"|"gbnf"|"json_object", "grammar": ...,
// "texts": [text...]}, and writes one a line, {"accepts": [bool...]} or {"error": ...}. With
// "tokens" and "prefix", bytes as hexadecimal digits, it also writes "mask": which of the tokens
// may follow the prefix.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/grammar/gbnf.h"
#include "strata/grammar/json_schema.h"
#include "strata/grammar/regex.h"
#include "strata/grammar/token_grammar.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

Grammar::Expression read(Grammar& grammar, const Json& task) {
  const std::string kind = task["kind"];
  if (kind == "json") return read_json_schema(grammar, task["grammar"]);
  if (kind == "json_object") return json_object(grammar);
  const std::string text = task["grammar"];
  return kind == "gbnf" ? read_gbnf(grammar, text) : read_regex(grammar, text);
}

StateSets::State state_after(StateSets& sets, const std::string& text) {
  StateSets::State state = sets.start();
  for (const char byte : text) state = sets.next(state, static_cast<unsigned char>(byte));
  return state;
}

// Bytes of a token are written as hexadecimal digits.
std::string bytes_of(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

// The tokens of the task that may follow its prefix; null: nothing that matches begins with it.
Json mask_of(const std::shared_ptr<const Automaton>& automaton, const Json& task) {
  std::vector<std::string> tokens;
  for (const Json& token : task["tokens"]) tokens.push_back(bytes_of(token));
  const std::size_t count = tokens.size();
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const std::string prefix = bytes_of(task["prefix"]);
  StateSets sets(automaton);
  if (state_after(sets, prefix) == StateSets::kDead) return nullptr;
  TokenGrammar grammar(automaton, std::make_shared<TokenTrie>(tokens));
  std::vector<std::int64_t> answer;
  for (const unsigned char byte : prefix) answer.push_back(static_cast<std::int64_t>(count) + byte);
  TokenGrammar::Text text;
  const AllowedTokens allowed = grammar.allowed(text, answer);
  Json mask = Json::array();
  for (std::size_t i = 0; i < count; ++i)
    if ((allowed.bits[i / 64] >> (i % 64) & 1) != 0) mask.push_back(i);
  return mask;
}

Json answer(const Json& task) {
  Grammar grammar;
  const auto automaton =
      std::make_shared<const Automaton>(Automaton::compile(grammar, read(grammar, task)));
  StateSets sets(automaton);
  Json accepts = Json::array();
  for (const std::string text : task["texts"])
    accepts.push_back(sets.may_end(state_after(sets, text)));
  Json result = {{"accepts", accepts}};
  if (task.contains("tokens")) result["mask"] = mask_of(automaton, task);
  return result;
}

}  // namespace
}  // namespace strata

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::ordered_json result;
    try {
      result = strata::answer(nlohmann::ordered_json::parse(line));
    } catch (const strata::UserError& error) {
      result["error"] = error.what();
    }
    std::cout << result.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) << std::endl;
  }
}
