/// Names what a rank's device holds bytes for, and counts them by kind.
#pragma once

#include <array>
#include <cstdint>

namespace strata {

enum class ByteKind : std::uint8_t {
  kWeights,
  kGradients,
  kStates,
  kReplicas,
  kSaved,
  kValues,
  kTransients,
  kBuffers,
  kBatch,
  kContext,        ///< of a GPU's driver
  kWorkspaces,     ///< what a GPU's libraries keep
  kCommunicators,  ///< what NCCL keeps
  kPools,          ///< of recorded segments, beyond what is held at a time
  kRounding,       ///< of the buffers that stay, to the blocks of a GPU's allocator
};
inline constexpr int kNumByteKinds = 14;
const char* name_of(ByteKind kind);

/// Whether tensors ask for it: the rest is no account's (device/account.h), but takes room on the device.
bool is_charged(ByteKind kind);

struct ByteTable {
  std::array<std::int64_t, kNumByteKinds> bytes{};
  std::int64_t& operator[](ByteKind kind) { return bytes[static_cast<int>(kind)]; }
  std::int64_t operator[](ByteKind kind) const { return bytes[static_cast<int>(kind)]; }
  std::int64_t total() const;
  std::int64_t charged() const;  ///< of it, what tensors ask for
};

}  // namespace strata
