// A crash may leave the last record half written, and only that one: bytes are appended in order. So what
// reaches beyond the end of the last file is cut off, and so is a tail of zeros, which a file system may
// leave behind a power cut; every other misfit means that someone changed the file. For that the head of a
// record has a checksum of its own: a length that was changed must not make the rest look half written.
//
// A file starts with the run that its updates belong to: a run begins by starting a file.
#include "strata/embed/shard/update_log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/base/random_access_file.h"
#include "strata/embed/codec/byte_codec.h"

namespace strata {
namespace {

constexpr std::uint64_t kMagic = 0x0A474F4C574F5289;  // 89 "ROWLOG" 0A
constexpr std::uint32_t kFormat = 2;
constexpr std::size_t kHeaderBytes = 8 + 4 + 4 + 4 + 4 + 8 + 8 + 8 + 8 + 8;
constexpr std::size_t kHeadBytes = 4 + 8 + 8;  // length of the parts, version, checksum of both
constexpr std::size_t kTailBytes = 8;
constexpr std::size_t kWrittenAtOnce = 64 << 10;  // copied together, rather than a call a piece
const FileUse kUse{.operation = "embed.log",
                   .fix = "restore the file from a copy, or start from a snapshot in a new folder",
                   .follow_links = true};

std::string log_name(std::int64_t first) {
  char name[40];
  std::snprintf(name, sizeof name, "updates-%020lld.log", static_cast<long long>(first));
  return name;
}

std::vector<std::byte> header_bytes(const UpdateLogOptions& options, std::int64_t first,
                                    LogRun run) {
  ByteWriter to;
  to.fixed64(kMagic);
  to.fixed32(kFormat);
  to.fixed32(static_cast<std::uint32_t>(options.shard));
  to.fixed32(static_cast<std::uint32_t>(options.shards));
  to.fixed32(0);
  to.fixed64(options.fingerprint);
  to.fixed64(static_cast<std::uint64_t>(first));
  to.fixed64(run.number);
  to.fixed64(static_cast<std::uint64_t>(run.begin));
  to.seal();
  return to.take();
}

// A record in pieces, for parts are megabytes: its head and the number of parts, each part behind its
// length, the checksum.
struct RecordPieces {
  RecordPieces(std::int64_t version, const std::vector<std::span<const std::byte>>& parts) {
    std::vector<ByteWriter> lengths(parts.size() + 1);
    lengths.front().varint(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) lengths[i].varint(parts[i].size());
    std::size_t body = lengths.back().out().size();
    for (std::size_t i = 0; i < parts.size(); ++i)
      body += lengths[i].out().size() + parts[i].size();
    ByteWriter head;
    head.fixed32(static_cast<std::uint32_t>(body));
    head.fixed64(static_cast<std::uint64_t>(version));
    head.seal();
    size = head.out().size() + body + kTailBytes;
    Checksum sum;
    const auto add = [&](std::vector<std::byte> bytes) {
      sum.add(bytes);
      owned_.push_back(std::move(bytes));
      pieces.emplace_back(owned_.back());
    };
    owned_.push_back(head.take());
    pieces.emplace_back(owned_.back());
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      add(lengths[i].take());
      if (i == parts.size()) break;
      sum.add(parts[i]);
      pieces.push_back(parts[i]);
    }
    ByteWriter tail;
    tail.fixed64(sum.value());
    owned_.push_back(tail.take());
    pieces.emplace_back(owned_.back());
  }

  std::size_t size = 0;
  std::vector<std::span<const std::byte>> pieces;

 private:
  std::deque<std::vector<std::byte>> owned_;
};

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

void truncate_durably(const std::string& path, std::uint64_t bytes, FileSystem& files) {
  if (::truncate(path.c_str(), static_cast<off_t>(bytes)) != 0)
    throw_error(file_error("embed.log", path, "the file cannot be cut", errno));
  sync_folder(std::filesystem::path(path).parent_path().string(), files);
}

}  // namespace

