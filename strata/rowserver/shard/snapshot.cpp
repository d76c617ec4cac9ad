// Records are in blocks of about 1 MiB, each with a checksum, so reading and writing need no more
// memory than that. The last block holds the number of records and the digest, so that a file that
// ends early is detected even at the end of a block.
#include "strata/rowserver/shard/snapshot.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/base/random_access_file.h"
#include "strata/rowserver/codec/byte_codec.h"
#include "strata/rowserver/shard/update_part.h"

namespace strata {
namespace {

constexpr std::uint64_t kMagic = 0x0A504E53574F5289;  // 89 "ROWSNP" 0A
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kHeaderBytes = 8 + 4 + 4 + 4 + 4 + 8 + 8 + 8 + 8;
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::uint32_t kLongestBlock = 1U << 30;
const FileUse kUse{.operation = "embed.snapshot",
                   .fix = "remove the file; the server resumes from the previous snapshot",
                   .follow_links = true};

void put_record(ByteWriter& to, const StateRecord& record) {
  to.varint(static_cast<std::uint64_t>(record.feature));
  to.varint(record.kind);
  to.varint(record.id);
  to.blob(record.bytes);
}

std::uint64_t digest_of_record(const StateRecord& record) {
  if (record.kind >= kOfShard) return 0;
  ByteWriter bytes;
  put_record(bytes, record);
  return checksum(bytes.out());
}

std::vector<std::byte> header_bytes(const SnapshotHeader& header) {
  ByteWriter to;
  to.fixed64(kMagic);
  to.fixed32(kFormat);
  to.fixed32(static_cast<std::uint32_t>(header.shard));
  to.fixed32(static_cast<std::uint32_t>(header.shards));
  to.fixed32(0);
  to.fixed64(header.fingerprint);
  to.fixed64(static_cast<std::uint64_t>(header.version));
  to.fixed64(header.run);
  to.seal();
  return to.take();
}

// Contents that cannot be valid are reported as an error of the file.
template <typename Read>
auto reading(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const SystemError& error) {
    if (error.text().operation != "embed.decode") throw;
    kUse.refuse(path, "the snapshot is damaged: " + error.text().what, "a whole file",
                error.text().where);
  }
}

SnapshotHeader parse_header(const RandomAccessFile& file) {
  std::vector<std::byte> bytes(kHeaderBytes);
  if (file.size() < kHeaderBytes)
    kUse.refuse(file.path(), "the snapshot is cut off", "a header",
                std::to_string(file.size()) + " bytes");
  file.read(0, bytes);
  return reading(file.path(), [&] {
    ByteReader from = ByteReader::sealed(bytes, "header");
    if (from.fixed64() != kMagic) from.refuse("it is no snapshot of rows");
    if (from.fixed32() != kFormat) from.refuse("another version of the program wrote it");
    SnapshotHeader header;
    header.shard = static_cast<std::int32_t>(from.fixed32());
    header.shards = static_cast<std::int32_t>(from.fixed32());
    from.fixed32();
    header.fingerprint = from.fixed64();
    header.version = static_cast<std::int64_t>(from.fixed64());
    header.run = from.fixed64();
    return header;
  });
}

// Reads the blocks of a file one after another.
class BlockReader {
 public:
  explicit BlockReader(const RandomAccessFile& file) : file_(file) {}

  // Reads length, bytes and checksum; an empty block ends the file.
  ByteReader next() {
    const std::string where = "byte " + std::to_string(at_);
    std::vector<std::byte> length(4);
    get(length);
    const std::uint32_t size = ByteReader(length, where).fixed32();
    if (size > kLongestBlock || size + 8 > file_.size() - at_)
      ByteReader({}, where).refuse("a block is longer than the file");
    block_.resize(size + 8);
    get(block_);
    return ByteReader::sealed(block_, where);
  }
  bool at_end() const { return at_ == file_.size(); }

 private:
  void get(std::span<std::byte> bytes) {
    if (bytes.size() > file_.size() - at_)
      ByteReader({}, "byte " + std::to_string(at_)).refuse("it is cut off");
    file_.read(at_, bytes);
    at_ += bytes.size();
  }
  const RandomAccessFile& file_;
  std::uint64_t at_ = kHeaderBytes;
  std::vector<std::byte> block_;
};

void write_block(DurableFile& file, ByteWriter& block) {
  ByteWriter length;
  length.fixed32(static_cast<std::uint32_t>(block.out().size()));
  block.seal();
  file.write(length.out());
  file.write(block.out());
  block.out().clear();
}

}  // namespace

