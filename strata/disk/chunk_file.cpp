// The order of a commit makes it safe. All writes end; the new manifest is written under another
// name and synced; the data is synced; then the new manifest is renamed over the old one. Until
// then the old one names only slots that were not written since.
#include "strata/disk/chunk_file.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/base/json_document.h"
#include "strata/base/random_access_file.h"
#include "strata/base/units.h"
#include "strata/disk/chunk_manifest.h"
#include "strata/disk/disk_folder.h"

namespace strata {
namespace {

constexpr const char* kCreate = "disk.create";
constexpr const char* kOpen = "disk.open";

std::string manifest_path(const std::string& folder) { return folder + "/" + kChunkManifestName; }
std::string data_path(const std::string& folder) { return folder + "/" + kChunkDataName; }

FolderLock::Use lock_use(const std::string& setting) {
  return {.operation = "disk.lock",
          .in_use = "another run keeps its state in this folder",
          .unwritable = "this folder cannot be written to",
          .fix = "wait for that run or end it, or set " + setting + " to another folder"};
}

std::string table_text(std::span<const std::int64_t> chunk_bytes) {
  std::int64_t bytes = 0;
  for (const std::int64_t chunk : chunk_bytes) bytes += chunk;
  return std::to_string(chunk_bytes.size()) + " chunks of together " + format_bytes(bytes);
}

void require_same_table(const std::string& folder, std::span<const std::int64_t> expected,
                        std::span<const std::int64_t> got) {
  if (std::ranges::equal(expected, got)) return;
  const auto at = std::ranges::mismatch(expected, got).in1 - expected.begin();
  throw UserError(
      {.operation = kOpen,
       .where = folder,
       .what = "the folder holds chunks of other sizes, first chunk " + std::to_string(at),
       .expected = table_text(expected),
       .got = table_text(got),
       .fix = "resume with the model and the mesh that wrote it, or name another folder"});
}

const FileUse kOpenUse{.operation = kOpen, .fix = "name the folder of a run that committed a step"};

void require_commit(const std::string& folder) {
  if (!ChunkFile::exists(folder))
    kOpenUse.refuse(folder, "no committed step lies here", manifest_path(folder), "no such file");
}

// The run itself wrote this folder, so errors in it are not the user's.
template <typename Action>
void in_own_folder(const Action& action) {
  try {
    action();
  } catch (const UserError& error) {
    throw SystemError(error.text());
  }
}

ChunkManifest read_manifest(const std::string& folder) {
  const std::string path = manifest_path(folder);
  return parse_chunk_manifest(read_file(path, kOpenUse, kMaxJsonBytes), path);
}

}  // namespace

std::int64_t ChunkFile::file_bytes(std::span<const std::int64_t> chunk_bytes, int slots) {
  return data_bytes(lay_out_chunks({chunk_bytes.begin(), chunk_bytes.end()}, slots), slots);
}

bool ChunkFile::exists(const std::string& folder) { return name_exists(manifest_path(folder)); }

std::vector<ChunkFile::Commit> ChunkFile::commits(const std::string& folder) {
  require_commit(folder);
  ChunkManifest manifest = read_manifest(folder);
  std::vector<Commit> commits{{manifest.step, std::move(manifest.user_text)}};
  if (manifest.previous_step)
    commits.push_back({*manifest.previous_step, std::move(manifest.previous_text)});
  return commits;
}

std::unique_ptr<ChunkFile> ChunkFile::create(const std::string& folder,
                                             std::vector<std::int64_t> chunk_bytes,
                                             const ChunkFileOptions& options) {
  STRATA_CHECK(!chunk_bytes.empty() && std::ranges::min(chunk_bytes) > 0, kCreate);
  const std::int64_t bytes = file_bytes(chunk_bytes, options.slots);
  std::unique_ptr<ChunkFile> file;
  // An existing folder may be in use: report that before a full disk.
  if (std::filesystem::is_directory(folder)) {
    require_disk_folder(folder, 0, options.setting);
    file.reset(new ChunkFile(folder, options));
  }
  if (!options.replace && exists(folder)) {
    throw UserError({.operation = kCreate,
                     .where = options.setting + " " + folder,
                     .what = "the folder holds a step of an earlier run",
                     .expected = "a folder without one",
                     .got = manifest_path(folder),
                     .fix = "resume that run (--resume), or remove the folder"});
  }
  require_disk_folder(folder, bytes, options.setting, data_path(folder));
  if (!file) file.reset(new ChunkFile(folder, options));
  for (const ChunkEntry& entry : lay_out_chunks(chunk_bytes, options.slots))
    file->chunks_.push_back({.bytes = entry.bytes, .offset = entry.offset});
  file->allocate(bytes);
  file->open_data();
  return file;
}

std::unique_ptr<ChunkFile> ChunkFile::open(
    const std::string& folder, const ChunkFileOptions& options,
    const std::optional<std::vector<std::int64_t>>& chunk_bytes) {
  require_commit(folder);
  require_disk_folder(folder, 0, options.setting);
  std::unique_ptr<ChunkFile> file(new ChunkFile(folder, options));
  ChunkManifest manifest = read_manifest(folder);
  std::vector<std::int64_t> found;
  for (const ChunkEntry& entry : manifest.chunks) found.push_back(entry.bytes);
  if (chunk_bytes) require_same_table(folder, *chunk_bytes, found);
  for (const ChunkEntry& entry : manifest.chunks) {
    file->chunks_.push_back({.bytes = entry.bytes,
                             .offset = entry.offset,
                             .committed = entry.slot,
                             .committed_digest = entry.checksum,
                             .previous = entry.previous_slot,
                             .previous_digest = entry.previous_checksum});
  }
  if (manifest.previous_step)
    file->previous_ = {*manifest.previous_step, std::move(manifest.previous_text)};
  file->step_ = manifest.step;
  file->user_text_ = std::move(manifest.user_text);
  const std::int64_t expected = data_bytes(manifest.chunks);
  file->open_data();
  require_disk_folder(folder, expected, options.setting, data_path(folder));
  if (file->file_->size() != static_cast<std::uint64_t>(expected))
    kOpenUse.refuse(data_path(folder), "the file has another size than its manifest says",
                    std::to_string(expected) + " bytes", std::to_string(file->file_->size()));
  return file;
}

ChunkFile::ChunkFile(std::string folder, const ChunkFileOptions& options)
    : folder_(std::move(folder)),
      options_(options),
      lock_(folder_, lock_use(options.setting), *options.files) {}

// Transfers that wait for others start on the threads of the file, so the file must be destroyed
// after them.
ChunkFile::~ChunkFile() {
  for (const Chunk& chunk : chunks_) {
    for (const Completion& read : chunk.reads) read.settle();
    chunk.write.settle();
  }
}

// Remove the old manifest first: it must not outlive the data that it names.
void ChunkFile::allocate(std::int64_t bytes) {
  FileSystem& files = *options_.files;
  if (exists(folder_)) {
    remove_folder(manifest_path(folder_), files);
    sync_folder(folder_, files);
  }
  const std::string path = data_path(folder_);
  const auto refuse = [&](const std::string& what) {
    throw_error(file_error(kCreate, path, what, errno));
  };
  const int descriptor = files.create(path);
  if (descriptor < 0) refuse("the file cannot be made");
  try {
    if (files.allocate(descriptor, bytes) != 0)
      refuse("the disk has no room for " + format_bytes(bytes));
    if (files.sync(descriptor) != 0) refuse("the file cannot be written");
  } catch (const Error&) {
    files.close(descriptor);
    files.remove_all(path);
    throw;
  }
  if (files.close(descriptor) != 0) refuse("the file cannot be closed");
  sync_folder(folder_, files);
}

void ChunkFile::open_data() {
  AsyncFileOptions file = options_.file;
  for (const Chunk& chunk : chunks_)
    file.longest_transfer = std::max(file.longest_transfer, static_cast<std::size_t>(chunk.bytes));
  file_ = std::make_unique<AsyncFile>(data_path(folder_), file, options_.block_io);
}

std::int64_t ChunkFile::chunk_bytes(int chunk) const {
  return chunks_.at(static_cast<std::size_t>(chunk)).bytes;
}

std::optional<std::int64_t> ChunkFile::committed_step() const {
  const std::lock_guard lock(mutex_);
  return step_;
}

std::string ChunkFile::user_text() const {
  const std::lock_guard lock(mutex_);
  return user_text_;
}

std::optional<std::int64_t> ChunkFile::previous_step() const {
  const std::lock_guard lock(mutex_);
  return previous_ ? std::optional(previous_->step) : std::nullopt;
}

bool ChunkFile::has(int chunk) const {
  const std::lock_guard lock(mutex_);
  const Chunk& entry = chunks_.at(static_cast<std::size_t>(chunk));
  return entry.fresh || entry.committed;
}

std::uint64_t ChunkFile::bytes_written() const {
  const std::lock_guard lock(mutex_);
  return file_->bytes_written() + manifest_bytes_;
}

std::uint64_t ChunkFile::offset_of(const Chunk& chunk, int slot) const {
  return chunk.offset + static_cast<std::uint64_t>(slot) * slot_bytes(chunk.bytes);
}

DiskTransfer ChunkFile::read(int chunk, std::span<std::byte> into) {
  Chunk& entry = chunks_.at(static_cast<std::size_t>(chunk));
  STRATA_CHECK_EQ(static_cast<std::int64_t>(into.size()), entry.bytes, "disk.read");
  STRATA_CHECK(has(chunk), "disk.read");  // the chunk was written before
  Completion write;
  {
    const std::lock_guard lock(mutex_);
    write = entry.write;
  }
  Completion read = write.and_then([=, this] { return start_read(chunk, into); });
  const std::lock_guard lock(mutex_);
  std::erase_if(entry.reads, [](const Completion& earlier) { return earlier.ready(); });
  entry.reads.push_back(read);
  return DiskTransfer(std::move(read));
}

Completion ChunkFile::start_read(int chunk, std::span<std::byte> into) {
  const std::lock_guard lock(mutex_);
  const Chunk& entry = chunks_[static_cast<std::size_t>(chunk)];
  const std::uint64_t expected = entry.fresh ? entry.fresh_digest : entry.committed_digest;
  const std::uint64_t offset = offset_of(entry, entry.fresh ? *entry.fresh : *entry.committed);
  return file_
      ->read(offset, into,
             [=, this](std::uint64_t got) { check_digest(chunk, offset, expected, got); })
      .release();
}

void ChunkFile::check_digest(int chunk, std::uint64_t offset, std::uint64_t expected,
                             std::uint64_t got) const {
  if (got == expected) return;
  throw SystemError(
      {.operation = "disk.read",
       .where = data_path(folder_) + ", chunk " + std::to_string(chunk) + " at byte " +
                std::to_string(offset),
       .what = "the bytes are not those that were written: their checksum is another",
       .expected = checksum_text(expected),
       .got = checksum_text(got),
       .fix = "check the disk (smartctl -a), and resume from a checkpoint on another"});
}

DiskTransfer ChunkFile::write(int chunk, std::span<const std::byte> from) {
  Chunk& entry = chunks_.at(static_cast<std::size_t>(chunk));
  STRATA_CHECK_EQ(static_cast<std::int64_t>(from.size()), entry.bytes, "disk.write");
  const std::shared_lock gate(commit_gate_);
  std::vector<Completion> before;
  {
    const std::lock_guard lock(mutex_);
    if (failed_) std::rethrow_exception(failed_);
    if (!entry.fresh) entry.fresh = entry.committed ? 1 - *entry.committed : 0;
    before = std::exchange(entry.reads, {});
    before.push_back(entry.write);
  }
  // A failed transfer has also ended.
  const Promise ended;
  all_of(before).then([ended](const std::exception_ptr&) { ended.complete(); });
  Completion write = ended.completion().and_then([=, this] { return start_write(chunk, from); });
  const std::lock_guard lock(mutex_);
  entry.write = write;
  return DiskTransfer(std::move(write));
}

Completion ChunkFile::start_write(int chunk, std::span<const std::byte> from) {
  const std::lock_guard lock(mutex_);
  const Chunk& entry = chunks_[static_cast<std::size_t>(chunk)];
  return file_
      ->write(offset_of(entry, *entry.fresh), from,
              [=, this](std::uint64_t digest) {
                const std::lock_guard lock(mutex_);
                chunks_[static_cast<std::size_t>(chunk)].fresh_digest = digest;
              })
      .release();
}

void ChunkFile::commit(std::int64_t step, const std::string& user_text) {
  STRATA_CHECK(step >= 0 && options_.slots == 2, "disk.commit");
  const std::unique_lock gate(commit_gate_);
  std::vector<Completion> writes;
  {
    const std::lock_guard lock(mutex_);
    if (failed_) std::rethrow_exception(failed_);
    for (const Chunk& chunk : chunks_) writes.push_back(chunk.write);
  }
  for (const Completion& write : writes) write.wait();
  file_->require_in_place();
  write_manifest(next_manifest(step, user_text));
  name_manifest([&] { file_->sync().wait(); });
  const std::lock_guard lock(mutex_);
  if (step_) previous_ = {*step_, std::move(user_text_)};
  step_ = step;
  user_text_ = user_text;
  for (Chunk& chunk : chunks_) {
    chunk.write = {};
    chunk.previous = chunk.committed;
    chunk.previous_digest = chunk.committed_digest;
    if (!chunk.fresh) continue;
    chunk.committed = std::exchange(chunk.fresh, std::nullopt);
    chunk.committed_digest = chunk.fresh_digest;
  }
}

void ChunkFile::require_committed() const {
  const std::optional<std::int64_t> step = committed_step();
  STRATA_CHECK(step.has_value(), "disk.check");
  file_->require_in_place();
  const FileUse use{.operation = "disk.check", .fix = kLeaveFolderAlone};
  const std::string path = manifest_path(folder_);
  in_own_folder([&] {
    const std::int64_t there = parse_chunk_manifest(read_file(path, use, kMaxJsonBytes), path).step;
    if (there != *step)
      use.refuse(path, "the manifest was replaced while the run used it",
                 "step " + std::to_string(*step), "step " + std::to_string(there));
  });
}

// After a failure it is unknown which manifest is on the disk.
void ChunkFile::name_manifest(const std::function<void()>& before) {
  try {
    before();
    in_own_folder([&] {
      rename_durably(manifest_path(folder_) + ".new", manifest_path(folder_), *options_.files);
    });
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failed_ = std::current_exception();
    throw;
  }
}

void ChunkFile::go_back(const std::optional<std::string>& user_text) {
  const std::unique_lock gate(commit_gate_);
  ChunkManifest manifest;
  {
    const std::lock_guard lock(mutex_);
    if (failed_) std::rethrow_exception(failed_);
    STRATA_CHECK(previous_.has_value(), "disk.go_back");
    for (const Chunk& chunk : chunks_) STRATA_CHECK(!chunk.fresh, "disk.go_back");
    for (Chunk& chunk : chunks_) {
      chunk.committed = std::exchange(chunk.previous, std::nullopt);
      chunk.committed_digest = chunk.previous_digest;
      manifest.chunks.push_back({.bytes = chunk.bytes,
                                 .offset = chunk.offset,
                                 .slot = chunk.committed,
                                 .checksum = chunk.committed_digest});
    }
    manifest.step = *(step_ = previous_->step);
    manifest.user_text = user_text_ = user_text.value_or(previous_->user_text);
    previous_.reset();
  }
  write_manifest(manifest);
  name_manifest([] {});
}

ChunkManifest ChunkFile::next_manifest(std::int64_t step, const std::string& user_text) const {
  const std::lock_guard lock(mutex_);
  ChunkManifest manifest{.step = step, .user_text = user_text, .chunks = {}};
  if (step_) {
    manifest.previous_step = step_;
    manifest.previous_text = user_text_;
  }
  for (const Chunk& chunk : chunks_) {
    manifest.chunks.push_back(
        {.bytes = chunk.bytes,
         .offset = chunk.offset,
         .slot = chunk.fresh ? chunk.fresh : chunk.committed,
         .checksum = chunk.fresh ? chunk.fresh_digest : chunk.committed_digest,
         .previous_slot = chunk.committed,
         .previous_checksum = chunk.committed_digest});
  }
  return manifest;
}

void ChunkFile::write_manifest(const ChunkManifest& manifest) {
  const std::string text = write_chunk_manifest(manifest);
  in_own_folder([&] {
    DurableFile file(manifest_path(folder_) + ".new", *options_.files);
    file.write(text);
    file.close();
  });
  const std::lock_guard lock(mutex_);
  manifest_bytes_ += text.size();
}

}  // namespace strata
