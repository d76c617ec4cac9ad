#include "strata/rowserver/shard/log_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/rowserver/codec/byte_codec.h"
#include "strata/rowserver/shard/log_record.h"

namespace strata {

const FileUse kLogFileUse{
    .operation = "embed.log",
    .fix = "restore the file from a copy, or start from a snapshot in a new folder",
    .follow_links = true};

namespace {

constexpr std::uint64_t kMagic = 0x0A474F4C574F5289;  // 89 "ROWLOG" 0A
constexpr std::uint32_t kFormat = 2;
constexpr std::size_t kHeaderBytes = 8 + 4 + 4 + 4 + 4 + 8 + 8 + 8 + 8 + 8;
constexpr std::size_t kWrittenAtOnce = 64 << 10;  // smaller pieces are copied into one write

std::string log_name(std::int64_t first) {
  char name[40];
  std::snprintf(name, sizeof name, "updates-%020lld.log", static_cast<long long>(first));
  return name;
}

std::vector<std::byte> header_bytes(const LogOwner& owner, std::int64_t first, LogRun run) {
  ByteWriter to;
  to.fixed64(kMagic);
  to.fixed32(kFormat);
  to.fixed32(static_cast<std::uint32_t>(owner.shard));
  to.fixed32(static_cast<std::uint32_t>(owner.shards));
  to.fixed32(0);
  to.fixed64(owner.fingerprint);
  to.fixed64(static_cast<std::uint64_t>(first));
  to.fixed64(run.number);
  to.fixed64(static_cast<std::uint64_t>(run.begin));
  to.seal();
  return to.take();
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

void read_header(LogFile& file, const LogOwner& owner, std::span<const std::byte> head) {
  try {
    ByteReader from = ByteReader::sealed(head, "header");
    if (from.fixed64() != kMagic) from.refuse("it is no log of updates");
    if (from.fixed32() != kFormat) from.refuse("another version of the program wrote it");
    const std::uint32_t shard = from.fixed32(), shards = from.fixed32();
    from.fixed32();
    const std::uint64_t fingerprint = from.fixed64();
    if (static_cast<std::int32_t>(shard) != owner.shard ||
        static_cast<std::int32_t>(shards) != owner.shards)
      from.refuse("it belongs to shard " + std::to_string(shard) + " of " + std::to_string(shards));
    if (fingerprint != owner.fingerprint) from.refuse("it belongs to another recipe");
    if (static_cast<std::int64_t>(from.fixed64()) != file.first) from.refuse("it was renamed");
    file.run.number = from.fixed64();
    file.run.begin = static_cast<std::int64_t>(from.fixed64());
  } catch (const SystemError& error) {
    if (error.text().operation != "embed.decode") throw;
    kLogFileUse.refuse(file.path, error.text().what, "the log of this server", error.text().where);
  }
}

[[noreturn]] void refuse_damaged(const LogFile& file, const std::string& what) {
  kLogFileUse.refuse(file.path, what, "records without a gap, each under its checksum",
                     "at byte " + std::to_string(file.end));
}

// Adds the record at the file's end. Returns false if the rest is what a crash leaves.
bool read_one(LogFile& file, const RandomAccessFile& bytes, std::vector<std::byte>& body) {
  const std::uint64_t left = bytes.size() - file.end;
  if (left < kRecordHeadBytes) return false;
  std::array<std::byte, kRecordHeadBytes> head;
  bytes.read(file.end, head);
  if (all_zero(head)) {  // only zeros may follow
    body.resize(static_cast<std::size_t>(left));
    bytes.read(file.end, body);
    if (!all_zero(body)) refuse_damaged(file, "a record is damaged");
    return false;
  }
  const RecordHead record = parse_record_head(head);
  if (!record.whole) refuse_damaged(file, "a record is damaged");
  if (record.version != file.last() + 1) refuse_damaged(file, "updates are missing");
  const std::size_t size = record.body_bytes + kRecordTailBytes;
  if (left < kRecordHeadBytes + size) return false;
  body.resize(size);
  bytes.read(file.end + kRecordHeadBytes, body);
  const std::uint64_t sum = ByteReader(std::span(body).last(kRecordTailBytes), "").fixed64();
  if (sum != checksum(std::span(body).first(record.body_bytes))) {
    if (left > kRecordHeadBytes + size || sum != 0) refuse_damaged(file, "a record is damaged");
    return false;
  }
  file.offsets.push_back(file.end);
  file.end += kRecordHeadBytes + size;
  return true;
}

}  // namespace

std::vector<LogFile> find_log_files(const std::string& folder) {
  std::vector<LogFile> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    long long first = -1;
    if (std::sscanf(name.c_str(), "updates-%20lld.log", &first) == 1 && name == log_name(first))
      found.push_back({.path = entry.path(), .first = first});
  }
  std::sort(found.begin(), found.end(),
            [](const LogFile& a, const LogFile& b) { return a.first < b.first; });
  return found;
}

std::int64_t read_log_file(LogFile& file, const LogOwner& owner, bool is_last, FileSystem& files) {
  const std::uint64_t size = std::filesystem::file_size(file.path);
  if (is_last && size < kHeaderBytes) return 0;
  const auto bytes = RandomAccessFile::open(file.path, kLogFileUse);
  if (size < kHeaderBytes)
    kLogFileUse.refuse(file.path, "the file is cut off", "a header",
                       std::to_string(size) + " bytes");
  std::vector<std::byte> body(kHeaderBytes);
  bytes->read(0, body);
  if (is_last && all_zero(body)) return 0;
  read_header(file, owner, body);
  file.end = kHeaderBytes;
  while (file.end < bytes->size() && read_one(file, *bytes, body)) {
  }
  if (file.end == bytes->size()) return 0;
  if (!is_last) refuse_damaged(file, "the file is cut off");
  truncate_durably(file.path, file.end, files);
  return static_cast<std::int64_t>(bytes->size() - file.end);
}

LogPlace LogFile::place_of(std::int64_t version) const {
  const auto index = static_cast<std::size_t>(version - first);
  return {.path = path,
          .begin = offsets.at(index),
          .end = index + 1 < offsets.size() ? offsets[index + 1] : end};
}

std::vector<std::byte> read_record(const LogPlace& place) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(place.end - place.begin));
  RandomAccessFile::open(place.path, kLogFileUse)->read(place.begin, bytes);
  return bytes;
}

