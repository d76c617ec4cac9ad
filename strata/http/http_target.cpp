#include "strata/http/http_target.h"

#include <algorithm>

#include "strata/base/utf8.h"

namespace strata {
namespace {

int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

std::vector<std::string_view> parts_between(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end = 0; (end = text.find(separator)) != std::string_view::npos;
       text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

bool is_control(char byte) {
  return static_cast<unsigned char>(byte) < 0x20 || static_cast<unsigned char>(byte) == 0x7f;
}

std::optional<std::string> form_decoded(std::string_view text) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), '+', ' ');
  return percent_decoded(spaced);
}

}  // namespace

void split_target(std::string_view target, HttpRequest& request) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (target.starts_with(scheme))
      target.remove_prefix(std::min(target.find_first_of("/?", scheme.size()), target.size()));
  const std::size_t question = std::min(target.find('?'), target.size());
  request.path = target.substr(0, question);
  request.query = target.substr(std::min(question + 1, target.size()));
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (decoded.find('\0') != std::string::npos || utf8_bytes(decoded) != decoded.size())
    return std::nullopt;
  return decoded;
}

std::optional<std::vector<std::string>> path_segments(std::string_view path) {
  if (!path.starts_with('/')) return std::nullopt;
  std::vector<std::string> segments;
  for (const std::string_view part : parts_between(path.substr(1), '/')) {
    std::optional<std::string> segment = percent_decoded(part);
    if (!segment || std::any_of(segment->begin(), segment->end(), is_control)) return std::nullopt;
    segments.push_back(std::move(*segment));
  }
  return segments;
}

std::optional<HttpFields> query_fields(std::string_view query) {
  HttpFields fields;
  for (const std::string_view part : parts_between(query, '&')) {
    if (part.empty()) continue;
    const std::size_t sign = std::min(part.find('='), part.size());
    std::optional<std::string> name = form_decoded(part.substr(0, sign));
    std::optional<std::string> value = form_decoded(part.substr(std::min(sign + 1, part.size())));
    if (!name || !value) return std::nullopt;
    fields.emplace_back(std::move(*name), std::move(*value));
  }
  return fields;
}

bool is_plain_name(std::string_view segment) {
  if (segment.find('\\') != std::string_view::npos) return false;
  for (const std::string_view part : parts_between(segment, '/'))
    if (part.empty() || part == "." || part == "..") return false;
  return true;
}

}  // namespace strata
