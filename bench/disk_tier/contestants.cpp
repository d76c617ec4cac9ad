// Reads and writes one chunk file in turn: through ChunkFile, as memory tiers do, and by a plain
// loop of O_DIRECT blocks over the same bytes of the same file. Prints a line of JSON a round.
//
//   disk_tier_bench FOLDER ROUNDS CHUNKS CHUNK_MIB DEPTH [threads]
#include <fcntl.h>
#include <liburing.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "strata/base/errors.h"
#include "strata/base/json_document.h"
#include "strata/base/measurement.h"
#include "strata/disk/chunk_file.h"
#include "strata/disk/chunk_manifest.h"

namespace strata {
namespace {

constexpr std::size_t kChunksUnderWay = 4;

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return time.tv_sec + 1e-6 * time.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The least that moves these blocks: registered memory, one system call a block, no checksum. The
// disk does the same for it as for us.
class PlainLoop {
 public:
  PlainLoop(const std::string& path, unsigned depth)
      : descriptor_(::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC)),
        depth_(depth),
        memory_(depth * kDiskBlockBytes) {
    STRATA_CHECK(descriptor_ >= 0, "bench.plain");
    STRATA_CHECK_EQ(::io_uring_queue_init(depth, &ring_, 0), 0, "bench.plain");
    iovec all{.iov_base = memory_.bytes().data(), .iov_len = memory_.bytes().size()};
    fixed_ = ::io_uring_register_buffers(&ring_, &all, 1) == 0;
    std::mt19937_64 random(1);
    for (std::byte& byte : memory_.bytes()) byte = static_cast<std::byte>(random());
  }
  ~PlainLoop() {
    ::io_uring_queue_exit(&ring_);
    ::close(descriptor_);
  }

  // Blocks of 1 MiB, in this order.
  void run(bool write, const std::vector<std::uint64_t>& offsets) {
    std::size_t begun = 0, ended = 0;
    std::vector<unsigned> free;
    for (unsigned slot = 0; slot < depth_; ++slot) free.push_back(slot);
    while (ended < offsets.size()) {
      for (; begun < offsets.size() && !free.empty(); ++begun) {
        begin(write, free.back(), offsets[begun]);
        free.pop_back();
      }
      ::io_uring_submit_and_wait(&ring_, 1);
      io_uring_cqe* done = nullptr;
      while (::io_uring_peek_cqe(&ring_, &done) == 0) {
        STRATA_CHECK_EQ(done->res, static_cast<int>(kDiskBlockBytes), "bench.plain");
        free.push_back(static_cast<unsigned>(::io_uring_cqe_get_data64(done)));
        ::io_uring_cqe_seen(&ring_, done);
        ++ended;
      }
    }
    if (write) STRATA_CHECK_EQ(::fdatasync(descriptor_), 0, "bench.plain");
  }

 private:
  void begin(bool write, unsigned slot, std::uint64_t offset) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    std::byte* const bytes = memory_.bytes().data() + slot * kDiskBlockBytes;
    const auto count = static_cast<unsigned>(kDiskBlockBytes);
    if (write && fixed_) ::io_uring_prep_write_fixed(entry, descriptor_, bytes, count, offset, 0);
    if (write && !fixed_) ::io_uring_prep_write(entry, descriptor_, bytes, count, offset);
    if (!write && fixed_) ::io_uring_prep_read_fixed(entry, descriptor_, bytes, count, offset, 0);
    if (!write && !fixed_) ::io_uring_prep_read(entry, descriptor_, bytes, count, offset);
    ::io_uring_sqe_set_data64(entry, slot);
  }

  int descriptor_;
  unsigned depth_;
  AlignedBuffer memory_;
  io_uring ring_{};
  bool fixed_ = false;
};

class Contest {
 public:
  Contest(const std::string& folder, int chunks, std::int64_t chunk_bytes, int depth,
          DiskBackend backend)
      : folder_(folder),
        bytes_(chunks * chunk_bytes),
        memory_(kChunksUnderWay * (static_cast<std::size_t>(chunk_bytes) + kDiskAlignment)),
        file_(ChunkFile::create(
            folder, std::vector<std::int64_t>(static_cast<std::size_t>(chunks), chunk_bytes),
            {.replace = true,
             .file = {.backend = backend, .depth = depth, .buffers = {memory_.bytes()}}})),
        plain_(folder + "/" + kChunkDataName, static_cast<unsigned>(depth)) {
    std::mt19937_64 random(1);
    for (std::byte& byte : memory_.bytes()) byte = static_cast<std::byte>(random());
    // Both slots of every chunk are written before anything is measured: new blocks cost more.
    for (int warm = 0; warm < 2; ++warm) chunk_write(0);
    std::cerr << "disk_tier: " << file_->probe().text() << ", memory aligned to "
              << file_->memory_alignment() << "\n";
  }

