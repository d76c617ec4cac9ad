/// Maps each block of device memory to the account that pays for it, from an allocator's trace.
///
/// Blocks from before the trace have no account. Moving a block to another account moves its
/// charge; a free from any thread credits the current account.
///
/// Threads  any; an address selects one of several locks. The allocator calls it while holding its
///          own lock, so it allocates no device memory and waits for nothing.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace strata {

class MemoryAccount;

class ChargeMap {
 public:
  /// Charges `account` (null: none), even beyond its budget, because the block already exists.
  void allocated(const void* address, std::int64_t bytes, MemoryAccount* account);
  void freed(const void* address);
  /// Moves the block's charge to `account`; does nothing for unknown memory. Throws SystemError if
  /// this exceeds the budget of `account`; then the charge does not move.
  void move(const void* address, MemoryAccount& account);

 private:
  struct Charge {
    MemoryAccount* account;
    std::int64_t bytes;
  };
  struct Shard {
    std::mutex mutex;
    std::unordered_map<std::uintptr_t, Charge> charges;
  };

  Shard& shard_of(const void* address);

  std::array<Shard, 64> shards_;
};

/// The map of the process; never freed, because tensors may outlive it.
ChargeMap& charge_map();

}  // namespace strata
