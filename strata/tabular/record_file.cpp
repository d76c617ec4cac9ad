// The end of the file is checked when it is opened, index and blocks when they are read. A wrong
// index leads to a block with a different checksum, because the checksum covers the block's number.
#include "strata/tabular/record_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/base/random_access_file.h"
#include "strata/base/units.h"
#include "strata/tabular/kept_blocks.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

constexpr std::array<char, 8> kRecordMagic = {'\x89', 'S', 'T', 'R', 'E', 'C', 'S', '\n'};
constexpr std::uint32_t kRecordVersion = 1;
constexpr std::uint32_t kSamplesPerBlock = 16;
constexpr std::uint64_t kMostBlockBytes = std::uint64_t{1} << 29;
constexpr std::uint64_t kMostNamesBytes = std::uint64_t{1} << 25;  // a line of text, with lengths
// Bytes of memory around a kept block: the allocator's header and the block's pointer.
constexpr std::uint64_t kAroundKept = 32;
constexpr std::size_t kMostPrefetched = 2048;  // bytes of a sample: more would fill the L1 cache
constexpr std::size_t kSampleAhead = 3, kHeaderAhead = 8, kPointerAhead = 12;  // in samples
constexpr std::size_t kWriteBytes = std::size_t{1} << 20;
const FileUse kRecords{.operation = "tabular.open", .fix = "write it again with strata convert"};

struct Front {
  std::array<char, 8> magic = kRecordMagic;
  std::uint32_t version = kRecordVersion;
  std::uint32_t samples_per_block = kSamplesPerBlock;
};
static_assert(sizeof(Front) == 16);

struct BlockHeader {
  std::uint64_t checksum = 0;  // of number, bytes, samples and the content
  std::uint32_t bytes = 0;     // that follow
  std::uint32_t samples = 0;
};
static_assert(sizeof(BlockHeader) == 16);
constexpr std::uint64_t kMostAroundRows =
    sizeof(BlockHeader) + kSamplesPerBlock * sizeof(std::uint32_t);

struct Trailer {
  std::uint64_t samples = 0;
  std::uint64_t names_offset = 0;
  std::uint64_t index_offset = 0;
  std::uint64_t names_checksum = 0;
  std::array<std::uint64_t, 2> reserved = {};
  std::uint64_t checksum = 0;  // of the rest of the trailer
  std::array<char, 8> magic = kRecordMagic;
};
static_assert(sizeof(Trailer) == 64);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
std::string_view text_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::uint64_t block_checksum(std::uint64_t number, const BlockHeader& header, std::string_view ends,
                             std::string_view rows) {
  Checksum sum;
  sum.add(bytes_of(number));
  sum.add(bytes_of(header.bytes));
  sum.add(bytes_of(header.samples));
  sum.add(std::as_bytes(std::span(ends)));
  sum.add(std::as_bytes(std::span(rows)));
  return sum.value();
}

std::uint64_t trailer_checksum(const Trailer& trailer) {
  return checksum(bytes_of(trailer).first(offsetof(Trailer, checksum)));
}

void append_length(std::string& out, std::uint64_t length) {
  for (; length >= 0x80; length >>= 7) out += static_cast<char>(length | 0x80);
  out += static_cast<char>(length);
}

// Removes a length and the following text from the front; false if they are incomplete.
bool take_text(std::string_view& from, std::string_view& text) {
  std::uint64_t length = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    if (from.empty()) return false;
    const auto byte = static_cast<unsigned char>(from.front());
    from.remove_prefix(1);
    length |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte >= 0x80) continue;
    if (length > from.size()) return false;
    text = from.substr(0, length);
    from.remove_prefix(length);
    return true;
  }
  return false;
}

class RecordFile final : public SampleFile {
 public:
  RecordFile(const std::string& path, std::int64_t memory_bytes)
      : file_(RandomAccessFile::open(path, kRecords)) {
    Front front;
    if (file_->size() < sizeof(Front) + sizeof(Trailer)) {
      refuse("this is no file of records, or it is truncated", "at least 80 bytes",
             std::to_string(file_->size()));
    }
    read_into(0, front);
    if (front.magic != kRecordMagic)
      refuse("this is no file of records", "89 53 54 52 45 43 53 0A in front", "other bytes");
    if (front.version != kRecordVersion || front.samples_per_block != kSamplesPerBlock) {
      refuse("the records have another format version", std::to_string(kRecordVersion),
             std::to_string(front.version));
    }
    read_into(file_->size() - sizeof(Trailer), trailer_);
    if (trailer_.magic != kRecordMagic || trailer_checksum(trailer_) != trailer_.checksum)
      refuse("the file is truncated or its end is damaged", "the end that was written", "another");
    check_extent();
    read_names();
    kept_ = std::make_unique<KeptBlocks>(fitting_blocks(memory_bytes));
  }

  std::int64_t samples() const override { return static_cast<std::int64_t>(trailer_.samples); }
  const std::vector<std::string>& columns() const override { return columns_; }
  std::string place(std::int64_t sample) const override {
    return path() + ": sample " + std::to_string(sample + 1);
  }

