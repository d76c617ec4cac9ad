#include "strata/plan/ledger/byte_kinds.h"

#include <numeric>

namespace strata {

const char* name_of(ByteKind kind) {
  constexpr const char* kNames[kNumByteKinds] = {
      "weights", "gradients", "states",  "replicas",   "saved", "values", "transients",
      "buffers", "batch",     "context", "workspaces", "NCCL",  "pools",  "rounding"};
  return kNames[static_cast<int>(kind)];
}

bool is_charged(ByteKind kind) {
  using enum ByteKind;
  return kind != kContext && kind != kCommunicators && kind != kPools && kind != kRounding;
}

std::int64_t ByteTable::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::int64_t ByteTable::charged() const {
  std::int64_t charged = 0;
  for (int kind = 0; kind < kNumByteKinds; ++kind)
    if (is_charged(static_cast<ByteKind>(kind))) charged += bytes[kind];
  return charged;
}

}  // namespace strata
