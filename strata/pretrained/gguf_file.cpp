// Every count and length in the file is checked against the bytes that are left before memory is
// allocated for it. Lists stay in the file until they are requested, so that a file of millions of
// empty strings costs no more memory than its bytes.
#include "strata/pretrained/gguf_file.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/pretrained/gguf_blocks.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little);

const FileUse kGgufUse{.operation = "pretrained.gguf", .fix = "copy or convert the file again"};

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kMaxKeys = 1 << 16;
constexpr std::uint64_t kMaxTensors = 1 << 18;
constexpr std::uint64_t kMaxListValues = 1 << 22;
constexpr std::uint64_t kMaxNameBytes = (1 << 16) - 1;
constexpr std::uint64_t kMaxTextBytes = std::uint64_t{16} << 20;
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;
constexpr std::int64_t kMaxAlignment = 1 << 20;
constexpr int kMaxListDepth = 8;
constexpr std::uint64_t kWindowBytes = 1 << 18;

// Types of metadata values.
enum ValueType : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kList,
  kUint64,
  kInt64,
  kFloat64
};

// Bytes of a value; 0 for strings, lists and unknown types.
std::uint64_t bytes_of_type(std::uint32_t type) {
  constexpr std::uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

double shortest(float value) {
  char text[64] = {};
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  double result = value;
  std::from_chars(text, end, result);
  return result;
}

}  // namespace

bool is_gguf(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  if (path.ends_with(".gguf")) return true;
  try {
    const auto file = RandomAccessFile::open(path, kGgufUse);
    std::string magic(kMagic.size(), ' ');
    if (file->size() < magic.size()) return false;
    file->read(0, std::as_writable_bytes(std::span(magic)));
    return magic == kMagic;
  } catch (const Error&) {
    return false;  // its reader says why it cannot be read
  }
}

std::int64_t GgufTensor::numel() const {
  std::int64_t numel = 1;
  for (const std::int64_t size : shape) numel *= size;
  return numel;
}

// Reads the header in order, through a window of the file.
class GgufFile::Cursor {
 public:
  explicit Cursor(const GgufFile& file, std::uint64_t at = 0) : file_(file), at_(at) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return file_.file_->size() - at_; }

  void read(std::span<std::byte> out, const std::string& what) {
    require(out.size(), what);
    if (at_ < first_ || at_ + out.size() > first_ + window_.size()) {
      window_.resize(std::min(left(), std::max<std::uint64_t>(out.size(), kWindowBytes)));
      first_ = at_;
      file_.read(first_, window_);
    }
    std::memcpy(out.data(), window_.data() + (at_ - first_), out.size());
    at_ += out.size();
  }

  template <typename T>
  T number(const std::string& what) {
    T value{};
    read(std::as_writable_bytes(std::span(&value, 1)), what);
    return value;
  }

  std::string text(const std::string& what, std::uint64_t longest) {
    const auto bytes = number<std::uint64_t>(what);
    require(bytes, what);
    if (bytes > longest)
      file_.refuse(what, "a text is too long", "at most " + std::to_string(longest) + " bytes",
                   std::to_string(bytes));
    std::string text(bytes, '\0');
    if (bytes > 0) read(std::as_writable_bytes(std::span(text)), what);
    return text;
  }

  void skip(std::uint64_t count, std::uint64_t bytes, const std::string& what) {
    require(count, what);  // keeps the product small
    if (count > left() / bytes) truncated(what);
    at_ += count * bytes;
  }

  GgufValue value(const std::string& key) {
    const auto type = number<std::uint32_t>(key);
    if (type == kString) return text(key, kMaxTextBytes);
    if (type != kList) return scalar(type, key);
    const GgufList list{number<std::uint32_t>(key), number<std::uint64_t>(key), at_};
    skip_list(list, key, 0);
    return list;
  }

 private:
  [[noreturn]] void truncated(const std::string& what) const {
    file_.refuse(what, "the file is truncated, or a length in it is wrong", "a whole GGUF file",
                 std::to_string(file_.file_->size()) + " bytes");
  }
  void require(std::uint64_t bytes, const std::string& what) const {
    if (bytes > left()) truncated(what);
  }
  [[noreturn]] void refuse_type(std::uint32_t type, const std::string& key) const {
    file_.refuse(key, "a value has a type that GGUF doesn't have", "0 to 12", std::to_string(type));
  }

  GgufValue scalar(std::uint32_t type, const std::string& key) {
    const auto integer = [&]<typename T>(T) -> GgufValue { return std::int64_t{number<T>(key)}; };
    switch (type) {
      case kUint8:
        return integer(std::uint8_t{});
      case kInt8:
        return integer(std::int8_t{});
      case kUint16:
        return integer(std::uint16_t{});
      case kInt16:
        return integer(std::int16_t{});
      case kUint32:
        return integer(std::uint32_t{});
      case kInt32:
        return integer(std::int32_t{});
      case kInt64:
        return integer(std::int64_t{});
      case kUint64: {
        const auto number64 = number<std::uint64_t>(key);
        if (number64 <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
          return static_cast<std::int64_t>(number64);
        return static_cast<double>(number64);
      }
      case kFloat32:
        return number<float>(key);
      case kFloat64:
        return number<double>(key);
      case kBool:
        return number<std::uint8_t>(key) != 0;
      default:
        refuse_type(type, key);
    }
  }

  void skip_list(const GgufList& list, const std::string& key, int depth) {
    if (depth == kMaxListDepth)
      file_.refuse(key, "lists are nested too deeply", "at most " + std::to_string(kMaxListDepth),
                   "more");
    if (const std::uint64_t bytes = bytes_of_type(list.type); bytes > 0)
      return skip(list.count, bytes, key);
    if (list.type != kString && list.type != kList) refuse_type(list.type, key);
    for (std::uint64_t i = 0; i < list.count; ++i) {
      if (list.type == kString) {
        skip(number<std::uint64_t>(key), 1, key);
      } else {
        const GgufList inner{number<std::uint32_t>(key), number<std::uint64_t>(key), at_};
        skip_list(inner, key, depth + 1);
      }
    }
  }

  const GgufFile& file_;
  std::uint64_t at_, first_ = 0;
  std::vector<std::byte> window_;
};

