#include "strata/layout/mesh.h"

#include <numeric>

#include "strata/base/enum_names.h"

namespace strata {
namespace {

std::string axis(const char* name, int place, int size) {
  return std::string(name) + " " + std::to_string(place) + "/" + std::to_string(size);
}

}  // namespace

const char* name_of(Reduction reduction) {
  using enum Reduction;
  static constexpr EnumNames<Reduction> kNames{{kOrdered, "ordered"}, {kNative, "native"}};
  return kNames[reduction];
}

std::vector<int> Mesh::pp_line(int rank) const {
  MeshPlace at = place(rank);
  std::vector<int> line;
  for (at.pp = 0; at.pp < pp; ++at.pp) line.push_back(this->rank(at));
  return line;
}

std::vector<int> Mesh::dp_line(int rank) const {
  MeshPlace at = place(rank);
  std::vector<int> line;
  for (at.dp = 0; at.dp < dp; ++at.dp) line.push_back(this->rank(at));
  return line;
}

std::vector<int> Mesh::tp_line(int rank) const {
  MeshPlace at = place(rank);
  std::vector<int> line;
  for (at.tp = 0; at.tp < tp; ++at.tp) line.push_back(this->rank(at));
  return line;
}

std::vector<int> Mesh::stage_ranks(int rank) const {
  std::vector<int> ranks(dp * tp);
  std::iota(ranks.begin(), ranks.end(), place(rank).pp * dp * tp);
  return ranks;
}

std::string Mesh::name(int rank) const {
  const MeshPlace at = place(rank);
  std::string places;
  const auto add = [&](const char* name, int place, int size) {
    if (size > 1) places += (places.empty() ? "" : ", ") + axis(name, place, size);
  };
  add("pp", at.pp, pp);
  add("tp", at.tp, tp);
  add("dp", at.dp, dp);
  const std::string name = "rank " + std::to_string(rank);
  return places.empty() ? name : name + " (" + places + ")";
}

}  // namespace strata