  nlohmann::ordered_json round(bool reverse) {
    std::vector<std::pair<std::string, std::function<void()>>> contestants = {
        {"plain write", [&] { plain_.run(true, blocks(false)); }},
        {"chunk write", [&] { chunk_write(0); }},
        {"chunk write, tensors' memory", [&] { chunk_write(64); }},
        {"plain read", [&] { plain_.run(false, blocks(true)); }},
        {"chunk read", [&] { chunk_read(0); }},
        {"chunk read, tensors' memory", [&] { chunk_read(64); }},
    };
    if (reverse) std::ranges::reverse(contestants);
    nlohmann::ordered_json result;
    for (const auto& [name, run] : contestants) {
      const double begin = now_seconds(), processor = processor_seconds();
      run();
      const double seconds = now_seconds() - begin;
      result[name] = {{"bytes_per_second", static_cast<double>(bytes_) / seconds},
                      {"processor_seconds_per_gib", (processor_seconds() - processor) * (1 << 30) /
                                                        static_cast<double>(bytes_)}};
    }
    return result;
  }

 private:
  // The slots that the last commit names, or the others, which may be overwritten.
  std::vector<std::uint64_t> blocks(bool committed) const {
    const std::string path = folder_ + "/" + kChunkManifestName;
    const FileUse use{.operation = "bench.open", .fix = ""};
    std::vector<std::uint64_t> offsets;
    const ChunkManifest manifest = parse_chunk_manifest(read_file(path, use, kMaxJsonBytes), path);
    for (const ChunkEntry& chunk : manifest.chunks) {
      const bool second = committed ? *chunk.slot == 1 : *chunk.slot == 0;
      const std::uint64_t begin = chunk.offset + (second ? slot_bytes(chunk.bytes) : 0);
      for (std::int64_t at = 0; at < chunk.bytes; at += kDiskBlockBytes)
        offsets.push_back(begin + static_cast<std::uint64_t>(at));
    }
    return offsets;
  }

  // `shift`: 0, or 64, to which libtorch aligns its tensors.
  std::span<std::byte> memory_of(int chunk, std::size_t shift) {
    const auto bytes = static_cast<std::size_t>(file_->chunk_bytes(chunk));
    const std::size_t place = static_cast<std::size_t>(chunk) % kChunksUnderWay;
    return memory_.bytes().subspan(place * (bytes + kDiskAlignment) + shift, bytes);
  }

  void chunk_write(std::size_t shift) {
    std::vector<DiskTransfer> writes(kChunksUnderWay);
    for (int chunk = 0; chunk < file_->num_chunks(); ++chunk) {
      DiskTransfer& write = writes[static_cast<std::size_t>(chunk) % kChunksUnderWay];
      write.wait();
      write = file_->write(chunk, memory_of(chunk, shift));
    }
    for (const DiskTransfer& write : writes) write.wait();
    file_->commit(++step_, "");
  }

  void chunk_read(std::size_t shift) {
    std::vector<DiskTransfer> reads(kChunksUnderWay);
    for (int chunk = 0; chunk < file_->num_chunks(); ++chunk) {
      DiskTransfer& read = reads[static_cast<std::size_t>(chunk) % kChunksUnderWay];
      read.wait();
      read = file_->read(chunk, memory_of(chunk, shift));
    }
    for (const DiskTransfer& read : reads) read.wait();
  }

  std::string folder_;
  std::int64_t bytes_;
  AlignedBuffer memory_;
  std::unique_ptr<ChunkFile> file_;
  PlainLoop plain_;
  std::int64_t step_ = 0;
};

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  if (argc < 6) {
    std::cerr << "disk_tier_bench FOLDER ROUNDS CHUNKS CHUNK_MIB DEPTH [threads]\n";
    return 2;
  }
  try {
    const bool threads = argc > 6 && std::string(argv[6]) == "threads";
    strata::Contest contest(argv[1], std::atoi(argv[3]), std::int64_t{std::atoi(argv[4])} << 20,
                            std::atoi(argv[5]),
                            threads ? strata::DiskBackend::kThreads : strata::DiskBackend::kAuto);
    for (int round = 0; round < std::atoi(argv[2]); ++round)
      std::cout << contest.round(round % 2 == 1).dump() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return strata::exit_code(error);
  }
}
