/// Keeps chunks of bytes on disk so that the last committed step always exists completely.
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
/// The file is allocated once, with two slots for each chunk: a write goes to the slot that the
/// last commit doesn't name, so a commit is an fsync and a new manifest (docs/formats.md). Chunks
/// that weren't written since the last commit keep their slot and cost nothing.
///
/// Threads  all methods, from any; one thread at a time for each chunk. A read starts when the last
///          write of its chunk has ended, and a write when all transfers of its chunk have ended;
///          neither call blocks for that. write() waits for a commit. commit() may run in parallel
///          with reads: call it on another thread than the one that computes.
/// Cost     disk space of twice the chunks; a checksum of all bytes read and written, at memory
///          bandwidth, on the queues' threads.
/// Errors   create() and open() throw UserError before anything is created: the folder is in
///          memory, read-only, too full, or in use by another run (host, process, start);
///          SystemError if the disk is full after all. wait() and commit() throw SystemError that
///          names file and byte; for a chunk with a wrong checksum, its number. After a commit that
///          failed on the disk nothing is written any more: the disk holds the previous step or
///          this one.
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
  std::string setting = "the disk folder";  ///< the option that names the folder, for errors
  bool replace = false;                     ///< create() removes files of an earlier run
  int slots = 2;  ///< per chunk; 1: for bytes of one step, which no commit holds
  AsyncFileOptions file = {};
  // For tests.
  FileSystem* files = &posix_file_system();
  BlockIoFactory block_io = make_block_io;
};

class ChunkFile {
 public:
  /// The bytes that create() allocates for chunks of these sizes.
  static std::int64_t file_bytes(std::span<const std::int64_t> chunk_bytes, int slots = 2);

  /// Whether the folder has a committed step.
  static bool exists(const std::string& folder);

  struct Commit {
    std::int64_t step = 0;
    std::string user_text;
  };
  /// The commits in a folder, the last first; opens no file.
  static std::vector<Commit> commits(const std::string& folder);

  /// Creates the folder, which only this file uses, and allocates the file. Throws UserError if the
  /// folder has a committed step, unless `replace` is set.
  static std::unique_ptr<ChunkFile> create(const std::string& folder,
                                           std::vector<std::int64_t> chunk_bytes,
                                           const ChunkFileOptions& options = {});

  /// Opens the last committed step. `chunk_bytes`: the expected sizes; throws UserError if they
  /// differ.
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

  /// The commit before the last; it exists until a chunk is written. go_back() makes it the last
  /// one, durably: if several files commit together, one may be a step ahead of the others.
  /// `user_text` replaces the text of that commit.
  std::optional<std::int64_t> previous_step() const;
  void go_back(const std::optional<std::string>& user_text = std::nullopt);

  bool has(int chunk) const;  ///< whether it was ever written

  /// Reads a whole chunk, as last written. A continuation may start transfers, but no writes during
  /// a commit.
  DiskTransfer read(int chunk, std::span<std::byte> into);
  /// Writes a whole chunk.
  DiskTransfer write(int chunk, std::span<const std::byte> from);

  /// Waits for all writes and makes all of them the step that open() returns, with `user_text`
  /// (UTF-8). If it throws because a chunk's write failed, that chunk may be written again and the
  /// commit repeated.
  void commit(std::int64_t step, const std::string& user_text);

  /// Throws SystemError unless open() would return the last commit: its files must not be removed
  /// or replaced. commit() checks chunks.data itself.
  void require_committed() const;

  const DiskProbe& probe() const { return file_->probe(); }
  std::size_t memory_alignment() const { return file_->memory_alignment(); }
  std::size_t memory_bytes() const { return file_->memory_bytes(); }
  std::uint64_t bytes_read() const { return file_->bytes_read(); }
  std::uint64_t bytes_written() const;  ///< including manifests

 private:
  struct Chunk {
    std::int64_t bytes = 0;
    std::uint64_t offset = 0;           // of slot 0; slot 1 follows
    std::optional<int> committed = {};  // slot
    std::uint64_t committed_digest = 0;
    std::optional<int> previous = {};  // slot of the previous commit
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
  std::shared_mutex commit_gate_;  // writes hold it shared
  mutable std::mutex mutex_;       // guards the fields below; never held during disk access
  std::vector<Chunk> chunks_;
  std::optional<std::int64_t> step_;
  std::string user_text_;
  std::optional<Commit> previous_;
  std::exception_ptr failed_;  // a failed commit of unknown state
  std::uint64_t manifest_bytes_ = 0;
  std::unique_ptr<AsyncFile> file_;  // last member: its threads use the others
};

}  // namespace strata