std::shared_ptr<const GgufFile> GgufFile::open(const std::string& path) {
  const std::shared_ptr<GgufFile> file(new GgufFile(RandomAccessFile::open(path, kGgufUse)));
  file->read_header();
  return file;
}

void GgufFile::read_header() {
  Cursor cursor(*this);
  std::string magic(kMagic.size(), ' ');
  cursor.read(std::as_writable_bytes(std::span(magic)), "");
  if (magic != kMagic)
    refuse("", "the file is not a GGUF file", "a file that begins with GGUF", quote(magic));
  const auto version = cursor.number<std::uint32_t>("");
  if (version != 2 && version != 3)
    refuse("", "the file has another version or byte order", "version 2 or 3, little endian",
           std::to_string(version));
  const auto tensors = cursor.number<std::uint64_t>("");
  const auto keys = cursor.number<std::uint64_t>("");
  if (tensors > kMaxTensors || keys > kMaxKeys)
    refuse("", "the file announces too many tensors or keys",
           "at most " + std::to_string(kMaxTensors) + " and " + std::to_string(kMaxKeys),
           std::to_string(tensors) + " and " + std::to_string(keys));
  read_metadata(cursor, keys);
  read_tensors(cursor, tensors);
  check_places();
}

void GgufFile::read_metadata(Cursor& cursor, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string key = cursor.text("a key", kMaxNameBytes);
    if (!metadata_.emplace(key, cursor.value(key)).second)
      refuse(key, "a key occurs twice", "once", "twice");
  }
}

void GgufFile::read_tensors(Cursor& cursor, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string name = cursor.text("a tensor", kMaxNameBytes);
    GgufTensor tensor;
    const auto dimensions = cursor.number<std::uint32_t>(name);
    if (dimensions < 1 || dimensions > kMaxDimensions)
      refuse(name, "a tensor has an impossible number of dimensions", "1 to 4",
             std::to_string(dimensions));
    std::int64_t numel = 1;
    for (std::uint32_t d = 0; d < dimensions; ++d) {
      const auto size = cursor.number<std::uint64_t>(name);
      if (size < 1 || size > static_cast<std::uint64_t>(kMaxSize / numel))
        refuse(name, "a tensor has an impossible size", "1 to " + std::to_string(kMaxSize),
               std::to_string(size));
      numel *= static_cast<std::int64_t>(size);
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
    }
    tensor.type = cursor.number<std::uint32_t>(name);
    tensor.begin = cursor.number<std::uint64_t>(name);
    if (!tensors_.emplace(name, std::move(tensor)).second)
      refuse(name, "a tensor occurs twice", "once", "twice");
  }
  constexpr const char* kAlignment = "general.alignment";
  const std::uint64_t alignment = has(kAlignment) ? integer(kAlignment, 1, kMaxAlignment) : 32;
  const std::uint64_t data = (cursor.at() + alignment - 1) / alignment * alignment;
  for (auto& [name, tensor] : tensors_) {
    if (tensor.begin % alignment != 0 || data > file_->size() ||
        tensor.begin > file_->size() - data)
      refuse(name, "a tensor lies outside the file, or unaligned",
             "a multiple of " + std::to_string(alignment) + " within the file",
             std::to_string(tensor.begin));
    tensor.begin += data;
  }
}