struct UpdateLog::Descriptor {
  Descriptor(std::string name, FileSystem& system)
      : path(std::move(name)), files(system), number(files.create(path)) {
    if (number < 0) refuse("the file cannot be made");
  }
  ~Descriptor() {
    if (number >= 0) files.close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ::ssize_t written = files.write(number, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) refuse("updates cannot be written");
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  void sync() {
    if (files.sync(number) != 0) refuse("updates cannot be made durable");
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw_error(file_error("embed.log", path, what, errno,
                           "free space there, start the server again and go on with --resume: what "
                           "is durable is there"));
  }

  std::string path;
  FileSystem& files;
  int number;
};

UpdateLog::UpdateLog(UpdateLogOptions options, std::int64_t version)
    : options_(std::move(options)) {
  make_folders_durably(options_.folder, *options_.files);
  read_all();
  if (head_ < version)
    for (; !files_.empty(); files_.pop_back()) remove_folder(files_.back().path, *options_.files);
  if (files_.empty()) head_ = version;
  if (first() > version + 1)
    kUse.refuse(options_.folder, "log and snapshots don't fit together",
                "updates up to version " + std::to_string(version) + " at least",
                "updates " + std::to_string(first()) + " to " + std::to_string(head_));
  durable_ = head_;
  syncing_ = std::thread([this] { sync_loop(); });
}

UpdateLog::~UpdateLog() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  syncing_.join();
}

void UpdateLog::read_all() {
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) {
    const std::string name = entry.path().filename();
    long long first = -1;
    if (std::sscanf(name.c_str(), "updates-%20lld.log", &first) == 1 && name == log_name(first))
      files_.push_back({.path = entry.path(), .first = first, .run = {}, .offsets = {}, .end = 0});
  }
  std::sort(files_.begin(), files_.end(),
            [](const File& a, const File& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < files_.size(); ++i) {
    File& file = files_[i];
    const bool last = i + 1 == files_.size();
    if (i > 0 && file.first != head_ + 1)
      kUse.refuse(file.path, "updates are missing before this file",
                  "update " + std::to_string(head_ + 1) + " first",
                  "update " + std::to_string(file.first));
    read_one(file, last);
    head_ = file.first + static_cast<std::int64_t>(file.offsets.size()) - 1;
  }
  // A file that was just being made when the process ended: it has no update.
  if (!files_.empty() && files_.back().end == 0) {
    remove_folder(files_.back().path, *options_.files);
    files_.pop_back();
  }
}

void UpdateLog::read_one(File& file, bool last) {
  const std::uint64_t size = std::filesystem::file_size(file.path);
  if (last && size < kHeaderBytes) return;
  const auto bytes = RandomAccessFile::open(file.path, kUse);
  if (size < kHeaderBytes)
    kUse.refuse(file.path, "the file is cut off", "a header", std::to_string(size) + " bytes");
  std::vector<std::byte> head(kHeaderBytes);
  bytes->read(0, head);
  if (last && all_zero(head)) return;
  try {
    ByteReader from = ByteReader::sealed(head, "header");
    if (from.fixed64() != kMagic) from.refuse("it is no log of updates");
    if (from.fixed32() != kFormat) from.refuse("another version of the program wrote it");
    const std::uint32_t shard = from.fixed32(), shards = from.fixed32();
    from.fixed32();
    const std::uint64_t fingerprint = from.fixed64();
    if (static_cast<std::int32_t>(shard) != options_.shard ||
        static_cast<std::int32_t>(shards) != options_.shards)
      from.refuse("it belongs to shard " + std::to_string(shard) + " of " + std::to_string(shards));
    if (fingerprint != options_.fingerprint) from.refuse("it belongs to another recipe");
    if (static_cast<std::int64_t>(from.fixed64()) != file.first) from.refuse("it was renamed");
    run_.number = from.fixed64();
    run_.begin = static_cast<std::int64_t>(from.fixed64());
    file.run = run_;
  } catch (const SystemError& error) {
    if (error.text().operation != "embed.decode") throw;
    kUse.refuse(file.path, error.text().what, "the log of this server", error.text().where);
  }
  file.end = kHeaderBytes;
  read_records(file, last);
}

