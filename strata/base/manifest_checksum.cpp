#include "strata/base/manifest_checksum.h"

#include <charconv>
#include <span>

#include "strata/base/checksum.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

constexpr std::string_view kManifestEnd = "\n}\n";

// Writes the last field. The checksum covers the text without this field.
std::string checksum_field(std::string_view text_without) {
  const std::uint64_t sum = checksum(std::as_bytes(std::span(text_without)));
  return ",\n  \"manifest_checksum\": \"" + checksum_text(sum) + "\"";
}

}  // namespace

std::string with_manifest_checksum(std::string json) {
  json.insert(json.size() - 2, checksum_field(json));
  return json + "\n";
}

void require_manifest_checksum(std::string_view text, const std::string& path, const FileUse& use) {
  const std::size_t field = checksum_field("").size();
  const bool whole = text.size() > field + kManifestEnd.size() && text.ends_with(kManifestEnd);
  if (!whole) use.refuse(path, "the manifest is damaged", "a checksum at its end", "another end");
  const std::size_t at = text.size() - kManifestEnd.size() - field;
  const std::string without = std::string(text.substr(0, at)) + "\n}";
  const std::string expected = checksum_field(without);
  const std::string_view got = text.substr(at, field);
  if (got != expected)
    use.refuse(path, "the manifest is damaged: its checksum is another",
               excerpt(expected.substr(4)), excerpt(got.substr(4)));
}

std::uint64_t read_checksum(const JsonPart& digits) {
  const std::string text = digits.text();
  std::uint64_t sum = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sum, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 16)
    digits.refuse("16 hexadecimal digits", text);
  return sum;
}

}  // namespace strata