  // Each read needs the result of the one before it: the block's pointer, then its header with the
  // ends of its samples, then the sample. Each is prefetched some samples before it is needed.
  void prefetch(std::span<const std::int64_t> next) const override {
    if (const std::int64_t sample = ahead(next, kPointerAhead); sample >= 0)
      kept_->prefetch(sample / kSamplesPerBlock);
    if (const std::int64_t sample = ahead(next, kHeaderAhead); sample >= 0) {
      if (const char* block = kept_->find(sample / kSamplesPerBlock)) {
        __builtin_prefetch(block);
        __builtin_prefetch(block + 64);
      }
    }
    const std::int64_t sample = ahead(next, kSampleAhead);
    const char* block = sample < 0 ? nullptr : kept_->find(sample / kSamplesPerBlock);
    if (!block) return;
    const std::string_view payload(block + sizeof(BlockHeader), header_of(block).bytes);
    const auto i = static_cast<std::size_t>(sample % kSamplesPerBlock);
    const std::size_t end = std::min(end_of(payload, i), payload.size());
    const std::size_t begin = std::min(i == 0 ? 0 : end_of(payload, i - 1), end);
    for (std::size_t at = begin; at < std::min(end, begin + kMostPrefetched); at += 64)
      __builtin_prefetch(payload.data() + at);
  }

  void read(std::int64_t sample, SampleText& text) const override {
    STRATA_CHECK(sample >= 0 && sample < samples(), "tabular.read");
    const std::int64_t block = sample / kSamplesPerBlock;
    const std::string_view payload = payload_of(block, text);
    const auto samples = static_cast<std::size_t>(samples_of(block));
    const auto i = static_cast<std::size_t>(sample % kSamplesPerBlock);
    const std::size_t begin = i == 0 ? samples * 4 : end_of(payload, i - 1);
    const std::size_t end = end_of(payload, i);
    if (begin > end || end > payload.size() || begin < samples * 4) refuse_block(block);
    std::string_view row = payload.substr(begin, end - begin);
    text.fields.resize(columns_.size());
    for (std::string_view& field : text.fields)
      if (!take_text(row, field)) refuse_block(block);
    if (!row.empty()) refuse_block(block);
  }

 private:
  std::string path() const override { return file_->path(); }

  template <typename T>
  void read_into(std::uint64_t offset, T& value) const {
    file_->read(offset, std::as_writable_bytes(std::span(&value, 1)));
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& expected,
                           const std::string& got) const {
    kRecords.refuse(path(), what, expected, got);
  }
  [[noreturn]] void refuse_block(std::int64_t block) const {
    kRecords.refuse(path(), "block " + std::to_string(block) + " is damaged",
                    "the checksum that was written", "another");
  }

  std::uint64_t blocks() const {
    return (trailer_.samples + kSamplesPerBlock - 1) / kSamplesPerBlock;
  }
  std::uint64_t samples_of(std::int64_t block) const {
    return std::min<std::uint64_t>(
        kSamplesPerBlock, trailer_.samples - static_cast<std::uint64_t>(block) * kSamplesPerBlock);
  }
  // -1: there is no such sample.
  std::int64_t ahead(std::span<const std::int64_t> next, std::size_t distance) const {
    if (next.size() <= distance) return -1;
    const std::int64_t sample = next[distance];
    return sample < samples() ? sample : -1;
  }
  static std::size_t end_of(std::string_view payload, std::size_t i) {
    std::uint32_t end = 0;
    std::memcpy(&end, payload.data() + i * sizeof(end), sizeof(end));
    return end;
  }

  void check_extent() const {
    const std::uint64_t end = file_->size() - sizeof(Trailer);
    const bool fits = trailer_.samples > 0 && trailer_.samples < end &&
                      trailer_.names_offset >= sizeof(Front) &&
                      trailer_.names_offset <= trailer_.index_offset &&
                      trailer_.index_offset - trailer_.names_offset <= kMostNamesBytes &&
                      trailer_.index_offset <= end &&
                      end - trailer_.index_offset == (blocks() + 1) * sizeof(std::uint64_t);
    if (!fits)
      refuse("the parts of the file do not fit together", "blocks, names, index", "something else");
  }

  void read_names() {
    std::string names(trailer_.index_offset - trailer_.names_offset, '\0');
    file_->read(trailer_.names_offset, std::as_writable_bytes(std::span(names)));
    if (checksum(std::as_bytes(std::span(names))) != trailer_.names_checksum)
      refuse("the names of the columns are damaged", "the checksum that was written", "another");
    std::string_view rest = names, name;
    while (take_text(rest, name)) columns_.emplace_back(name);
    if (columns_.empty() || !rest.empty())
      refuse("the names of the columns are damaged", "names", "something else");
  }

  // Returns how many of the first blocks fit.
  std::int64_t fitting_blocks(std::int64_t bytes) const {
    std::uint64_t least = 0, most = blocks();
    while (least < most) {
      const std::uint64_t count = least + (most - least + 1) / 2;
      std::uint64_t end = 0;
      read_into(trailer_.index_offset + count * sizeof(end), end);
      if (end + count * kAroundKept <= static_cast<std::uint64_t>(bytes))
        least = count;
      else
        most = count - 1;
    }
    return static_cast<std::int64_t>(least);
  }

