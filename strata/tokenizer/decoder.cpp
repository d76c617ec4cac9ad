// Strip after Fuse applies to the whole text, so it is stored as a prefix and a count. All other
// decoder steps apply to one name and run once, when the file is read.
#include "strata/tokenizer/decoder.h"

#include <cctype>
#include <string_view>
#include <unordered_map>

#include "strata/base/utf8.h"

namespace strata {
namespace {

// GPT-2's alphabet: printable bytes of Latin-1 are themselves, the others follow from U+0100.
std::unordered_map<char32_t, char> byte_alphabet() {
  std::unordered_map<char32_t, char> alphabet;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
    alphabet[printable ? byte : next++] = static_cast<char>(byte);
  }
  return alphabet;
}

void read_strip(const JsonPart& step, bool fused, TokenDecoder& decoder) {
  const JsonPart start = step.member("start"), stop = step.member("stop");
  if (!fused) step.refuse("Strip after Fuse", "Strip of every token");
  if (stop.number() != 0) stop.refuse("0", std::to_string(stop.number()));
  decoder.strip = step.member("content").text();
  if (decoder.strip.empty()) step.member("content").refuse("at least one character", "none");
  decoder.strip_times = static_cast<std::size_t>(start.number());
}

}  // namespace

std::optional<std::string> spelled_bytes(const std::string& name) {
  static const std::unordered_map<char32_t, char> kAlphabet = byte_alphabet();
  std::string bytes;
  for (std::string_view rest = name; !rest.empty();) {
    const std::size_t size = character_bytes(rest);
    const auto found = size == 0 ? kAlphabet.end() : kAlphabet.find(first_character(rest));
    if (found == kAlphabet.end()) return std::nullopt;
    bytes += found->second;
    rest.remove_prefix(size);
  }
  return bytes;
}

int byte_of(const std::string& name) {
  if (name.size() != 6 || !name.starts_with("<0x") || !name.ends_with('>')) return -1;
  if (std::isxdigit(static_cast<unsigned char>(name[3])) == 0 ||
      std::isxdigit(static_cast<unsigned char>(name[4])) == 0)
    return -1;
  return std::stoi(name.substr(3, 2), nullptr, 16);
}

std::string TokenDecoder::bytes_of(const std::string& name) const {
  if (byte_level) return spelled_bytes(name).value_or(name);
  if (byte_tokens && byte_of(name) >= 0) return {static_cast<char>(byte_of(name))};
  std::string bytes = name;
  for (const auto& [pattern, by] : replacements) bytes = pattern.replace(bytes, by);
  return bytes;
}

TokenDecoder read_decoder(const JsonPart& decoder) {
  TokenDecoder result;
  bool fused = false;
  const std::vector<JsonPart> steps = steps_of(decoder, "decoders");
  if (steps.empty()) decoder.refuse("a decoder", "none");
  for (const JsonPart& step : steps) {
    const std::string type = type_of(step);
    if (type == "ByteLevel" && steps.size() == 1) {
      result.byte_level = true;
    } else if (type == "ByteFallback") {
      result.byte_tokens = true;
    } else if (type == "Fuse") {
      fused = true;
    } else if (type == "Replace") {
      result.replacements.emplace_back(pattern_of(step.member("pattern")),
                                       step.member("content").text());
    } else if (type == "Strip") {
      read_strip(step, fused, result);
    } else if (type == "Metaspace") {
      result.replacements.emplace_back(
          Pattern(step.text("replacement", "▁"), Pattern::Kind::kLiteral, "Metaspace"), " ");
      const bool always = step.flag("add_prefix_space", true);
      result.strip = " ";
      result.strip_times = step.text("prepend_scheme", always ? "always" : "never") != "never";
    } else {
      step.refuse("ByteLevel alone, or Replace, ByteFallback, Fuse, Strip and Metaspace", type);
    }
  }
  return result;
}

}  // namespace strata
