#include "strata/data/array_formats.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "strata/base/json_document.h"
#include "strata/base/user_text.h"
#include "strata/data/safetensors_types.h"

namespace strata {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kMostDimensions = 32;
constexpr std::size_t kLongestHeader = 1 << 16;

std::string bytes_at(const RandomAccessFile& file, std::uint64_t first, std::size_t count) {
  if (first + count > file.size())
    throw kArrayErrors.user(file.path(), "the file ends within its header",
                            std::to_string(first + count) + " bytes or more",
                            std::to_string(file.size()) + " bytes");
  std::string bytes(count, '\0');
  file.read(first, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::uint64_t number_of(std::string_view bytes, bool big_endian) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    number = number << 8 | static_cast<unsigned char>(bytes[big_endian ? i : bytes.size() - 1 - i]);
  return number;
}

// ---- .npy: magic, version, length of the header, a Python dictionary as text, numbers

// The text after `'key':` in a Python dictionary, without spaces; none: there is no such key.
std::optional<std::string_view> value_of(std::string_view dictionary, std::string_view key) {
  const std::string quoted = "'" + std::string(key) + "':";
  const std::size_t at = dictionary.find(quoted);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = dictionary.substr(at + quoted.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

// "(60000, 28, 28)": the numbers; none: another text.
std::optional<std::vector<std::int64_t>> tuple_of(std::string_view text) {
  std::vector<std::int64_t> numbers;
  if (!text.starts_with('(')) return std::nullopt;
  text.remove_prefix(1);
  while (!text.starts_with(')')) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 0 || numbers.size() == kMostDimensions)
      return std::nullopt;
    numbers.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.starts_with(',')) text.remove_prefix(1);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  return numbers;
}

struct NumpyType {
  std::string_view name;
  at::ScalarType dtype;
};
constexpr std::array<NumpyType, 10> kNumpyTypes = {{{"'<f4'", at::kFloat},
                                                    {"'<f8'", at::kDouble},
                                                    {"'<f2'", at::kHalf},
                                                    {"'<i8'", at::kLong},
                                                    {"'<i4'", at::kInt},
                                                    {"'<i2'", at::kShort},
                                                    {"'|i1'", at::kChar},
                                                    {"'|u1'", at::kByte},
                                                    {"'|b1'", at::kBool},
                                                    {"'<b1'", at::kBool}}};

ArrayHeader read_numpy(const RandomAccessFile& file) {
  const std::string start = bytes_at(file, 0, 12);
  const bool is_first = start[6] == 1;  // later versions have longer headers
  const std::uint64_t text_at = is_first ? 10 : 12;
  const std::uint64_t length =
      number_of(std::string_view(start).substr(8, is_first ? 2 : 4), false);
  if (length > kLongestHeader)
    throw kArrayErrors.user(file.path(), "the header is too long",
                            std::to_string(kLongestHeader) + " bytes", std::to_string(length));
  const std::string text = bytes_at(file, text_at, length);
  const auto refuse = [&](const std::string& what, const std::string& expected,
                          std::string_view got) {
    throw kArrayErrors.user(file.path(), what, expected, quote(std::string(got.substr(0, 40))));
  };
  ArrayHeader header{.first_byte = text_at + length, .shape = {}};
  const std::string_view type = value_of(text, "descr").value_or("");
  const auto known = std::ranges::find_if(
      kNumpyTypes, [&](const NumpyType& each) { return type.starts_with(each.name); });
  if (known == kNumpyTypes.end())
    refuse("numbers of a type that is not read",
           "float16, 32, 64, int8, 16, 32, 64, uint8 or bool, "
           "little-endian",
           type.substr(0, type.find(',')));
  header.dtype = known->dtype;
  const std::string_view order = value_of(text, "fortran_order").value_or("");
  if (!order.starts_with("False"))
    refuse("numbers by columns", "fortran_order False: numpy.ascontiguousarray(x)",
           order.substr(0, order.find(',')));
  const std::string_view shape = value_of(text, "shape").value_or("");
  const auto sizes = tuple_of(shape);
  if (!sizes) refuse("a shape that cannot be read", "a tuple of sizes", shape);
  header.shape = *sizes;
  return header;
}

// ---- IDX: two zeros, type, number of dimensions, sizes, numbers; big-endian

ArrayHeader read_idx(const RandomAccessFile& file) {
  const std::string start = bytes_at(file, 0, 4);
  const auto type = static_cast<unsigned char>(start[2]);
  const auto dimensions = static_cast<std::size_t>(static_cast<unsigned char>(start[3]));
  if (type != 0x08 && type != 0x09)
    throw kArrayErrors.user(file.path(), "IDX numbers of a type that is not read",
                            "bytes: type 8 or 9", "type " + std::to_string(type));
  if (dimensions > kMostDimensions)
    throw kArrayErrors.user(file.path(), "too many dimensions",
                            "at most " + std::to_string(kMostDimensions),
                            std::to_string(dimensions));
  ArrayHeader header{
      .first_byte = 4 + 4 * dimensions, .shape = {}, .dtype = type == 0x08 ? at::kByte : at::kChar};
  const std::string sizes = bytes_at(file, 4, 4 * dimensions);
  for (std::size_t i = 0; i < dimensions; ++i)
    header.shape.push_back(
        static_cast<std::int64_t>(number_of(std::string_view(sizes).substr(4 * i, 4), true)));
  return header;
}

// ---- safetensors: length of the header, JSON, numbers

ArrayHeader read_safetensors(const RandomAccessFile& file) {
  const std::uint64_t length = number_of(bytes_at(file, 0, 8), false);
  const JsonDocument document = JsonDocument::parse(
      bytes_at(file, 8, length), file.path(), {.operation = "data.array", .fix = kArrayErrors.fix});
  std::vector<std::string> names = document.root().keys();
  std::erase(names, "__metadata__");
  if (names.size() != 1)
    throw kArrayErrors.user(file.path(), "the file has another number of tensors", "one",
                            std::to_string(names.size()), "save each array as a file of its own");
  const JsonPart tensor = document.root().member(names[0]);
  const JsonPart type = tensor.required_member("dtype");
  const auto known = safetensors_types().find(type.text());
  if (known == safetensors_types().end()) type.refuse("a type such as F32 or U8", type.text());
  ArrayHeader header{.first_byte = 8 + length, .shape = {}, .dtype = known->second};
  const std::vector<JsonPart> sizes = tensor.required_member("shape").elements();
  if (sizes.size() > kMostDimensions)
    throw kArrayErrors.user(file.path(), "too many dimensions",
                            "at most " + std::to_string(kMostDimensions),
                            std::to_string(sizes.size()));
  for (const JsonPart& size : sizes) header.shape.push_back(size.number());
  return header;
}

// The header of a safetensors file begins with its length, and then {.
bool is_safetensors(const RandomAccessFile& file) {
  if (file.size() < 10 || bytes_at(file, 8, 1) != "{") return false;
  const std::uint64_t length = number_of(bytes_at(file, 0, 8), false);
  return length <= kLongestHeader && 8 + length <= file.size();
}

bool begins_with(const RandomAccessFile& file, std::string_view magic) {
  return file.size() >= magic.size() && bytes_at(file, 0, magic.size()) == magic;
}

struct ArrayFormat {
  bool (*matches)(const RandomAccessFile&);
  ArrayHeader (*read)(const RandomAccessFile&);
};
constexpr std::array<ArrayFormat, 3> kFormats = {
    {{[](const RandomAccessFile& file) { return begins_with(file, "\x93NUMPY"sv); }, read_numpy},
     {[](const RandomAccessFile& file) { return begins_with(file, "\0\0"sv); }, read_idx},
     {is_safetensors, read_safetensors}}};

}  // namespace

ArrayHeader read_array_header(const RandomAccessFile& file) {
  for (const ArrayFormat& format : kFormats)
    if (format.matches(file)) return format.read(file);
  throw kArrayErrors.user(
      file.path(), "no .npy, safetensors or IDX file", "an array of numbers", "other bytes",
      file.size() > 2 && bytes_at(file, 0, 2) == "\x1f\x8b" ? "unpack it: gunzip" : "");
}

}  // namespace strata
