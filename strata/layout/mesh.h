/// Numbers the ranks of a mesh: pipeline stages x data-parallel replicas x parts of the sequence x
/// tensor-parallel ranks.
///
/// The last axis of kAxes (layout/axis.h) is the fastest: rank = ((pp * DP + dp) * CP + cp) *
/// TP + tp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/layout/axis.h"

namespace strata {

/// The order in which ranks add gradients.
enum class Reduction : std::uint8_t {
  kOrdered,  ///< in rank order: the bits do not depend on how the ranks are connected
  kNative,   ///< the order of the device's own collective library, which is the fastest
};
const char* name_of(Reduction reduction);  ///< "ordered", "native"

/// A rank's place on each axis, from 0.
using MeshPlace = PerAxis<int>;

/// The size of each axis, at least 1.
class Mesh : public PerAxis<int> {
 public:
  constexpr Mesh() {
    for (const AxisInfo& axis : kAxes) (*this)[axis.id] = 1;
  }
  constexpr Mesh(std::initializer_list<std::pair<Axis, int>> sizes) : Mesh() {
    for (const auto& [axis, size] : sizes) (*this)[axis] = size;
  }

  int size() const;
  MeshPlace place(int rank) const;
  int rank(const MeshPlace& place) const;

  /// Ranks that differ from `rank` on one axis only, `rank` included, ascending.
  std::vector<int> line(int rank, Axis axis) const;
  /// The number of adjacent ranks that a line spans: its own axis and all faster ones.
  int span(Axis axis) const;
  /// All ranks of the stage of `rank`, ascending. They are adjacent.
  std::vector<int> stage_ranks(int rank) const;
  /// The ranks that hold the same weights as `rank`, ascending: its line along dp and cp. They add
  /// their gradients and, with ZeRO, share what they hold.
  std::vector<int> weight_ranks(int rank) const;
  int weight_ranks() const { return (*this)[Axis::kData] * (*this)[Axis::kContext]; }
  /// Among how many ranks the traffic of an axis is: that of dp among all with the same weights.
  int traffic_ranks(Axis axis) const {
    return axis == Axis::kData ? weight_ranks() : (*this)[axis];
  }
  /// The ranks that hold one copy of the model together with `rank`, ascending.
  std::vector<int> replica_ranks(int rank) const;
  int stage_size() const { return size() / (*this)[Axis::kPipeline]; }

  /// "rank 3 (pp 1/4, tp 2/4, dp 0/2)"; axes of size 1 are left out, "rank 3" if all are.
  std::string name(int rank) const;
  /// "pp 4, dp 2, cp 1, tp 4"
  std::string text(const std::string& separator = ", ") const;
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

}  // namespace strata
