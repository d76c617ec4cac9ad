#include "strata/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "strata/base/durable_file.h"
#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/data/safetensors_types.h"

namespace strata {
namespace {

constexpr std::size_t kMaxDimensions = 64;

const FileUse kSafetensorsUse{.operation = "checkpoint.safetensors",
                              .fix = "restore the file, or use another checkpoint"};

static_assert(std::endian::native == std::endian::little);

const std::string& name_of(at::ScalarType dtype) {
  for (const auto& [name, type] : safetensors_types())
    if (type == dtype) return name;
  throw InternalError({.operation = "checkpoint.safetensors", .what = "a dtype without a name"});
}

[[noreturn]] void refuse(const std::string& path, const std::string& what,
                         const std::string& got = "") {
  kSafetensorsUse.refuse(path, what, "a whole safetensors file", got);
}

// Bytes of a tensor; empty if the number overflows 64 bits.
std::optional<std::size_t> bytes_of(const std::vector<std::int64_t>& shape,
                                    std::size_t element_size) {
  std::size_t bytes = element_size;
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes)) return std::nullopt;
  return bytes;
}

}  // namespace

ChunkDigest write_safetensors(const std::string& path, std::span<const NamedTensor> unordered,
                              FileSystem& files) {
  // Wide dtypes first, so that every tensor is aligned to its element size.
  std::vector<NamedTensor> tensors(unordered.begin(), unordered.end());
  std::ranges::stable_sort(tensors, std::greater{},
                           [](const NamedTensor& t) { return t.tensor.element_size(); });
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::size_t offset = 0;
  for (const NamedTensor& t : tensors) {
    STRATA_CHECK(t.tensor.is_contiguous() && t.tensor.is_cpu(), "checkpoint.write_safetensors");
    STRATA_CHECK(!header.contains(t.name), "checkpoint.write_safetensors");
    header[t.name] = {{"dtype", name_of(t.tensor.scalar_type())},
                      {"shape", t.tensor.sizes().vec()},
                      {"data_offsets", {offset, offset + t.tensor.nbytes()}}};
    offset += t.tensor.nbytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data
  const std::uint64_t length = text.size();
  DurableFile file(path, files);
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
  SafetensorsFile file(VerifiedFile::open(path, kSafetensorsUse, digest));
  const std::uint64_t size = file.file_->size();
  std::uint64_t length = 0;
  if (size < sizeof(length)) refuse(path, "the file is truncated");
  file.file_->read(0, std::as_writable_bytes(std::span(&length, 1)), "its header");
  if (length > size - sizeof(length)) refuse(path, "the header reaches beyond the file");
  if (length > kMaxJsonBytes) refuse(path, "the header is too large", std::to_string(length));
  std::string text(length, ' ');
  file.file_->read(sizeof(length), std::as_writable_bytes(std::span(text)), "its header");
  const JsonDocument header = JsonDocument::parse(text, path, kSafetensorsUse);
  const std::size_t data = sizeof(length) + length;
  for (const std::string& name : header.root().keys())
    if (name != "__metadata__")
      file.entries_.emplace(name, file.read_entry(header.root().member(name), data));
  file.check_cover(data);
  return file;
}

SafetensorsFile::Entry SafetensorsFile::read_entry(const JsonPart& entry, std::size_t data) const {
  const JsonPart dtype = entry.member("dtype");
  if (!safetensors_types().contains(dtype.text()))
    dtype.refuse("a dtype that tensors here have", dtype.text());
  Entry read{safetensors_types().at(dtype.text()), {}, data, data};
  const std::vector<JsonPart> shape = entry.member("shape").elements();
  if (shape.size() > kMaxDimensions)
    entry.member("shape").refuse("at most " + std::to_string(kMaxDimensions) + " sizes",
                                 std::to_string(shape.size()));
  for (const JsonPart& size : shape) read.shape.push_back(size.number());
  const std::vector<JsonPart> offsets = entry.member("data_offsets").elements();
  if (offsets.size() != 2)
    entry.member("data_offsets")
        .refuse("[begin, end]", std::to_string(offsets.size()) + " numbers");
  read.begin += static_cast<std::size_t>(offsets[0].number());
  read.end += static_cast<std::size_t>(offsets[1].number());
  if (read.begin > read.end || read.end > file_->size() ||
      bytes_of(read.shape, c10::elementSize(read.dtype)) != read.end - read.begin)
    refuse(path(), excerpt(entry.place()) + " lies outside the file or contradicts its shape");
  return read;
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

void SafetensorsFile::read(const std::string& name, std::int64_t begin,
                           std::span<std::byte> out) const {
  const Entry& e = entry(name);
  const std::size_t first = e.begin + static_cast<std::size_t>(begin) * c10::elementSize(e.dtype);
  STRATA_CHECK(begin >= 0 && first <= e.end && out.size() <= e.end - first,
               "checkpoint.safetensors");
  file_->read(first, out, "'" + excerpt(name) + "'");
}

// The ranges must cover the data exactly once: gaps and overlaps are damage.
void SafetensorsFile::check_cover(std::size_t data) const {
  std::map<std::size_t, std::size_t> ranges;
  std::size_t total = 0;
  for (const auto& [name, entry] : entries_) {
    if (entry.begin != entry.end) ranges[entry.begin] = entry.end;
    total += entry.end - entry.begin;
  }
  std::size_t reached = data;
  for (const auto& [begin, end] : ranges) {
    if (begin != reached) refuse(path(), "the tensors' ranges overlap or leave gaps");
    reached = end;
  }
  if (reached != file_->size() || total != reached - data)
    refuse(path(), "the tensors' ranges don't cover the file");
}

}  // namespace strata
