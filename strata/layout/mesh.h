/// Numbers the ranks of a mesh: pipeline stages x data-parallel replicas x tensor-parallel ranks.
///
/// Ranks of one tensor-parallel group are adjacent because they communicate most, then come the
/// replicas of a stage, then the stages: rank = (pp * DP + dp) * TP + tp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

/// The order in which ranks add gradients.
enum class Reduction : std::uint8_t {
  kOrdered,  ///< in rank order: the bits do not depend on how the ranks are connected
  kNative,   ///< the order of the device's own collective library, which is the fastest
};
const char* name_of(Reduction reduction);  ///< "ordered", "native"

/// A rank's place on each axis.
struct MeshPlace {
  int pp = 0;
  int dp = 0;
  int tp = 0;
  friend bool operator==(const MeshPlace&, const MeshPlace&) = default;
};

/// Sizes of the axes.
struct Mesh {
  int pp = 1;
  int dp = 1;
  int tp = 1;

  int size() const { return pp * dp * tp; }
  MeshPlace place(int rank) const { return {rank / (dp * tp), rank / tp % dp, rank % tp}; }
  int rank(const MeshPlace& place) const { return (place.pp * dp + place.dp) * tp + place.tp; }

  /// Ranks that differ from `rank` on one axis only, `rank` included, ascending.
  std::vector<int> pp_line(int rank) const;
  std::vector<int> dp_line(int rank) const;
  std::vector<int> tp_line(int rank) const;
  /// all replicas and tensor-parallel ranks of its stage
  std::vector<int> stage_ranks(int rank) const;

  /// "rank 3 (pp 1/4, tp 2/4, dp 0/2)"; axes of size 1 are left out, "rank 3" if all are.
  std::string name(int rank) const;
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

}  // namespace strata
