/// Charges every tensor's bytes exactly to an account and refuses allocations beyond its budget.
///
/// On a CPU each block's header holds its account, so a free from any thread credits the right
/// account, and a tensor that moves to another rank moves its charge. Scratch memory of libraries
/// during products is not charged (nn/host/products.cpp). On CUDA the trace of libtorch's allocator
/// reports allocations and frees (ChargeMap); bytes are those requested, without the allocator's
/// rounding.
///
/// An account belongs to one kind of device. A thread has one of each: host memory that a rank on a
/// GPU allocates is not charged to its GPU's account.
///
/// Threads  accounts are atomic. AccountScope sets the account that the calling thread's new
///          tensors are charged to; without one they are not charged.
/// Cost     64 bytes and two atomic additions per allocation; on CUDA an entry of a map.
/// Errors   SystemError when an allocation would exceed the budget; nothing is allocated then. On
///          CUDA the trace reports too late to refuse: if a rank has its GPU to itself, the
///          allocator refuses (limit_device_memory); on a shared GPU the end of the action throws
///          (require_within_budget).
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
  /// `field`: the field of the recipe that sets the budget (0: none).
  explicit MemoryAccount(std::string name, std::int64_t budget_bytes = 0,
                         std::string field = "memory.device", DeviceKind kind = DeviceKind::kCpu)
      : name_(std::move(name)),
        budget_bytes_(budget_bytes),
        field_(std::move(field)),
        kind_(kind) {}
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  void charge(std::int64_t bytes);  ///< throws SystemError over budget
  /// Charges bytes that are already allocated, whatever the budget.
  void charge_allocated(std::int64_t bytes);
  void require_within_budget()
      const;  ///< throws SystemError if the peak exceeded the budget since the last reset_peak()
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

/// Makes an account that is never freed: tensors that outlive their rank, unreceived messages and
/// static tensors still credit it when they are freed.
MemoryAccount& immortal_account(std::string name, std::int64_t budget_bytes = 0,
                                std::string field = "memory.device",
                                DeviceKind kind = DeviceKind::kCpu);

/// Charges this thread's new tensors on the account's kind of device to `account`. Accounts must
/// outlive the tensors charged to them.
class AccountScope {
 public:
  explicit AccountScope(MemoryAccount& account) : AccountScope(&account, account.kind()) {}
  /// With null, new tensors on that kind of device are not charged.
  AccountScope(MemoryAccount* account, DeviceKind kind);
  ~AccountScope();
  AccountScope(const AccountScope&) = delete;
  AccountScope& operator=(const AccountScope&) = delete;

 private:
  DeviceKind kind_;
  MemoryAccount* previous_;
};

/// Leaves this thread's new tensors on all devices uncharged: memory that a process keeps for all
/// of its ranks, or a library for itself.
class UnchargedScope {
  AccountScope on_host_{nullptr, DeviceKind::kCpu}, on_device_{nullptr, DeviceKind::kCuda};
};

/// Returns the account that the calling thread's new tensors are charged to; null if none.
MemoryAccount* current_memory_account(DeviceKind kind = DeviceKind::kCpu);

/// Moves the charge of the tensor's storage to `account`; does nothing for foreign memory.
void charge_to(const at::Tensor& tensor, MemoryAccount& account);

/// Installs accounting for libtorch's allocations on every kind of device of the build. Idempotent;
/// call it before the first tensor.
void install_accounting_allocator();

/// Bytes that libtorch's allocator of a device holds, in addition to the charges of accounts.
struct DeviceMemory {
  std::int64_t requested_bytes = 0;  ///< by living tensors
  std::int64_t allocated_bytes = 0;  ///< the same in the allocator's units
  std::int64_t reserved_bytes = 0;   ///< from the driver
  std::int64_t total_bytes = 0;      ///< of the device
};

/// Returns zeros on a CPU, which has no such allocator.
DeviceMemory device_memory(Device device);

/// Limits the memory that libtorch's allocator holds of a device to tensors of `bytes`, plus a
/// little room for partly used pages; for a rank that has the device to itself. 0 means no limit.
/// Does nothing on a CPU.
void limit_device_memory(Device device, std::int64_t bytes);

/// Like to_error(), for a rank: a device that is out of memory is a SystemError that names the full
/// account.
Error device_error(const std::exception& error, const MemoryAccount& account);

}  // namespace strata
