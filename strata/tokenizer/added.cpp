#include "strata/tokenizer/added.h"

#include <algorithm>

#include "strata/tokenizer/utf8.h"

namespace strata {
namespace {

std::size_t white_space_in_front(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const std::size_t next = character_bytes(text.substr(bytes));
    if (next == 0 || !is_white_space(first_character(text.substr(bytes)))) break;
    bytes += next;
  }
  return bytes;
}

std::size_t white_space_behind(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (text[begin] & 0xC0) == 0x80) --begin;
    const std::string_view last = text.substr(begin, end - begin);
    if (character_bytes(last) != last.size() || !is_white_space(first_character(last))) break;
    end = begin;
  }
  return text.size() - end;
}

}  // namespace

void AddedTokens::add(AddedToken token) {
  if (token.content.empty()) return;
  std::vector<AddedToken>& tokens = by_first_byte_[static_cast<unsigned char>(token.content[0])];
  const auto shorter = std::find_if(tokens.begin(), tokens.end(), [&](const AddedToken& other) {
    return other.content.size() < token.content.size();
  });
  tokens.insert(shorter, std::move(token));
}

const AddedToken* AddedTokens::at_front(std::string_view text) const {
  for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[0])])
    if (text.starts_with(token.content)) return &token;
  return nullptr;
}

void AddedTokens::split(std::string_view text,
                        const std::function<void(const AddedSplit&)>& part) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = at_front(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::string_view before = text.substr(done, at - done);
    if (token->takes_left) before.remove_suffix(white_space_behind(before));
    if (!before.empty()) part({before});
    at += token->content.size();
    if (token->takes_right) at += white_space_in_front(text.substr(at));
    part({.token = token});
    done = at;
  }
  if (done < text.size()) part({text.substr(done)});
}

}  // namespace strata
