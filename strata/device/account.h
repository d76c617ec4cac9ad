/// Charges every tensor's bytes to an owner, exactly, and refuses what breaks the owner's budget.
///
/// On a CPU the owner stands in the header of each block, so a free from any thread credits the right
/// account and a hand-over between ranks moves the charge with the tensor. What libraries take while they
/// multiply is charged to nobody (nn/host/products.cpp). On CUDA the trace of libtorch's allocator says which
/// block came and went (ChargeMap); the bytes are those asked for, the allocator's rounding isn't ours.
///
/// An account is of one kind of device. A thread has one of each: what a rank on a GPU makes on the host is
/// not its GPU's.
///
/// Threads  accounts are atomic; the account charged by new tensors is the calling thread's, set by
///          AccountScope (a thread without one charges nobody).
/// Cost     64 bytes and two atomic additions an allocation; on CUDA an entry of a map.
/// Errors   SystemError when an allocation would exceed the budget; nothing is allocated then. On CUDA a trace
///          comes too late to refuse: a rank that has its GPU for itself is refused by the allocator
///          (limit_device_memory), one that shares it at the end of the action (require_within_budget).
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "strata/base/errors.h"
#include "strata/device/device.h"

namespace strata {

class MemoryAccount {
 public:
  /// `field`: of the recipe, that sets the budget (0: none).
  explicit MemoryAccount(std::string name, std::int64_t budget_bytes = 0,
                         std::string field = "memory.device", DeviceKind kind = DeviceKind::kCpu)
      : name_(std::move(name)),
        budget_bytes_(budget_bytes),
        field_(std::move(field)),
        kind_(kind) {}
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  void charge(std::int64_t bytes);  ///< throws SystemError over budget
  /// Of what is allocated already, whatever the budget says.
  void charge_allocated(std::int64_t bytes);
  void require_within_budget()
      const;  ///< throws SystemError if it was broken since the last reset_peak()
  void credit(std::int64_t bytes) { current_.fetch_sub(bytes, std::memory_order_relaxed); }

  const std::string& name() const { return name_; }
  DeviceKind kind() const { return kind_; }
  std::int64_t current_bytes() const { return current_.load(std::memory_order_relaxed); }
  std::int64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_.store(current_bytes(), std::memory_order_relaxed); }

 private:
  [[noreturn]] void refuse(const std::string& got) const;
  void raise_peak(std::int64_t now);

  std::string name_;
  std::int64_t budget_bytes_;
  std::string field_;
  DeviceKind kind_;
  std::atomic<std::int64_t> current_{0};
  std::atomic<std::int64_t> peak_{0};
};

/// One that is never freed: a tensor that outlives its rank, a message that nobody took or even a static one, credits
/// its account when it goes.
MemoryAccount& immortal_account(std::string name, std::int64_t budget_bytes = 0,
                                std::string field = "memory.device",
                                DeviceKind kind = DeviceKind::kCpu);

/// Makes `account` the one that this thread's new tensors on its kind of device are charged to. Accounts
/// must outlive the tensors charged to them.
class AccountScope {
 public:
  explicit AccountScope(MemoryAccount& account) : AccountScope(&account, account.kind()) {}
  /// Null: nobody pays for those on that kind of device.
  AccountScope(MemoryAccount* account, DeviceKind kind);
  ~AccountScope();
  AccountScope(const AccountScope&) = delete;
  AccountScope& operator=(const AccountScope&) = delete;

 private:
  DeviceKind kind_;
  MemoryAccount* previous_;
};

/// Nobody pays for this thread's new tensors, wherever they are: what a process keeps for all of its ranks, or a
/// library for itself.
class UnchargedScope {
  AccountScope on_host_{nullptr, DeviceKind::kCpu}, on_device_{nullptr, DeviceKind::kCuda};
};

/// The one that the calling thread's new tensors are charged to; null: none.
MemoryAccount* current_memory_account(DeviceKind kind = DeviceKind::kCpu);

/// Moves the charge of the tensor's storage to `account`; nothing happens for memory not ours.
void charge_to(const at::Tensor& tensor, MemoryAccount& account);

/// Makes libtorch's allocations accountable, on every kind of device that the build has; idempotent, call
/// before the first tensor.
void install_accounting_allocator();

/// What libtorch's allocator of a device holds, beside what accounts were charged.
struct DeviceMemory {
  std::int64_t requested_bytes = 0;  ///< by tensors that live
  std::int64_t allocated_bytes = 0;  ///< the same in the allocator's units
  std::int64_t reserved_bytes = 0;   ///< from the driver
  std::int64_t total_bytes = 0;      ///< of the device
};

/// Zero on a CPU, which has no such allocator.
DeviceMemory device_memory(Device device);

/// From now on libtorch's allocator refuses to hold more of the device than tensors of so many bytes need, and
/// a little for pages that are partly used; for a rank that has the device for itself. 0: it holds what it likes.
/// Nothing happens on a CPU.
void limit_device_memory(Device device, std::int64_t bytes);

/// to_error() of a rank: a device that is out of memory is the system's fault, and says whose account was full.
Error device_error(const std::exception& error, const MemoryAccount& account);

}  // namespace strata