std::uint64_t digest_of(ShardState& state) {
  std::uint64_t digest = 0;
  state.write([&](const StateRecord& record) { digest += digest_of_record(record); });
  return digest;
}

std::string snapshot_name(std::int64_t version, SnapshotUse use) {
  char name[40];
  std::snprintf(name, sizeof name, "%s-%020lld.snapshot",
                use == SnapshotUse::kCheckpoint ? "rows" : "base", static_cast<long long>(version));
  return name;
}

std::vector<std::int64_t> list_snapshots(const std::string& folder, SnapshotUse use) {
  std::vector<std::int64_t> versions;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename();
    long long version = -1;
    if (std::sscanf(name.c_str(), "%*4[a-z]-%20lld.snapshot", &version) == 1 &&
        name == snapshot_name(version, use))
      versions.push_back(version);
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

std::vector<SnapshotFile> all_snapshots(const std::string& folder) {
  std::vector<SnapshotFile> all;
  for (const SnapshotUse use : {SnapshotUse::kCheckpoint, SnapshotUse::kLogBase})
    for (const std::int64_t version : list_snapshots(folder, use))
      all.push_back({version, folder + "/" + snapshot_name(version, use)});
  std::ranges::sort(all, {}, &SnapshotFile::version);
  return all;
}

const SnapshotFile* newest_of(const std::vector<SnapshotFile>& ascending, std::int64_t at_most) {
  const auto after = std::ranges::upper_bound(ascending, at_most, {}, &SnapshotFile::version);
  return after == ascending.begin() ? nullptr : &*(after - 1);
}

std::uint64_t write_snapshot(const std::string& folder, const SnapshotHeader& header,
                             ShardState& state, FileSystem& files, SnapshotUse use) {
  const std::string path = folder + "/" + snapshot_name(header.version, use);
  DurableFile file(path + ".part", files);
  file.write(header_bytes(header));
  ByteWriter block;
  std::uint64_t records = 0, digest = 0;
  state.write([&](const StateRecord& record) {
    const std::size_t begin = block.out().size();
    put_record(block, record);
    if (record.kind < kOfShard) digest += checksum(std::span(block.out()).subspan(begin));
    ++records;
    if (block.out().size() >= kBlockBytes) write_block(file, block);
  });
  if (!block.out().empty()) write_block(file, block);
  write_block(file, block);
  block.fixed64(records);
  block.fixed64(digest);
  write_block(file, block);
  file.close();
  rename_durably(path + ".part", path, files);
  return digest;
}

SnapshotHeader read_snapshot_header(const std::string& path) {
  return parse_header(*RandomAccessFile::open(path, kUse));
}

SnapshotHeader read_snapshot(const std::string& path, ShardState& state,
                             const std::function<bool(const StateRecord&)>& keep) {
  const auto file = RandomAccessFile::open(path, kUse);
  const SnapshotHeader header = parse_header(*file);
  const auto features = static_cast<std::uint64_t>(state.rows().features().size());
  reading(path, [&] {
    BlockReader blocks(*file);
    std::uint64_t records = 0, digest = 0;
    for (ByteReader block = blocks.next(); block.left() > 0; block = blocks.next())
      while (block.left() > 0) {
        StateRecord record;
        const std::uint64_t feature = block.varint(), kind = block.varint();
        if (feature >= features || kind > 255) block.refuse("it names a feature that is not there");
        record.feature = static_cast<int>(feature);
        record.kind = static_cast<std::uint8_t>(kind);
        record.id = block.varint();
        record.bytes = block.blob();
        digest += digest_of_record(record);
        ++records;
        if (!keep || keep(record)) state.put(record);
      }
    ByteReader last = blocks.next();
    if (last.fixed64() != records || last.fixed64() != digest)
      last.refuse("its rows are not those that it was made of");
    last.require_end();
    if (!blocks.at_end()) last.refuse("there are bytes after its end");
    return true;
  });
  return header;
}

std::function<bool(const StateRecord&)> records_of(int shard, int shards) {
  return [=](const StateRecord& record) {
    return record.kind >= kOfShard || shard_of(record.feature, record.id, shards) == shard;
  };
}

}  // namespace strata
