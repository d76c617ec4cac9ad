/// Joins ranks: point-to-point, barrier, ordered all-reduce. A value passed in, never a global.
///
/// A group of one is the identity: collectives return at once, send and receive are bugs.
///
/// Threads  one Group object belongs to one rank; different ranks' objects are used concurrently.
/// Errors   Cancelled when another rank failed: the first error is the one that is reported.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace strata {

/// Identifies a message between two ranks; each tag is sent and received once a step.
struct MessageTag {
  std::int32_t kind = 0;
  std::int32_t value = 0;
  std::int32_t consumer = 0;
  std::int32_t micro_batch = 0;
  friend auto operator<=>(const MessageTag&, const MessageTag&) = default;
};

class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Hands a tensor to `peer`; never waits. Ranks of one process share the storage: the sender must
  /// not write to it again. Bytes stay charged to the sender until the receiver takes them.
  virtual void send(int peer, const MessageTag& tag, at::Tensor tensor) = 0;

  /// Waits for the message and charges its bytes to this rank's account.
  virtual at::Tensor receive(int peer, const MessageTag& tag) = 0;

  virtual void barrier() = 0;

  /// Sums over ranks in rank order: the same bits on every rank and for any timing.
  virtual void all_reduce(std::span<double> values) = 0;
};

/// A group of one.
std::unique_ptr<Group> single_rank();

}  // namespace strata