void UpdateLog::read_records(File& file, bool last) {
  const auto bytes = RandomAccessFile::open(file.path, kUse);
  std::vector<std::byte> head(kHeadBytes), body;
  const auto damaged = [&](const std::string& what) {
    kUse.refuse(file.path, what, "records without a gap, each under its checksum",
                "at byte " + std::to_string(file.end));
  };
  bool torn = false;
  while (file.end < bytes->size() && !torn) {
    const std::uint64_t left = bytes->size() - file.end;
    if (left < kHeadBytes) {
      torn = true;
      break;
    }
    bytes->read(file.end, head);
    if (all_zero(head)) {  // only zeros may follow
      body.resize(static_cast<std::size_t>(left));
      bytes->read(file.end, body);
      if (!all_zero(body)) damaged("a record is damaged");
      torn = true;
      break;
    }
    ByteReader plain{std::span(head).first(12), ""};
    const std::uint32_t size = plain.fixed32();
    const auto version = static_cast<std::int64_t>(plain.fixed64());
    if (ByteReader(std::span(head).last(8), "").fixed64() != checksum(std::span(head).first(12)))
      damaged("a record is damaged");
    if (version != file.first + static_cast<std::int64_t>(file.offsets.size()))
      damaged("updates are missing");
    if (left < kHeadBytes + size + kTailBytes) {
      torn = true;
      break;
    }
    body.resize(size + kTailBytes);
    bytes->read(file.end + kHeadBytes, body);
    const std::uint64_t sum = ByteReader(std::span(body).last(8), "").fixed64();
    if (sum != checksum(std::span(body).first(size))) {
      if (left > kHeadBytes + size + kTailBytes || sum != 0) damaged("a record is damaged");
      torn = true;
      break;
    }
    file.offsets.push_back(file.end);
    file.end += kHeadBytes + size + kTailBytes;
  }
  if (!torn) return;
  if (!last) damaged("the file is cut off");
  cut_bytes_ = static_cast<std::int64_t>(bytes->size() - file.end);
  truncate_durably(file.path, file.end, *options_.files);
}

void UpdateLog::require_running() const {
  if (failure_) std::rethrow_exception(failure_);
}

std::int64_t UpdateLog::first() const {
  const std::lock_guard lock(mutex_);
  return files_.empty() ? head_ + 1 : files_.front().first;
}
std::int64_t UpdateLog::head() const {
  const std::lock_guard lock(mutex_);
  return head_;
}
std::int64_t UpdateLog::durable() const {
  const std::lock_guard lock(mutex_);
  return durable_;
}
LogRun UpdateLog::run() const {
  const std::lock_guard lock(mutex_);
  return run_;
}
LogRun UpdateLog::run_of(std::int64_t version) const {
  const std::lock_guard lock(mutex_);
  if (version > head_ || files_.empty() || version < files_.front().first) return run_;
  return file_of(version).run;
}

// Every run since then is known as long as the files go back to one that is not later: a file goes for a
// run that begins before it, or from the old end of the log.
std::int64_t UpdateLog::shared_with(std::uint64_t run, std::int64_t version) const {
  const std::lock_guard lock(mutex_);
  if (run > run_.number) return -1;
  if (run == run_.number) return version <= durable_ ? version : -1;
  if (version == 0) return 0;
  if (run == 0 || files_.empty() || files_.front().run.number > run) return -1;
  std::int64_t shared = std::min({version, durable_, run_.begin});
  for (const File& file : files_)
    if (file.run.number > run) shared = std::min(shared, file.run.begin);
  return shared;
}

std::int64_t UpdateLog::cut_bytes() const { return cut_bytes_; }
std::int64_t UpdateLog::bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const File& file : files_) bytes += file.end;
  return static_cast<std::int64_t>(bytes);
}

void UpdateLog::append(std::int64_t version, const std::vector<std::span<const std::byte>>& parts) {
  const RecordPieces record(version, parts);
  write_record(version, record.pieces, record.size);
}

