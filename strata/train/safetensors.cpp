#include "strata/train/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "strata/base/durable_file.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little);

const std::map<std::string, at::ScalarType>& dtypes() {
  static const std::map<std::string, at::ScalarType> names = {
      {"F32", at::kFloat}, {"F64", at::kDouble}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
      {"I64", at::kLong},  {"I32", at::kInt},    {"I16", at::kShort}, {"I8", at::kChar},
      {"U8", at::kByte},   {"BOOL", at::kBool}};
  return names;
}

const std::string& name_of(at::ScalarType dtype) {
  for (const auto& [name, type] : dtypes())
    if (type == dtype) return name;
  throw InternalError({.operation = "train.safetensors", .what = "a dtype without a name"});
}

[[noreturn]] void refuse(const std::string& path, const std::string& what,
                         const std::string& got = "") {
  throw UserError({.operation = "train.safetensors",
                   .where = path,
                   .what = what,
                   .expected = "a whole safetensors file",
                   .got = got,
                   .fix = "restore the file, or use another checkpoint"});
}

// Bytes of a tensor; empty where the shape is no list of counts or their product leaves 64 bits.
std::optional<std::size_t> bytes_of(const nlohmann::json& shape, std::size_t element_size) {
  std::size_t bytes = element_size;
  for (const nlohmann::json& size : shape) {
    if (!size.is_number_unsigned() ||
        __builtin_mul_overflow(bytes, size.get<std::size_t>(), &bytes))
      return std::nullopt;
  }
  return bytes;
}

}  // namespace

ChunkDigest write_safetensors(const std::string& path, std::span<const NamedTensor> unordered) {
  // Wide dtypes first, so that every tensor starts at a multiple of its element's size.
  std::vector<NamedTensor> tensors(unordered.begin(), unordered.end());
  std::ranges::stable_sort(tensors, std::greater{},
                           [](const NamedTensor& t) { return t.tensor.element_size(); });
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::size_t offset = 0;
  for (const NamedTensor& t : tensors) {
    STRATA_CHECK(t.tensor.is_contiguous() && t.tensor.is_cpu(), "train.write_safetensors");
    STRATA_CHECK(!header.contains(t.name), "train.write_safetensors");
    header[t.name] = {{"dtype", name_of(t.tensor.scalar_type())},
                      {"shape", t.tensor.sizes().vec()},
                      {"data_offsets", {offset, offset + t.tensor.nbytes()}}};
    offset += t.tensor.nbytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts aligned
  const std::uint64_t length = text.size();
  DurableFile file(path);
  ChunkDigester digester;
  const auto write = [&](std::span<const std::byte> bytes) {
    file.write(bytes);
    digester.add(bytes);
  };
  write(std::as_bytes(std::span(&length, 1)));
  write(std::as_bytes(std::span(text)));
  for (const NamedTensor& t : tensors)
    write({static_cast<const std::byte*>(t.tensor.const_data_ptr()), t.tensor.nbytes()});
  file.close();
  return digester.finish();
}

SafetensorsFile SafetensorsFile::open(const std::string& path, const ChunkDigest* digest) {
  const auto mapped =
      MappedFile::open(path, "train.safetensors", "restore the file, or use another checkpoint");
  const std::span<const std::byte> bytes = mapped->bytes();
  SafetensorsFile file(mapped);
  if (digest) file.verifier_ = std::make_shared<ChunkVerifier>(mapped, *digest);
  std::uint64_t length = 0;
  if (bytes.size() < sizeof(length)) refuse(path, "the file is truncated");
  std::memcpy(&length, file.verified(0, sizeof(length), "its header").data(), sizeof(length));
  if (length > bytes.size() - sizeof(length)) refuse(path, "the header reaches beyond the file");
  const char* text = reinterpret_cast<const char*>(
      file.verified(sizeof(length), sizeof(length) + length, "its header").data());
  const nlohmann::json header = nlohmann::json::parse(text, text + length, nullptr, false);
  if (!header.is_object()) refuse(path, "the header is no JSON object");
  const std::size_t data = sizeof(length) + length;
  try {
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      const std::string dtype = entry.at("dtype");
      if (!dtypes().contains(dtype)) refuse(path, name + " has an unknown dtype", dtype);
      Entry e{dtypes().at(dtype), entry.at("shape"),
              entry.at("data_offsets").at(0).get<std::size_t>() + data,
              entry.at("data_offsets").at(1).get<std::size_t>() + data};
      if (e.begin > e.end || e.end > bytes.size() ||
          bytes_of(entry.at("shape"), c10::elementSize(e.dtype)) != e.end - e.begin)
        refuse(path, name + " lies outside the file or contradicts its shape");
      file.entries_.emplace(name, std::move(e));
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(path, "the header is malformed", error.what());
  }
  file.check_cover(path, data);
  return file;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const SafetensorsFile::Entry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) refuse(path(), "there is no tensor of this name", name);
  return found->second;
}

std::span<const std::byte> SafetensorsFile::verified(std::size_t begin, std::size_t end,
                                                     const std::string& reader) const {
  if (verifier_) verifier_->require(begin, end, reader);
  return file_->bytes().subspan(begin, end - begin);
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const Entry& e = entry(name);
  const std::span<const std::byte> bytes = verified(e.begin, e.end, "'" + name + "'");
  if (e.begin % c10::elementSize(e.dtype) != 0) {
    at::Tensor copy = at::empty(e.shape, e.dtype);
    std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
    return copy;
  }
  // ATen has no read-only tensors: the mapping is read-only, so a write ends the program.
  auto* data = const_cast<std::byte*>(bytes.data());
  return at::from_blob(data, e.shape, [file = file_](void*) {}, e.dtype);
}

std::span<const std::byte> SafetensorsFile::elements(const std::string& name, std::int64_t begin,
                                                     std::int64_t end) const {
  const Entry& e = entry(name);
  const std::size_t size = c10::elementSize(e.dtype);
  const std::size_t first = e.begin + static_cast<std::size_t>(begin) * size;
  const std::size_t last = e.begin + static_cast<std::size_t>(end) * size;
  STRATA_CHECK(begin >= 0 && begin <= end && last <= e.end, "train.safetensors");
  return verified(first, last, "'" + name + "'");
}

// The ranges must cover the data, each byte once: what is left over or shared is damage.
void SafetensorsFile::check_cover(const std::string& path, std::size_t data) const {
  std::map<std::size_t, std::size_t> ranges;
  std::size_t total = 0;
  for (const auto& [name, entry] : entries_) {
    if (entry.begin != entry.end) ranges[entry.begin] = entry.end;
    total += entry.end - entry.begin;
  }
  std::size_t reached = data;
  for (const auto& [begin, end] : ranges) {
    if (begin != reached) refuse(path, "the tensors' ranges overlap or leave gaps");
    reached = end;
  }
  if (reached != file_->bytes().size() || total != reached - data)
    refuse(path, "the tensors' ranges don't cover the file");
}

}  // namespace strata
