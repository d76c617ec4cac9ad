#include "strata/jinja/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "strata/base/utf8.h"

namespace strata {
namespace {

// The character at the beginning of `text`: its bytes and its code point; -1 for a byte that is not
// UTF-8.
std::pair<std::size_t, std::int32_t> leading_character(std::string_view text) {
  utf8proc_int32_t code = -1;
  const auto bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(std::min<std::size_t>(text.size(), 4)), &code);
  if (bytes <= 0) return {1, -1};
  return {static_cast<std::size_t>(bytes), code};
}

template <typename Map>
std::string mapped(std::string_view text, const Map& map) {
  std::string made;
  while (!text.empty()) {
    const auto [bytes, code] = leading_character(text);
    if (code < 0)
      made += text.front();
    else
      append_character(made, static_cast<char32_t>(map(code)));
    text.remove_prefix(bytes);
  }
  return made;
}

bool is_letter(std::int32_t code) {
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      return false;
  }
}

bool is_letter_or_digit(std::int32_t code) {
  const auto category = utf8proc_category(code);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

bool is_printable(std::int32_t code) {
  if (code == ' ') return true;
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_space_code(std::int32_t code) {
  return (code >= 9 && code <= 13) || (code >= 28 && code <= 32) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool ends_line(std::int32_t code) {
  return (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

std::vector<std::string> split_at_spaces(std::string_view text, std::int64_t most,
                                         bool from_right) {
  std::vector<std::string> parts;
  std::string_view rest = strip(text, nullptr, true, true);
  while (!rest.empty()) {
    const auto all = characters(rest);
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) break;
    std::size_t word = 0;  // bytes
    if (from_right) {
      for (auto each = all.rbegin(); each != all.rend() && !is_space(*each); ++each)
        word += each->size();
      parts.emplace_back(rest.substr(rest.size() - word));
      rest = strip(rest.substr(0, rest.size() - word), nullptr, false, true);
    } else {
      for (auto each = all.begin(); each != all.end() && !is_space(*each); ++each)
        word += each->size();
      parts.emplace_back(rest.substr(0, word));
      rest = strip(rest.substr(word), nullptr, true, false);
    }
  }
  if (!rest.empty()) {  // Python keeps the white space at the far end of what it did not cut
    const char* begin = rest.data();
    const char* end = begin + rest.size();
    if (from_right)
      begin = text.data();
    else
      end = text.data() + text.size();
    parts.emplace_back(begin, end);
  }
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

}  // namespace

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const std::size_t bytes = leading_character(text).first;
    all.push_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return all;
}

std::int64_t character_count(std::string_view text) {
  std::int64_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(leading_character(text).first);
  return count;
}

std::vector<std::int64_t> slice_positions(std::int64_t length, std::optional<std::int64_t> start,
                                          std::optional<std::int64_t> stop, std::int64_t step) {
  const std::int64_t low = step > 0 ? 0 : -1;
  const std::int64_t high = step > 0 ? length : length - 1;
  const auto limited = [&](std::optional<std::int64_t> position, std::int64_t otherwise) {
    if (!position) return otherwise;
    const std::int64_t from_start =
        *position < 0 ? std::max(*position, -length - 1) + length : *position;
    return std::clamp(from_start, low, high);
  };
  const std::int64_t first = limited(start, step > 0 ? low : high);
  const std::int64_t last = limited(stop, step > 0 ? high : low);
  const std::int64_t stride = std::clamp(step, -length - 1, length + 1);
  std::vector<std::int64_t> positions;
  for (std::int64_t i = first; step > 0 ? i < last : i > last; i += stride) positions.push_back(i);
  return positions;
}

std::string slice_of(std::string_view text, std::optional<std::int64_t> start,
                     std::optional<std::int64_t> stop, std::int64_t step) {
  const auto all = characters(text);
  std::string made;
  for (const std::int64_t i :
       slice_positions(static_cast<std::int64_t>(all.size()), start, stop, step))
    made += all[static_cast<std::size_t>(i)];
  return made;
}

bool is_space(std::string_view character) {
  const auto [bytes, code] = leading_character(character);
  return code >= 0 && is_space_code(code);
}

std::string_view strip(std::string_view text, const std::string* set, bool left, bool right) {
  const auto drops = [&](std::string_view character) {
    return set ? set->find(character) != std::string::npos : is_space(character);
  };
  const auto all = characters(text);
  std::size_t begin = 0, end = all.size();
  while (left && begin < end && drops(all[begin])) ++begin;
  while (right && begin < end && drops(all[end - 1])) --end;
  if (begin == end) return {};
  const char* first = all[begin].data();
  return {first, static_cast<std::size_t>(all[end - 1].data() + all[end - 1].size() - first)};
}

std::vector<std::string> split(std::string_view text, const std::string* separator,
                               std::int64_t most, bool from_right) {
  if (!separator) return split_at_spaces(text, most, from_right);
  std::vector<std::string> parts;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
    if (at == std::string_view::npos) break;
    const std::string_view before = text.substr(0, at), after = text.substr(at + separator->size());
    parts.emplace_back(from_right ? after : before);
    text = from_right ? before : after;
  }
  parts.emplace_back(text);
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [bytes, code] = leading_character(text.substr(at));
    if (code < 0 || !ends_line(code)) {
      at += bytes;
      continue;
    }
    lines.emplace_back(text.substr(begin, at - begin));
    at += bytes;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t most) {
  std::string made;
  std::int64_t done = 0;
  if (from.empty()) {  // before every character and at the end
    for (const std::string_view character : characters(text)) {
      if (most < 0 || done++ < most) made += to;
      made += character;
    }
    if (most < 0 || done < most) made += to;
    return made;
  }
  while (most < 0 || done < most) {
    const std::size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    made.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
    ++done;
  }
  return made.append(text);
}

std::int64_t word_count(std::string_view text) {
  std::int64_t count = 0;
  bool in_word = false;
  while (!text.empty()) {
    const auto [bytes, code] = leading_character(text);
    const bool continues = std::exchange(in_word, code == '_' || is_letter_or_digit(code));
    if (in_word && !continues) ++count;
    text.remove_prefix(bytes);
  }
  return count;
}

std::string to_upper(std::string_view text) {
  return mapped(replace(text, "ß", "SS", -1), utf8proc_toupper);
}
std::string to_lower(std::string_view text) { return mapped(text, utf8proc_tolower); }

std::string to_title(std::string_view text) {
  bool in_word = false;
  return mapped(text, [&](std::int32_t code) {
    const bool continues = in_word;
    in_word = is_letter(code);
    return continues ? utf8proc_tolower(code) : utf8proc_totitle(code);
  });
}

std::string capitalize(std::string_view text) {
  bool first = true;
  return mapped(text, [&](std::int32_t code) {
    const bool begins = std::exchange(first, false);
    return begins ? utf8proc_totitle(code) : utf8proc_tolower(code);
  });
}

std::string repr_of(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string made(1, quote);
  while (!text.empty()) {
    const auto [bytes, code] = leading_character(text);
    const auto escaped = [&](const char* format, unsigned value) {
      char buffer[16];
      std::snprintf(buffer, sizeof buffer, format, value);
      made += buffer;
    };
    if (code == quote || code == '\\')
      (made += '\\') += static_cast<char>(code);
    else if (code == '\n')
      made += "\\n";
    else if (code == '\r')
      made += "\\r";
    else if (code == '\t')
      made += "\\t";
    else if (code >= 0 && is_printable(code))
      made.append(text.substr(0, bytes));
    else if (code < 0)
      escaped("\\x%02x", static_cast<unsigned char>(text.front()));
    else
      escaped(code < 0x100     ? "\\x%02x"
              : code < 0x10000 ? "\\u%04x"
                               : "\\U%08x",
              static_cast<unsigned>(code));
    text.remove_prefix(bytes);
  }
  return made += quote;
}

std::string text_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest digits that read back as the same number, as "d.ddde-XX".
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<std::size_t>(end - buffer));
  const int exponent = std::stoi(std::string(shortest.substr(shortest.find('e') + 1)));
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string text(buffer, fixed);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace strata