// Tensors of unknown types end where they begin: GgufWeights refuses them.
void GgufFile::check_places() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const auto& [name, tensor] : tensors_) {
    const BlockType* type = find_block_type(tensor.type);
    if (type == nullptr) continue;
    if (tensor.shape.back() % type->elements != 0)
      refuse(name, "the rows of a tensor do not consist of whole blocks",
             "a multiple of " + std::to_string(type->elements),
             std::to_string(tensor.shape.back()));
    const std::uint64_t bytes = tensor.numel() / type->elements * type->bytes;
    if (bytes > file_->size() - tensor.begin)
      refuse(name, "a tensor reaches beyond the end of the file",
             std::to_string(file_->size() - tensor.begin) + " bytes at most",
             std::to_string(bytes));
    ranges.emplace_back(tensor.begin, tensor.begin + bytes);
  }
  std::ranges::sort(ranges);
  for (std::size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second)
      refuse("", "tensors overlap", "each byte in one tensor",
             "two tensors at byte " + std::to_string(ranges[i].first));
}

void GgufFile::refuse(const std::string& name, const std::string& what, const std::string& expected,
                      const std::string& got, const std::string& fix) const {
  throw UserError({.operation = kGgufUse.operation,
                   .where = path() + (name.empty() ? "" : ": " + excerpt(name)),
                   .what = what,
                   .expected = expected,
                   .got = got,
                   .fix = fix.empty() ? kGgufUse.fix : fix});
}

const GgufValue& GgufFile::value(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) refuse(key, "the metadata lacks a key", "this key", "nothing");
  return found->second;
}

template <typename T>
const T& GgufFile::value_of(const std::string& key, const char* kind) const {
  if (const T* found = std::get_if<T>(&value(key))) return *found;
  refuse(key, "a value is of another kind", kind, "something else");
}

std::string GgufFile::text(const std::string& key) const {
  return value_of<std::string>(key, "a text");
}

std::string GgufFile::text(const std::string& key, const std::string& otherwise) const {
  return has(key) ? text(key) : otherwise;
}

bool GgufFile::flag(const std::string& key, bool otherwise) const {
  return has(key) ? value_of<bool>(key, "true or false") : otherwise;
}

std::int64_t GgufFile::integer(const std::string& key, std::int64_t minimum,
                               std::int64_t maximum) const {
  const std::int64_t number = value_of<std::int64_t>(key, "a whole number");
  if (number < minimum || number > maximum)
    refuse(key, "a number is too small or too large",
           std::to_string(minimum) + " to " + std::to_string(maximum), std::to_string(number));
  return number;
}

double GgufFile::real(const std::string& key) const {
  if (const float* number = std::get_if<float>(&value(key))) return shortest(*number);
  return value_of<double>(key, "a number with a fraction");
}

const GgufList& GgufFile::list(const std::string& key, std::uint32_t type, const char* kind) const {
  const GgufList& list = value_of<GgufList>(key, kind);
  const bool numbers32 = type == kInt32 && list.type == kUint32;
  if (list.type != type && !numbers32)
    refuse(key, "a value is of another kind", kind, "another list");
  if (list.count > kMaxListValues)
    refuse(key, "a list is too long", "at most " + std::to_string(kMaxListValues) + " values",
           std::to_string(list.count));
  return list;
}

std::vector<std::string> GgufFile::texts(const std::string& key) const {
  const GgufList& strings = list(key, kString, "a list of texts");
  Cursor cursor(*this, strings.begin);
  std::vector<std::string> texts;
  texts.reserve(strings.count);
  for (std::uint64_t i = 0; i < strings.count; ++i)
    texts.push_back(cursor.text(key, kMaxTextBytes));
  return texts;
}

template <typename T>
std::vector<T> GgufFile::numbers(const std::string& key, const GgufList& list) const {
  std::vector<T> numbers(list.count);
  if (!numbers.empty())
    Cursor(*this, list.begin).read(std::as_writable_bytes(std::span(numbers)), key);
  return numbers;
}

std::vector<std::int32_t> GgufFile::integers(const std::string& key) const {
  return numbers<std::int32_t>(key, list(key, kInt32, "a list of whole numbers of 32 bits"));
}

std::vector<float> GgufFile::reals(const std::string& key) const {
  return numbers<float>(key, list(key, kFloat32, "a list of floats of 32 bits"));
}

}  // namespace strata
