/// Names and carries what one rank tells another.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace strata {

/// Identifies a message between two ranks of a group; a tag may be used again once it was taken.
struct MessageTag {
  std::int32_t kind = 0;
  std::int32_t value = 0;
  std::int32_t consumer = 0;
  std::int32_t micro_batch = 0;
  friend auto operator<=>(const MessageTag&, const MessageTag&) = default;
};

/// Where a message comes from and goes to.
struct Address {
  int from = 0;  ///< world ranks
  int to = 0;
  std::uint64_t group = 0;  ///< keeps the messages of different groups apart
  MessageTag tag;
  friend auto operator<=>(const Address&, const Address&) = default;
};

class RemoteBuffer;

struct Message {
  at::Tensor tensor;            ///< undefined: numbers only, or a remote buffer
  std::vector<double> numbers;  ///< charged to nobody; only without a tensor
  std::shared_ptr<const RemoteBuffer> remote = nullptr;  ///< still in a same-host peer's memory
};

}  // namespace strata