void UpdateLog::append_record(std::int64_t version, std::span<const std::byte> record) {
  write_record(version, {&record, 1}, record.size());
}

void UpdateLog::write_record(std::int64_t version,
                             std::span<const std::span<const std::byte>> pieces, std::size_t size) {
  {
    const std::lock_guard lock(mutex_);
    require_running();
    STRATA_CHECK_EQ(version, head_ + 1, "embed.log");
  }
  if (!open_) begin_file();
  try {
    if (pieces.size() > 1 && size <= kWrittenAtOnce) {
      Bytes whole;
      whole.reserve(size);
      for (const std::span<const std::byte> piece : pieces)
        whole.insert(whole.end(), piece.begin(), piece.end());
      open_->write(whole);
    } else {
      for (const std::span<const std::byte> piece : pieces) open_->write(piece);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    throw;
  }
  const std::lock_guard lock(mutex_);
  files_.back().offsets.push_back(files_.back().end);
  files_.back().end += size;
  head_ = version;
  changed_.notify_all();
}

UpdateLog::File& UpdateLog::file_of(std::int64_t version) {
  return const_cast<File&>(std::as_const(*this).file_of(version));
}

const UpdateLog::File& UpdateLog::file_of(std::int64_t version) const {
  const auto after =
      std::upper_bound(files_.begin(), files_.end(), version,
                       [](std::int64_t v, const File& file) { return v < file.first; });
  if (after == files_.begin() || version > head_)
    throw UserError({.operation = "embed.log",
                     .where = options_.folder,
                     .what = "an update is not in the log",
                     .expected = "updates up to " + std::to_string(head_),
                     .got = "update " + std::to_string(version)});
  return *(after - 1);
}

UpdateLog::Bytes UpdateLog::record(std::int64_t version) const {
  std::string path;
  std::uint64_t begin = 0, end = 0;
  {
    const std::lock_guard lock(mutex_);
    const File& file = file_of(version);
    const auto index = static_cast<std::size_t>(version - file.first);
    path = file.path;
    begin = file.offsets[index];
    end = index + 1 < file.offsets.size() ? file.offsets[index + 1] : file.end;
  }
  Bytes bytes(static_cast<std::size_t>(end - begin));
  RandomAccessFile::open(path, kUse)->read(begin, bytes);
  return bytes;
}

std::int64_t UpdateLog::version_of(std::span<const std::byte> record) {
  ByteReader head(record, "a record of updates");
  const std::uint32_t size = head.fixed32();
  const auto version = static_cast<std::int64_t>(head.fixed64());
  if (head.fixed64() != checksum(record.first(12))) head.refuse("it is damaged");
  if (head.left() != size + kTailBytes) head.refuse("it has another length");
  return version;
}

UpdateLog::Record UpdateLog::parse_record(std::span<const std::byte> record) {
  Record parsed{.version = version_of(record), .parts = {}};
  ByteReader head(record.subspan(kHeadBytes), "a record of updates");
  const std::span<const std::byte> body = head.bytes(head.left() - kTailBytes);
  if (head.fixed64() != checksum(body)) head.refuse("it is damaged");
  ByteReader from(body, "update " + std::to_string(parsed.version));
  const std::uint64_t count = from.varint();
  if (count > from.left()) from.refuse("it is cut off");
  for (std::uint64_t i = 0; i < count; ++i) parsed.parts.push_back(from.blob());
  from.require_end();
  return parsed;
}

std::int64_t UpdateLog::changes() const {
  const std::lock_guard lock(mutex_);
  return changes_;
}

void UpdateLog::wait_durable(std::int64_t version) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || durable_ >= version || stopped_; });
  require_running();
}

void UpdateLog::wait_durable_for(std::int64_t version, std::int64_t milliseconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(milliseconds),
                    [&] { return failure_ || durable_ >= version || stopped_; });
  require_running();
}

bool UpdateLog::healthy() const {
  const std::lock_guard lock(mutex_);
  return !failure_;
}

