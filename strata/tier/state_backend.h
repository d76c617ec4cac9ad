/// Moves one kind of a layer's state between the device and another place: peers, host memory, disk.
///
/// Backends stack: one that brings whole weights from peers asks nothing about where each rank's own
/// shard comes from; that is the business of the backend below it. What a backend does not move it
/// hands to the one below; the last says that it is there.
///
/// Threads  a backend belongs to one rank's thread; transfers may go on beside it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "strata/device/device.h"

namespace strata {

struct LayerState;

/// What a layer keeps on a rank.
enum class StateKind : std::uint8_t {
  kWeights,        ///< as the layer computes with them
  kWeightShard,    ///< this rank's part of them, where replicas share the rest
  kGradients,      ///< what backwards add to
  kGradientShard,  ///< this rank's part of them, complete: what the update reads
  kOptimizer,      ///< the optimizer's states and, beside 16-bit weights, its fp32 ones
};
inline constexpr int kNumStateKinds = 5;

const char* name_of(StateKind kind);

/// A set of kinds.
class StateKinds {
 public:
  constexpr StateKinds() = default;
  constexpr StateKinds(StateKind kind) : bits_(1u << static_cast<unsigned>(kind)) {}
  static constexpr StateKinds all() { return from((1u << kNumStateKinds) - 1); }
  constexpr bool contains(StateKind kind) const { return (bits_ & StateKinds(kind).bits_) != 0; }
  constexpr bool contains(StateKinds kinds) const { return (bits_ & kinds.bits_) == kinds.bits_; }
  friend constexpr StateKinds operator|(StateKinds a, StateKinds b) {
    return from(a.bits_ | b.bits_);
  }
  friend constexpr StateKinds operator-(StateKinds a, StateKinds b) {
    return from(a.bits_ & ~b.bits_);
  }
  friend constexpr bool operator==(StateKinds, StateKinds) = default;

 private:
  static constexpr StateKinds from(unsigned bits) {
    StateKinds kinds;
    kinds.bits_ = bits;
    return kinds;
  }
  unsigned bits_ = 0;
};
constexpr StateKinds operator|(StateKind a, StateKind b) { return StateKinds(a) | StateKinds(b); }

/// Bytes under way.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Does what is left for the host to do; the event is the bytes' arrival, for which the rank's
  /// stream waits. Once; throws what went wrong.
  virtual Completion finish() = 0;
};

class StateBackend {
 public:
  virtual ~StateBackend() = default;

  /// Starts to bring a kind to the device. Null: it is there.
  virtual std::unique_ptr<Transfer> fetch(LayerState& state, StateKind kind) = 0;

  /// Starts to take it away, to where fetch() finds it; nobody pins it. Null: that is done.
  virtual std::unique_ptr<Transfer> evict(LayerState& state, StateKind kind) = 0;

  /// Starts to copy a part of a shard that lives elsewhere, from element `begin` on, to the device: into `to`,
  /// which was taken in the order of the compute stream. Whoever gives that back makes the stream wait for the
  /// event first. The shard is pinned, but may still be made: the copy waits.
  virtual Completion bring_shard(LayerState& state, StateKind kind, std::int64_t begin,
                                 const at::Tensor& to);

  /// And of a gradient to where it lives, behind what the compute stream was given. `from` is kept until it has
  /// left.
  virtual Completion offload_gradients(LayerState& state, std::int64_t begin,
                                       const at::Tensor& from);

  /// A step begins: nobody reads what the last one has left in the layer's gradient shard.
  virtual void begin_gradients(LayerState&) {}

  /// What was pinned is read until `event` has happened; returns when it may be written.
  virtual Completion read_until(LayerState&, StateKind, const Completion& event) { return event; }

  /// Gives back what the device had of a gradient that has left, behind its copy: nothing follows it for a while.
  virtual void end_offload() {}

  /// What was pinned is another when `event` has happened; returns when fetch() would find it so. Nothing
  /// was pinned since.
  virtual Completion written(LayerState&, StateKind, const Completion& event) { return event; }
};

/// Everything stays on the device: the bottom of every stack that has nothing below.
class ResidentBackend final : public StateBackend {
 public:
  std::unique_ptr<Transfer> fetch(LayerState&, StateKind) override { return nullptr; }
  std::unique_ptr<Transfer> evict(LayerState&, StateKind) override { return nullptr; }
};

inline std::unique_ptr<StateBackend> resident_backend() {
  return std::make_unique<ResidentBackend>();
}

}  // namespace strata
