/// Moves one kind of a layer's state to where the rank uses it, and away from there.
///
/// A layer's placement decides once, when the store inserts the layer, which backend moves which
/// kind (Home in layer_state.h). Two backends call another one for bytes that they copy:
/// PeerBackend calls HostBackend, and HostBackend calls DiskResidency.
///
/// Threads  a backend belongs to one rank's thread; transfers run in parallel with it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "strata/device/device.h"

namespace strata {

struct LayerState;

/// What a layer keeps on a rank.
enum class StateKind : std::uint8_t {
  kWeights,        ///< as the layer computes with them
  kWeightShard,    ///< the part of them that this rank updates
  kGradients,      ///< what backwards add to
  kGradientShard,  ///< this rank's part of them, complete: what the update reads
  kOptimizer,      ///< the optimizer's states and, with 16-bit weights, the fp32 weights
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

/// Bytes in transit.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Does the host's share of the work that is left, and returns the completion of the arrival.
  /// Call it once. Throws the error of the transfer.
  virtual Completion finish() = 0;
};

/// A transfer that leaves no work to the host.
class Arrival final : public Transfer {
 public:
  explicit Arrival(Completion arrival) : arrival_(std::move(arrival)) {}
  Completion finish() override { return std::move(arrival_); }

 private:
  Completion arrival_;
};

class StateBackend {
 public:
  virtual ~StateBackend() = default;

  /// Starts to bring a kind to where it is used. Null: it is there.
  virtual std::unique_ptr<Transfer> fetch(LayerState& state, StateKind kind) = 0;

  /// Starts to move an unpinned kind to where fetch() finds it. Null: it is there.
  virtual std::unique_ptr<Transfer> evict(LayerState& state, StateKind kind) = 0;
};

/// Keeps everything on the device.
class ResidentBackend final : public StateBackend {
 public:
  std::unique_ptr<Transfer> fetch(LayerState&, StateKind) override { return nullptr; }
  std::unique_ptr<Transfer> evict(LayerState&, StateKind) override { return nullptr; }
};

inline std::unique_ptr<StateBackend> resident_backend() {
  return std::make_unique<ResidentBackend>();
}

}  // namespace strata
