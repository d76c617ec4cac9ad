/// Charges every tensor's bytes to an owner, exactly, and refuses what breaks the owner's budget.
///
/// The owner stands in the header of each block, so a free from any thread credits the right
/// account and a hand-over between ranks moves the charge with the tensor. Raw memory, which
/// oneDNN's products ask for, is charged like a tensor.
///
/// Threads  accounts are atomic; the account charged by new tensors is the calling thread's, set by
///          AccountScope (a thread without one charges nobody).
/// Cost     64 bytes and two atomic additions an allocation.
/// Errors   SystemError when an allocation would exceed the budget; nothing is allocated then.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace strata {

class MemoryAccount {
 public:
  /// `field`: of the recipe, that sets the budget (0: none).
  explicit MemoryAccount(std::string name, std::int64_t budget_bytes = 0,
                         std::string field = "memory.device")
      : name_(std::move(name)), budget_bytes_(budget_bytes), field_(std::move(field)) {}
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  void charge(std::int64_t bytes);  ///< throws SystemError over budget
  void credit(std::int64_t bytes) { current_.fetch_sub(bytes, std::memory_order_relaxed); }

  const std::string& name() const { return name_; }
  std::int64_t current_bytes() const { return current_.load(std::memory_order_relaxed); }
  std::int64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_.store(current_bytes(), std::memory_order_relaxed); }

 private:
  std::string name_;
  std::int64_t budget_bytes_;
  std::string field_;
  std::atomic<std::int64_t> current_{0};
  std::atomic<std::int64_t> peak_{0};
};

/// Makes `account` the one that this thread's new tensors are charged to. Accounts must outlive the
/// tensors charged to them.
class AccountScope {
 public:
  explicit AccountScope(MemoryAccount& account) : AccountScope(&account) {}
  explicit AccountScope(MemoryAccount* account);  ///< null: nobody
  ~AccountScope();
  AccountScope(const AccountScope&) = delete;
  AccountScope& operator=(const AccountScope&) = delete;

 private:
  MemoryAccount* previous_;
};

/// The one that the calling thread's new tensors are charged to; null: none.
MemoryAccount* current_memory_account();

/// Moves the charge of the tensor's storage to `account`; nothing happens for memory not ours.
void charge_to(const at::Tensor& tensor, MemoryAccount& account);

/// Makes libtorch's CPU allocations accountable; idempotent, call before the first tensor.
void install_accounting_allocator();

/// From now on the process gives blocks of a MiB or more back to the system when they are freed. Weights
/// that come and go otherwise leave holes between activations that only smaller blocks fill, and the
/// process grows to the size of the whole model whatever its accounts say. Costs the pages' faults of
/// every such block.
void return_large_blocks();

}  // namespace strata