void truncate_durably(const std::string& path, std::uint64_t bytes, FileSystem& files) {
  if (::truncate(path.c_str(), static_cast<off_t>(bytes)) != 0)
    throw_error(file_error("embed.log", path, "the file cannot be cut", errno));
  sync_folder(std::filesystem::path(path).parent_path().string(), files);
}

LogWriter::LogWriter(const std::string& folder, std::int64_t first, LogRun run,
                     const LogOwner& owner, FileSystem& files)
    : files_(files),
      file_{
          .path = folder + "/" + log_name(first), .first = first, .run = run, .end = kHeaderBytes},
      descriptor_(files.create(file_.path)) {
  if (descriptor_ < 0) refuse("the file cannot be made");
  try {
    write(header_bytes(owner, first, run));
    sync();
    sync_folder(folder, files);
  } catch (...) {
    files_.close(descriptor_);
    throw;
  }
}

LogWriter::~LogWriter() { files_.close(descriptor_); }

void LogWriter::write(std::span<const std::span<const std::byte>> pieces, std::size_t size) {
  if (pieces.size() > 1 && size <= kWrittenAtOnce) {
    std::vector<std::byte> whole;
    whole.reserve(size);
    for (const std::span<const std::byte> piece : pieces)
      whole.insert(whole.end(), piece.begin(), piece.end());
    return write(whole);
  }
  for (const std::span<const std::byte> piece : pieces) write(piece);
}

void LogWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ::ssize_t written = files_.write(descriptor_, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) refuse("updates cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void LogWriter::sync() {
  if (files_.sync(descriptor_) != 0) refuse("updates cannot be made durable");
}

void LogWriter::refuse(const std::string& what) const {
  throw_error(file_error("embed.log", file_.path, what, errno,
                         "free space there, restart the server and resume with --resume: what "
                         "is durable is kept"));
}

}  // namespace strata
