/// Remembers who pays for which block of device memory, as the trace of an allocator tells.
///
/// A block that was there before the trace is nobody's. A block that changes hands moves its charge; a free
/// credits whoever pays then, from any thread.
///
/// Threads  any; blocks are divided among locks by their address. An allocator calls it with its own lock
///          held, so it allocates no device memory and waits for nothing.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace strata {

class MemoryAccount;

class ChargeMap {
 public:
  /// Charges `account` (null: nobody) beyond its budget, if need be: the block is there.
  void allocated(const void* address, std::int64_t bytes, MemoryAccount* account);
  void freed(const void* address);
  /// Nothing happens for memory that is not ours. Throws SystemError if that breaks the budget of `account`;
  /// the charge stays where it is then.
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

/// The process's; never freed, for tensors outlive everything.
ChargeMap& charge_map();

}  // namespace strata
