/// Names the kinds of bytes on a rank's device and counts them.
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
  kPages,          ///< keys and values of served sequences
  kDraft,          ///< a draft model that guesses for the served one, with its pages
  kContext,        ///< a GPU's driver
  kWorkspaces,     ///< workspaces of a GPU's libraries
  kCommunicators,  ///< NCCL's buffers
  kPools,          ///< pools of recorded segments, beyond what is allocated at any one time
  kRounding,       ///< rounding of permanent buffers to the allocator's blocks
};
inline constexpr int kNumByteKinds = 16;
const char* name_of(ByteKind kind);

/// Whether tensors allocate it. Other kinds occupy the device but are not in its account
/// (device/account.h).
bool is_charged(ByteKind kind);

struct ByteTable {
  std::array<std::int64_t, kNumByteKinds> bytes{};
  std::int64_t& operator[](ByteKind kind) { return bytes[static_cast<int>(kind)]; }
  std::int64_t operator[](ByteKind kind) const { return bytes[static_cast<int>(kind)]; }
  std::int64_t total() const;
  std::int64_t charged() const;  ///< the part of total() that tensors allocate
};

}  // namespace strata