  // The block's bytes after its header. They are valid until `text` is filled again.
  std::string_view payload_of(std::int64_t block, SampleText& text) const {
    const char* bytes = kept_->find(block);
    if (!bytes) {
      if (text.block != block) load(block, text);
      bytes = text.bytes.data();
      if (kept_->keeps(block)) bytes = kept_->keep(block, {bytes, text.bytes.size()});
    }
    return {bytes + sizeof(BlockHeader), header_of(bytes).bytes};
  }

  static BlockHeader header_of(const char* block) {
    BlockHeader header;
    std::memcpy(&header, block, sizeof(header));
    return header;
  }

  // Reads a block with its header.
  void load(std::int64_t block, SampleText& text) const {
    std::array<std::uint64_t, 2> place = {};
    read_into(trailer_.index_offset + static_cast<std::uint64_t>(block) * sizeof(std::uint64_t),
              place);
    const auto [begin, end] = place;
    if (begin < sizeof(Front) || end > trailer_.names_offset || begin > end ||
        end - begin < sizeof(BlockHeader) || end - begin > kMostBlockBytes) {
      refuse_block(block);
    }
    text.block = -1;
    text.bytes.resize(end - begin);
    file_->read(begin, std::as_writable_bytes(std::span(text.bytes)));
    const BlockHeader header = header_of(text.bytes.data());
    const std::string_view payload =
        std::string_view(text.bytes.data(), text.bytes.size()).substr(sizeof(header));
    const std::uint64_t samples = samples_of(block);
    if (header.bytes != payload.size() || header.samples != samples ||
        payload.size() < samples * sizeof(std::uint32_t) ||
        header.checksum != block_checksum(static_cast<std::uint64_t>(block), header, {}, payload)) {
      refuse_block(block);
    }
    text.block = block;
  }

  std::shared_ptr<const RandomAccessFile> file_;
  Trailer trailer_;
  std::vector<std::string> columns_;
  std::unique_ptr<KeptBlocks> kept_;
};

}  // namespace

std::shared_ptr<const SampleFile> open_records(const std::string& path, std::int64_t memory_bytes) {
  return std::make_shared<const RecordFile>(path, memory_bytes);
}

RecordWriter::RecordWriter(std::string path, const std::vector<std::string>& columns)
    : path_(std::move(path)), columns_(columns.size()), file_(path_ + ".partial") {
  STRATA_CHECK(columns_ > 0, "tabular.write");
  for (const std::string& name : columns) {
    append_length(names_, name.size());
    names_ += name;
  }
  write(text_of(Front{}));
}

RecordWriter::~RecordWriter() {
  if (!finished_) std::remove((path_ + ".partial").c_str());
}

void RecordWriter::write(std::string_view bytes) {
  written_ += bytes.size();
  if (pending_.size() + bytes.size() < kWriteBytes) {
    pending_ += bytes;
    return;
  }
  file_.write(pending_);
  pending_.clear();
  file_.write(bytes);
}

void RecordWriter::add(std::span<const std::string_view> fields) {
  STRATA_CHECK_EQ(fields.size(), columns_, "tabular.write");
  for (const std::string_view field : fields) {
    append_length(rows_, field.size());
    rows_ += field;
  }
  ends_.push_back(static_cast<std::uint32_t>(rows_.size()));
  ++samples_;
  // even 16 of the longest lines of text files are far below it
  STRATA_CHECK(rows_.size() + kMostAroundRows <= kMostBlockBytes, "tabular.write");
  if (ends_.size() == kSamplesPerBlock) end_block();
}

void RecordWriter::end_block() {
  if (ends_.empty()) return;
  std::string ends;
  for (const std::uint32_t end : ends_) {
    const auto shifted = static_cast<std::uint32_t>(end + ends_.size() * sizeof(end));
    ends += text_of(shifted);
  }
  BlockHeader header{.bytes = static_cast<std::uint32_t>(ends.size() + rows_.size()),
                     .samples = static_cast<std::uint32_t>(ends_.size())};
  header.checksum = block_checksum(index_.size(), header, ends, rows_);
  index_.push_back(written_);
  write(text_of(header));
  write(ends);
  write(rows_);
  rows_.clear();
  ends_.clear();
}

void RecordWriter::finish() {
  end_block();
  STRATA_CHECK(samples_ > 0, "tabular.write");
  Trailer trailer{.samples = samples_,
                  .names_offset = written_,
                  .index_offset = written_ + names_.size(),
                  .names_checksum = checksum(std::as_bytes(std::span(names_)))};
  trailer.checksum = trailer_checksum(trailer);
  index_.push_back(written_);  // where the last block ends
  write(names_);
  write({reinterpret_cast<const char*>(index_.data()), index_.size() * sizeof(index_[0])});
  write(text_of(trailer));
  file_.write(pending_);
  file_.close();
  rename_durably(path_ + ".partial", path_);
  finished_ = true;
}

}  // namespace strata
