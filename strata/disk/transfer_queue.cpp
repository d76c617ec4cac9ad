// Checksums of blocks are computed while the next blocks are in flight, so that the disk never
// waits for a checksum.
//
// O_DIRECT requires aligned offsets, so a partly moved block resumes from the last aligned byte: at
// worst a few bytes move twice.
#include "strata/disk/transfer_queue.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

// Results in a row without progress: after a third of a second the disk is reported as stuck.
constexpr int kMostFruitless = 300;
constexpr int kFruitlessAtOnce = 8;

std::size_t aligned_up(std::size_t bytes) {
  return (bytes + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
}

std::size_t aligned_down(std::size_t bytes) { return bytes / kDiskAlignment * kDiskAlignment; }

std::uint64_t digest_of(const std::vector<std::uint64_t>& sums) {
  return checksum(std::as_bytes(std::span(sums)));
}

const char* operation_of(BlockOp op) {
  switch (op) {
    case BlockOp::kRead:
      return "disk.read";
    case BlockOp::kWrite:
      return "disk.write";
    case BlockOp::kSync:
      return "disk.sync";
  }
  return "?";
}

}  // namespace

std::size_t own_blocks_bytes(std::size_t longest_transfer) {
  return kOwnBlocks * (longest_transfer == 0
                           ? kDiskBlockBytes
                           : std::min(aligned_up(longest_transfer), kDiskBlockBytes));
}

std::uint64_t block_digest(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> sums;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kDiskBlockBytes)))
    sums.push_back(checksum(bytes.first(std::min(bytes.size(), kDiskBlockBytes))));
  return digest_of(sums);
}

TransferQueue::TransferQueue(File file, const Options& options, const BlockIoFactory& make_io)
    : file_(std::move(file)), options_(options), slots_(static_cast<std::size_t>(options.depth)) {
  STRATA_CHECK(options.depth > 0, "disk.open");
  for (int slot = options.depth; slot-- > 0;) free_slots_.push_back(slot);
  for (int block = 0; block < static_cast<int>(kOwnBlocks); ++block) free_own_.push_back(block);
  std::promise<void> started;
  std::future<void> has_started = started.get_future();
  thread_ = std::thread([&] { run(started, make_io); });
  try {
    has_started.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

TransferQueue::~TransferQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (!broken_) io_->wake();
  }
  thread_.join();
}

Completion TransferQueue::add(BlockOp op, std::uint64_t offset, std::span<std::byte> bytes,
                              DigestReceiver digest) {
  STRATA_CHECK(offset % kDiskAlignment == 0, operation_of(op));
  if (bytes.empty() && op != BlockOp::kSync) {
    if (digest) digest(digest_of({}));
    return {};
  }
  auto job = std::make_unique<Job>();
  job->op = op;
  job->offset = offset;
  job->bytes = bytes;
  job->digest = std::move(digest);
  job->sums.resize((bytes.size() + kDiskBlockBytes - 1) / kDiskBlockBytes);
  Completion ended = job->ended.completion();
  const std::lock_guard lock(mutex_);
  if (broken_) {
    job->ended.fail(broken_);
    return ended;
  }
  jobs_.push_back(std::move(job));
  io_->wake();
  return ended;
}

void TransferQueue::run(std::promise<void>& started, const BlockIoFactory& make_io) {
  try {
    io_ = make_io({.backend = options_.backend,
                   .descriptor = file_.descriptor,
                   .depth = options_.depth,
                   .buffers = options_.buffers});
    probe_ = io_->probe();
  } catch (...) {
    return started.set_exception(std::current_exception());
  }
  started.set_value();  // `started` no longer exists
  try {
    std::vector<BlockResult> results;
    while (fill_slots()) {
      if (sum_blocks()) continue;
      results.clear();
      io_->wait(results);
      for (const BlockResult& result : results) judge(result);
    }
  } catch (...) {
    fail_all(std::current_exception());
  }
  io_.reset();
}

