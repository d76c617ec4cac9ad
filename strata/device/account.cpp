// Every block begins with a header. The pointer after the header is both data pointer and context,
// because oneDNN's products allocate raw memory (c10::Allocator::raw_allocate), which must be both.
#include "strata/device/account.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "strata/base/units.h"
#include "strata/device/block_malloc.h"
#include "strata/device/charge_map.h"
#include "strata/device/cuda_memory.h"

namespace strata {
namespace {

thread_local MemoryAccount* current_accounts[2] = {};  // by DeviceKind

// Precedes every block and is as long as the block's alignment, so that the data stays aligned. The
// account is atomic: two ranks may charge a value at the same time.
struct alignas(c10::gAlignment) BlockHeader {
  std::atomic<MemoryAccount*> account;
  std::int64_t bytes;
  void (*release)(void* block, std::size_t bytes);
};
static_assert(sizeof(BlockHeader) == c10::gAlignment);

BlockHeader* header_of(void* data) { return static_cast<BlockHeader*>(data) - 1; }

void free_block(void* data) {
  if (!data) return;
  BlockHeader* header = header_of(data);
  if (MemoryAccount* account = header->account.load(std::memory_order_acquire))
    account->credit(header->bytes);
  const auto bytes = static_cast<std::size_t>(header->bytes);
  header->release(header, bytes + sizeof(BlockHeader));
}

class AccountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &free_block, cpu};
    const auto count = static_cast<std::int64_t>(bytes);
    MemoryAccount* account = current_memory_account();
    if (account) account->charge(count);
    Block block;
    try {
      block = allocate_block(bytes + sizeof(BlockHeader));
    } catch (const std::exception& error) {
      if (account) account->credit(count);
      throw SystemError({.operation = "device.allocate",
                         .where = account ? account->name() : "",
                         .what = "the machine is out of memory",
                         .got = error.what(),
                         .fix = "set memory.device so that a plan is made for what is there"});
    }
    void* data = new (block.data) BlockHeader{account, count, block.release} + 1;
    return {data, data, &free_block, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

}  // namespace

MemoryAccount& immortal_account(std::string name, std::int64_t budget_bytes, std::string field,
                                DeviceKind kind) {
  static std::mutex mutex;
  static auto& accounts = *new std::vector<std::unique_ptr<MemoryAccount>>;
  const std::lock_guard lock(mutex);
  return *accounts.emplace_back(
      std::make_unique<MemoryAccount>(std::move(name), budget_bytes, std::move(field), kind));
}

void MemoryAccount::charge(std::int64_t bytes) {
  const std::int64_t now = current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (budget_bytes_ > 0 && now > budget_bytes_) {
    credit(bytes);
    refuse(format_bytes(now - bytes) + " held, " + format_bytes(bytes) + " requested");
  }
  raise_peak(now);
}

void MemoryAccount::charge_allocated(std::int64_t bytes) {
  raise_peak(current_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

void MemoryAccount::require_within_budget() const {
  if (budget_bytes_ > 0 && peak_bytes() > budget_bytes_)
    refuse(format_bytes(peak_bytes()) + " held");
}

void MemoryAccount::refuse(const std::string& got) const {
  throw SystemError({.operation = "device.allocate",
                     .where = name_,
                     .what = "the memory budget does not hold one more tensor",
                     .expected = "at most " + format_bytes(budget_bytes_),
                     .got = got,
                     .fix = "raise " + field_ +
                            (field_ == "memory.device" ? " or set memory.recompute to auto" : "")});
}

void MemoryAccount::raise_peak(std::int64_t now) {
  std::int64_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < now && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

AccountScope::AccountScope(MemoryAccount* account, DeviceKind kind) : kind_(kind) {
  STRATA_CHECK(!account || account->kind() == kind, "device.account_scope");
  previous_ = std::exchange(current_accounts[static_cast<int>(kind)], account);
}

AccountScope::~AccountScope() { current_accounts[static_cast<int>(kind_)] = previous_; }

MemoryAccount* current_memory_account(DeviceKind kind) {
  return current_accounts[static_cast<int>(kind)];
}

void charge_to(const at::Tensor& tensor, MemoryAccount& account) {
  const c10::DataPtr& data = tensor.storage().data_ptr();
  if (data.device().is_cuda()) {
    charge_map().move(data.get(), account);
    return;
  }
  if (data.get_deleter() != &free_block || !data.get_context()) return;
  BlockHeader* header = header_of(data.get_context());
  if (header->account.load(std::memory_order_acquire) == &account) return;
  const std::int64_t bytes = header->bytes;
  account.charge(bytes);
  // The last access to the header: afterwards the new owner may free the block.
  if (MemoryAccount* previous = header->account.exchange(&account, std::memory_order_acq_rel))
    previous->credit(bytes);
}

void install_accounting_allocator() {
  static AccountingAllocator allocator;
  static const bool installed = [] {
    c10::SetCPUAllocator(&allocator, /*priority=*/100);
    if (cuda_backend().count() > 0) trace_cuda_memory(charge_map());
    return true;
  }();
  (void)installed;
}

DeviceMemory device_memory(Device device) {
  return device.kind == DeviceKind::kCuda ? cuda_memory(device.index) : DeviceMemory{};
}

void limit_device_memory(Device device, std::int64_t bytes) {
  if (device.kind == DeviceKind::kCuda) limit_cuda_memory(device.index, bytes);
}

Error device_error(const std::exception& error, const MemoryAccount& account) {
  const auto* full = dynamic_cast<const c10::OutOfMemoryError*>(&error);
  if (!full) return to_error(error);
  return SystemError(
      {.operation = "device.allocate",
       .where = account.name(),
       .what = "the device is out of memory",
       .got = format_bytes(account.current_bytes()) + " held; " + full->what_without_backtrace(),
       .fix = "set memory.device so that a plan is made for what is there"});
}

}  // namespace strata
