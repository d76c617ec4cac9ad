/// Keeps chunks of bytes on disk so that the last committed step is always there, whole.
///
///     ChunkFileOptions options{.setting = "memory.disk.path"};
///     auto file = ChunkFile::create("/scratch/run/rank-00003", {bytes_of_chunk_0, ...}, options);
///     DiskTransfer write = file->write(0, bytes);   // returns at once
///     ...
///     write.wait();                                 // sleeps; now `bytes` may change
///     DiskTransfer read = file->read(0, into);      // what was written last, committed or not
///     ...
///     read.wait();                                  // verified against its checksum
///     file->commit(step, R"({"samples_seen": 4096})");  // all or nothing, and durable
///
///     // After the end, or a crash at any moment:
///     auto file = ChunkFile::open("/scratch/run/rank-00003", options);
///     file->committed_step(), file->user_text(), file->read(0, into)
///
/// The file is allocated once, whole, with two slots for each chunk: a write goes to the slot that
/// the last commit doesn't name, so a commit is an fsync and a new manifest (docs/formats.md). What
/// wasn't written since the last commit keeps its slot and costs nothing.
///
/// Threads  all methods, from any, transfers of one chunk by one at a time. A read starts when the last
///          write of its chunk has ended, and a write when what is under way in its chunk has: neither
///          call waits for that. write() waits for a commit. commit() may run alongside reads: give it
///          a thread of its own to compute on.
/// Cost     disk space of twice the chunks; a checksum of what is read and written, at the rate of
///          memory, on the queues' threads.
/// Errors   create() and open(): UserError before anything is made: the folder lies in memory, is
///          read-only, too full, or in use by another run (host, process, start); SystemError: the
///          disk is full after all. wait() and commit(): SystemError that names file and byte; a
///          chunk that isn't what was written, by its number. After a commit that failed at the
///          medium nothing is written any more: what the disk holds is the last step or this one.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/folder_lock.h"
#include "strata/disk/async_file.h"

namespace strata {

struct ChunkManifest;

struct ChunkFileOptions {
  std::string setting = "the disk folder";  ///< what the user wrote the folder into, for errors
  bool replace = false;                     ///< create() removes what an earlier run has left
  AsyncFileOptions file = {};
  // Seams for tests.
  FileSystem* files = &posix_file_system();
  BlockIoFactory block_io = make_block_io;
};

class ChunkFile {
 public:
  /// What create() allocates for chunks of these sizes.
  static std::int64_t file_bytes(std::span<const std::int64_t> chunk_bytes);

  /// Whether a committed step lies in the folder.
  static bool exists(const std::string& folder);

  struct Commit {
    std::int64_t step = 0;
    std::string user_text;
  };
  /// What lies in a folder, the last first; nothing is opened.
  static std::vector<Commit> commits(const std::string& folder);

  /// Makes the folder, which is this file's alone, and allocates the file. Refuses a folder with a
  /// committed step unless told to replace it.
  static std::unique_ptr<ChunkFile> create(const std::string& folder,
                                           std::vector<std::int64_t> chunk_bytes,
                                           const ChunkFileOptions& options = {});

  /// The last committed step. `chunk_bytes`: what is expected; another table is refused (UserError).
  static std::unique_ptr<ChunkFile> open(
      const std::string& folder, const ChunkFileOptions& options = {},
      const std::optional<std::vector<std::int64_t>>& chunk_bytes = std::nullopt);

  ~ChunkFile();
  ChunkFile(const ChunkFile&) = delete;
  ChunkFile& operator=(const ChunkFile&) = delete;

  int num_chunks() const { return static_cast<int>(chunks_.size()); }
  std::int64_t chunk_bytes(int chunk) const;
  std::optional<std::int64_t> committed_step() const;
  std::string user_text() const;  ///< of the last commit

  /// The commit before the last, which is there until something is written. go_back() makes it the last
  /// one, durably: where several files commit together, one may be a step ahead of the others. `user_text`
  /// takes the place of that commit's own.
  std::optional<std::int64_t> previous_step() const;
  void go_back(const std::optional<std::string>& user_text = std::nullopt);

  bool has(int chunk) const;  ///< whether it was ever written

  /// All of a chunk, as it was written last. A continuation may start transfers, but no write while
  /// there is a commit.
  DiskTransfer read(int chunk, std::span<std::byte> into);
  /// All of a chunk.
  DiskTransfer write(int chunk, std::span<const std::byte> from);

  /// Waits for all writes and makes them, all together, the step that open() finds; `user_text`
  /// (UTF-8) comes back with it. Where it throws because of a chunk's write, that chunk may be
  /// written again and the commit repeated.
  void commit(std::int64_t step, const std::string& user_text);

  /// Refuses (SystemError) unless open() would find the last commit: its files were neither removed nor
  /// replaced since. commit() looks at chunks.data by itself.
  void require_committed() const;

  const DiskProbe& probe() const { return file_->probe(); }
  std::size_t memory_alignment() const { return file_->memory_alignment(); }
  std::size_t memory_bytes() const { return file_->memory_bytes(); }
  std::uint64_t bytes_read() const { return file_->bytes_read(); }
  std::uint64_t bytes_written() const;  ///< manifests included

 private:
  struct Chunk {
    std::int64_t bytes = 0;
    std::uint64_t offset = 0;           // of slot 0; the other follows
    std::optional<int> committed = {};  // slot
    std::uint64_t committed_digest = 0;
    std::optional<int> previous = {};  // of the commit before
    std::uint64_t previous_digest = 0;
    std::optional<int> fresh = {};  // the slot written since the last commit
    std::uint64_t fresh_digest = 0;
    Completion write = {};  // of the fresh slot
    std::vector<Completion> reads = {};
  };

  ChunkFile(std::string folder, const ChunkFileOptions& options);
  void allocate(std::int64_t bytes);
  void open_data();
  std::uint64_t offset_of(const Chunk& chunk, int slot) const;
  Completion start_read(int chunk, std::span<std::byte> into);
  Completion start_write(int chunk, std::span<const std::byte> from);
  ChunkManifest next_manifest(std::int64_t step, const std::string& user_text) const;
  void write_manifest(const ChunkManifest& manifest);
  void name_manifest(const std::function<void()>& before);
  void check_digest(int chunk, std::uint64_t offset, std::uint64_t expected,
                    std::uint64_t got) const;

  const std::string folder_;
  const ChunkFileOptions options_;
  FolderLock lock_;
  std::shared_mutex commit_gate_;  // writes share it
  mutable std::mutex mutex_;       // of the fields below; nobody waits for the disk under it
  std::vector<Chunk> chunks_;
  std::optional<std::int64_t> step_;
  std::string user_text_;
  std::optional<Commit> previous_;
  std::exception_ptr failed_;  // a commit of which nobody knows how far it got
  std::uint64_t manifest_bytes_ = 0;
  std::unique_ptr<AsyncFile> file_;  // last: its threads use what is above
};

}  // namespace strata