// Returns false when the queue has stopped and no work is left.
bool TransferQueue::fill_slots() {
  while (!free_slots_.empty()) {
    Job* const job = next_job();
    if (job == nullptr || (needs_own_block(*job) && free_own_.empty())) break;
    const int number = free_slots_.back();
    free_slots_.pop_back();
    begin_block(number, *job);
    submit(number);
  }
  const std::lock_guard lock(mutex_);
  return !stopped_ || !jobs_.empty();
}

// Returns the first job with a block to begin.
TransferQueue::Job* TransferQueue::next_job() {
  const std::lock_guard lock(mutex_);
  const bool idle = free_slots_.size() == slots_.size();
  for (const std::unique_ptr<Job>& job : jobs_) {
    if (job->op == BlockOp::kSync) return idle ? job.get() : nullptr;
    if (job->next < job->bytes.size()) return job.get();
  }
  return nullptr;
}

// Checks the next block of `job`.
bool TransferQueue::needs_own_block(const Job& job) const {
  if (job.op == BlockOp::kSync) return false;
  const std::size_t count = std::min(job.bytes.size() - job.next, kDiskBlockBytes);
  const auto begin = reinterpret_cast<std::uintptr_t>(job.bytes.data() + job.next);
  return count % kDiskAlignment != 0 || begin % file_.memory_alignment != 0;
}

std::span<std::byte> TransferQueue::take_own_block(Slot& slot, std::size_t count) {
  if (own_.bytes().empty()) {
    own_ = AlignedBuffer(own_blocks_bytes(options_.longest_transfer));
    memory_bytes_ = own_.bytes().size();
  }
  slot.own = free_own_.back();
  free_own_.pop_back();
  const std::size_t block = own_.bytes().size() / kOwnBlocks;
  STRATA_CHECK(count <= block, operation_of(slot.job->op));
  return own_.bytes().subspan(static_cast<std::size_t>(slot.own) * block, count);
}

void TransferQueue::begin_block(int number, Job& job) {
  Slot& slot = slots_[static_cast<std::size_t>(number)];
  const bool own = needs_own_block(job);
  slot = {.job = &job, .begin = job.next, .count = 0};
  slot.count = std::min(job.bytes.size() - job.next, kDiskBlockBytes);
  job.next += slot.count;
  ++job.under_way;
  if (job.op == BlockOp::kSync) return;
  const std::span<std::byte> bytes = job.bytes.subspan(slot.begin, slot.count);
  const std::size_t whole = aligned_up(slot.count);
  slot.memory = own ? take_own_block(slot, whole) : bytes;
  if (job.op != BlockOp::kWrite) return;
  sum_later(slot);
  if (!own) return;
  std::memcpy(slot.memory.data(), bytes.data(), bytes.size());
  std::memset(slot.memory.data() + bytes.size(), 0, whole - bytes.size());
}

void TransferQueue::submit(int number) {
  const Slot& slot = slots_[static_cast<std::size_t>(number)];
  io_->submit({.op = slot.job->op,
               .slot = number,
               .offset = slot.job->offset + slot.begin + slot.moved,
               .bytes = slot.memory.subspan(slot.moved)});
}

void TransferQueue::judge(const BlockResult& result) {
  Slot& slot = slots_[static_cast<std::size_t>(result.slot)];
  Job& job = *slot.job;
  const bool again = result.result == -EINTR || result.result == -EAGAIN;
  const int error = result.result < 0 ? static_cast<int>(-result.result) : 0;
  if (error != 0 && !again) return fail_block(result.slot, error, "the system refuses");
  if (job.op == BlockOp::kSync && !again) return end_block(result.slot);
  if (result.result == 0 && job.op == BlockOp::kRead)
    return fail_block(result.slot, 0, "the file became shorter while it was used");
  const std::size_t before = slot.moved;
  if (!again) {
    const std::size_t moved = static_cast<std::size_t>(result.result);
    STRATA_CHECK(moved <= slot.memory.size() - slot.moved, operation_of(job.op));
    bytes_moved_ += moved;
    slot.moved += moved;
    if (slot.moved < slot.memory.size() && file_.direct) slot.moved = aligned_down(slot.moved);
  }
  if (job.op != BlockOp::kSync && slot.moved == slot.memory.size()) return end_block(result.slot);
  slot.fruitless = slot.moved > before ? 0 : slot.fruitless + 1;
  if (slot.fruitless > kMostFruitless)
    return fail_block(result.slot, error, "the disk makes no progress");
  if (slot.fruitless > kFruitlessAtOnce) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  submit(result.slot);
}

