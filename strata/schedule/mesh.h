/// Numbers the ranks of a mesh: pipeline stages x data-parallel replicas x tensor-parallel ranks.
///
/// Ranks of one tensor-parallel group are neighbours (they talk most), then the replicas of a
/// stage, then the stages: rank = (pp * DP + dp) * TP + tp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

/// In which order ranks add.
enum class Reduction : std::uint8_t {
  kOrdered,  ///< that of ranks: the bits don't depend on how they are connected
  kNative,   ///< whatever the devices' own library is fastest with, where ranks need one
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

  /// Ranks that differ from `rank` along one axis only, itself included, ascending.
  std::vector<int> pp_line(int rank) const;
  std::vector<int> dp_line(int rank) const;
  std::vector<int> tp_line(int rank) const;
  std::vector<int> stage_ranks(int rank) const;  ///< all replicas and slices of its stage

  /// "rank 3 (pp 1/4, tp 2/4, dp 0/2)"; axes of size 1 are left out, "rank 3" if all are.
  std::string name(int rank) const;
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

}  // namespace strata