void UpdateLog::on_durable(std::function<void(std::int64_t, std::exception_ptr)> call) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !calling_; });
  call_ = std::move(call);
}

void UpdateLog::sync_loop() {
  using namespace std::chrono;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopped_ || (durable_ < head_ && !failure_); });
    const auto enough = [&] { return stopped_ || head_ - durable_ >= options_.sync.updates; };
    if (!enough()) changed_.wait_for(lock, milliseconds(options_.sync.milliseconds), enough);
    if (durable_ >= head_ || failure_) {
      if (stopped_) return;
      continue;
    }
    const std::int64_t target = head_;
    const std::shared_ptr<Descriptor> file = open_;
    lock.unlock();
    std::exception_ptr error;
    try {
      if (file) file->sync();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) failure_ = error;
    // What was cut off and written anew meanwhile lies in another file.
    if (!error && file == open_) durable_ = std::max(durable_, std::min(target, head_));
    const auto call = call_;
    const std::int64_t durable = durable_;
    calling_ = true;
    changed_.notify_all();
    lock.unlock();
    if (call) call(durable, error);
    lock.lock();
    calling_ = false;
    changed_.notify_all();
  }
}

// Before another file is the open one, which is all that the thread beside syncs.
void UpdateLog::sync_open() {
  if (!open_) return;
  open_->sync();
  const std::lock_guard lock(mutex_);
  durable_ = head_;
}

void UpdateLog::begin_file() {
  sync_open();
  // Unless there is nothing in it yet.
  if (!open_ || !files_.back().offsets.empty()) begin_run(run(), head());
}

// The run first: who follows must not take what is cut off for updates that are still to come.
void UpdateLog::cut_for_run(LogRun run, std::int64_t version) {
  {
    const std::lock_guard lock(mutex_);
    run_ = run;
    ++changes_;
  }
  cut_after(version);
}

void UpdateLog::restart(LogRun run, std::int64_t version) {
  cut_for_run(run, -1);
  {
    const std::lock_guard lock(mutex_);
    head_ = durable_ = version;
  }
  begin_run(run, version);
}

void UpdateLog::begin_run(LogRun run, std::int64_t version) {
  if (version == head()) sync_open();
  cut_for_run(run, version);
  const std::string path = options_.folder + "/" + log_name(version + 1);
  auto file = std::make_shared<Descriptor>(path, *options_.files);
  file->write(header_bytes(options_, version + 1, run));
  file->sync();
  sync_folder(options_.folder, *options_.files);
  const std::lock_guard lock(mutex_);
  if (!files_.empty() && files_.back().path == path) files_.pop_back();
  files_.push_back(
      {.path = path, .first = version + 1, .run = run, .offsets = {}, .end = kHeaderBytes});
  open_ = std::move(file);
}

// The newest file goes first: whenever the process ends, the updates that are left have no gap.
void UpdateLog::cut_after(std::int64_t version) {
  const std::lock_guard lock(mutex_);
  require_running();
  if (version >= head_) return;
  ++changes_;
  open_.reset();
  while (!files_.empty() && files_.back().first > version) {
    remove_folder(files_.back().path, *options_.files);
    sync_folder(options_.folder, *options_.files);
    files_.pop_back();
  }
  if (!files_.empty()) {
    File& file = files_.back();
    const auto kept = static_cast<std::size_t>(version + 1 - file.first);
    if (kept < file.offsets.size()) {
      file.end = file.offsets[kept];
      file.offsets.resize(kept);
      truncate_durably(file.path, file.end, *options_.files);
    }
  }
  head_ = version;
  durable_ = version;
}

void UpdateLog::remove_up_to(std::int64_t version) {
  const std::lock_guard lock(mutex_);
  ++changes_;
  while (files_.size() > 1 && files_[1].first <= version + 1) {
    remove_folder(files_.front().path, *options_.files);
    files_.pop_front();
  }
  sync_folder(options_.folder, *options_.files);
}

}  // namespace strata
