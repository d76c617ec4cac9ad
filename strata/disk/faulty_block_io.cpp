// To return a short result, the request is performed up to the next 4 KiB, as O_DIRECT requires;
// for a read the bytes after the reported end are overwritten, so that code that uses them fails.
#include "strata/disk/faulty_block_io.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>
#include <unordered_map>
#include <utility>

#include "strata/disk/aligned_buffer.h"
#include "strata/disk/transfer_queue.h"

namespace strata {
namespace {

class FaultyBlockIo final : public BlockIo {
 public:
  FaultyBlockIo(std::unique_ptr<BlockIo> inner, BlockFaultSource source)
      : inner_(std::move(inner)), source_(std::move(source)) {}

  void submit(const BlockRequest& request) override {
    Pending& pending = pending_[request.slot];
    pending = {.request = request, .fault = source_(request), .copy = {}};
    if (pending.fault.error != 0) return made_up_.push_back({request.slot, -pending.fault.error});
    if (pending.fault.at_most == 0) return made_up_.push_back({request.slot, 0});
    BlockRequest requested = request;
    const std::size_t count = std::min(pending.fault.at_most, request.bytes.size());
    const std::size_t whole = (count + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
    requested.bytes = request.bytes.first(std::min(whole, request.bytes.size()));
    if (request.op == BlockOp::kWrite && pending.fault.flip) {
      pending.copy = AlignedBuffer(requested.bytes.size());
      std::memcpy(pending.copy.bytes().data(), requested.bytes.data(), requested.bytes.size());
      requested.bytes = pending.copy.bytes();
      flip(requested.bytes, *pending.fault.flip);
    }
    ++under_way_;
    inner_->submit(requested);
  }

  void wait(std::vector<BlockResult>& results) override {
    std::vector<BlockResult> fresh(made_up_.begin(), made_up_.end());
    made_up_.clear();
    const bool nothing_else = under_way_ == 0 && !held_.empty();
    if (fresh.empty() && !nothing_else) {
      inner_->wait(fresh);
      under_way_ -= static_cast<int>(fresh.size());
    }
    for (const BlockResult& result : fresh) {
      const int ahead = pending_.at(result.slot).fault.overtaken_by;
      if (ahead > 0) {
        held_.push_back({result, ahead});
      } else {
        hand_out(result, results);
      }
    }
    // No other result is left to overtake them.
    if (nothing_else && results.empty())
      for (Held& held : held_) held.ahead = 0;
    release(results);
  }

  void wake() override { inner_->wake(); }
  const BlockIoProbe& probe() const override { return inner_->probe(); }

 private:
  struct Pending {
    BlockRequest request;
    BlockFault fault;
    AlignedBuffer copy;  // the changed bytes of a write
  };
  struct Held {
    BlockResult result;
    int ahead;
  };

  static void flip(std::span<std::byte> bytes, std::size_t bit) {
    bytes[bit / 8 % bytes.size()] ^= std::byte{1} << (bit % 8);
  }

  void hand_out(BlockResult result, std::vector<BlockResult>& results) {
    const Pending& pending = pending_.at(result.slot);
    if (pending.fault.delay.count() > 0) std::this_thread::sleep_for(pending.fault.delay);
    const std::span<std::byte> bytes = pending.request.bytes;
    if (result.result > 0) {
      const auto moved = std::min(static_cast<std::size_t>(result.result), pending.fault.at_most);
      if (pending.request.op == BlockOp::kRead) {
        const std::span<std::byte> rest =
            bytes.subspan(moved, static_cast<std::size_t>(result.result) - moved);
        std::ranges::fill(rest, std::byte{0xEE});
        if (pending.fault.flip) flip(bytes.first(moved), *pending.fault.flip);
      }
      result.result = static_cast<std::int64_t>(moved);
    }
    results.push_back(result);
    for (Held& held : held_) --held.ahead;
  }

  void release(std::vector<BlockResult>& results) {
    for (std::size_t i = 0; i < held_.size();) {
      if (held_[i].ahead > 0) {
        ++i;
        continue;
      }
      const BlockResult result = held_[i].result;
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
      hand_out(result, results);
      i = 0;
    }
  }

  std::unique_ptr<BlockIo> inner_;
  const BlockFaultSource source_;
  std::unordered_map<int, Pending> pending_;  // by slot
  std::deque<BlockResult> made_up_;
  std::vector<Held> held_;
  int under_way_ = 0;  // in the inner BlockIo
};

}  // namespace

BlockIoFactory faulty_block_io(BlockIoFactory inner, BlockFaultSource source) {
  return [inner = std::move(inner), source = std::move(source)](const BlockIoSetup& setup) {
    return std::make_unique<FaultyBlockIo>(inner(setup), source);
  };
}

}  // namespace strata
