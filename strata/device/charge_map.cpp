#include "strata/device/charge_map.h"

#include "strata/device/account.h"

namespace strata {

void ChargeMap::allocated(const void* address, std::int64_t bytes, MemoryAccount* account) {
  Shard& shard = shard_of(address);
  const std::lock_guard lock(shard.mutex);
  const auto [at, is_new] =
      shard.charges.try_emplace(reinterpret_cast<std::uintptr_t>(address), Charge{account, bytes});
  if (!is_new) {
    // The trace missed the free of this block: an address that is allocated again was free.
    if (at->second.account) at->second.account->credit(at->second.bytes);
    at->second = {account, bytes};
  }
  if (account) account->charge_allocated(bytes);
}

void ChargeMap::freed(const void* address) {
  Shard& shard = shard_of(address);
  const std::lock_guard lock(shard.mutex);
  const auto at = shard.charges.find(reinterpret_cast<std::uintptr_t>(address));
  if (at == shard.charges.end()) return;
  if (at->second.account) at->second.account->credit(at->second.bytes);
  shard.charges.erase(at);
}

void ChargeMap::move(const void* address, MemoryAccount& account) {
  Shard& shard = shard_of(address);
  const std::lock_guard lock(shard.mutex);
  const auto at = shard.charges.find(reinterpret_cast<std::uintptr_t>(address));
  if (at == shard.charges.end() || at->second.account == &account) return;
  account.charge(at->second.bytes);
  if (at->second.account) at->second.account->credit(at->second.bytes);
  at->second.account = &account;
}

ChargeMap::Shard& ChargeMap::shard_of(const void* address) {
  // Blocks begin at multiples of 512 bytes.
  return shards_[reinterpret_cast<std::uintptr_t>(address) / 512 % shards_.size()];
}

ChargeMap& charge_map() {
  static auto& map = *new ChargeMap;
  return map;
}

}  // namespace strata