void TransferQueue::fail_block(int number, int error, const std::string& what) {
  const Slot& slot = slots_[static_cast<std::size_t>(number)];
  const BlockOp op = slot.job->op;
  const std::uint64_t offset = slot.job->offset + slot.begin + slot.moved;
  const std::string where =
      op == BlockOp::kSync ? file_.path : file_.path + ", byte " + std::to_string(offset);
  ErrorText text = file_error(operation_of(op), where, what, error).text();
  if (error == 0) {
    text.got = "a result of 0 bytes where " + std::to_string(slot.memory.size() - slot.moved) +
               " were requested";
    text.fix = "leave the file alone while the program runs";
  }
  if (!slot.job->error) slot.job->error = std::make_exception_ptr(SystemError(std::move(text)));
  end_block(number);
}

void TransferQueue::end_block(int number) {
  Slot& slot = slots_[static_cast<std::size_t>(number)];
  Job& job = *slot.job;
  free_slots_.push_back(number);
  if (job.error) {
    job.next = job.bytes.size();  // the rest is not started
  } else if (job.op == BlockOp::kRead) {
    const std::span<std::byte> bytes = job.bytes.subspan(slot.begin, slot.count);
    if (slot.own >= 0) std::memcpy(bytes.data(), slot.memory.data(), bytes.size());
    sum_later(slot);
  }
  if (slot.own >= 0) free_own_.push_back(slot.own);
  end_part(job);
}

void TransferQueue::end_part(Job& job) {
  if (--job.under_way == 0 && job.next == job.bytes.size()) end_job(job);
}

void TransferQueue::sum_later(const Slot& slot) {
  if (!slot.job->digest) return;
  ++slot.job->under_way;
  unsummed_.push_back({.job = slot.job, .begin = slot.begin, .count = slot.count});
}

// Runs while the disk performs its next requests. Returns whether there was work.
bool TransferQueue::sum_blocks() {
  const std::vector<Slot> blocks = std::exchange(unsummed_, {});
  for (const Slot& block : blocks) {
    block.job->sums[block.begin / kDiskBlockBytes] =
        checksum(block.job->bytes.subspan(block.begin, block.count));
    end_part(*block.job);
  }
  return !blocks.empty();
}

void TransferQueue::end_job(Job& job) {
  std::unique_ptr<Job> owned;
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(jobs_.begin(), jobs_.end(),
                                 [&](const auto& other) { return other.get() == &job; });
    owned = std::move(*at);
    jobs_.erase(at);
  }
  forget_pages(*owned);
  try {
    if (owned->digest && !owned->error) owned->digest(digest_of(owned->sums));
  } catch (...) {
    owned->error = std::current_exception();
  }
  owned->ended.end(std::move(owned->error));
}

// No byte is read twice before it is written again, so cached pages only waste memory. Dirty pages
// can't be dropped.
void TransferQueue::forget_pages(const Job& job) const {
  if (file_.direct || job.op == BlockOp::kWrite) return;
  ::posix_fadvise(file_.descriptor, static_cast<::off_t>(job.offset),
                  static_cast<::off_t>(aligned_up(job.bytes.size())), POSIX_FADV_DONTNEED);
}

// BlockIo itself failed: its requests may still be in flight until it is destroyed.
void TransferQueue::fail_all(std::exception_ptr error) {
  std::deque<std::unique_ptr<Job>> jobs;
  {
    const std::lock_guard lock(mutex_);
    broken_ = error;
    jobs.swap(jobs_);
  }
  io_.reset();
  for (const std::unique_ptr<Job>& job : jobs) job->ended.fail(error);
}

}  // namespace strata
