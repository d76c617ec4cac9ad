#include "strata/layout/mesh.h"

#include <algorithm>
#include <initializer_list>
#include <ranges>

#include "strata/base/enum_names.h"

namespace strata {

const char* name_of(Reduction reduction) {
  using enum Reduction;
  static constexpr EnumNames<Reduction> kNames{{kOrdered, "ordered"}, {kNative, "native"}};
  return kNames[reduction];
}

std::string axes_text(const PerAxis<std::string>& values, const std::string& separator) {
  std::string text;
  for (const AxisInfo& axis : kAxes)
    text += (text.empty() ? "" : separator) + axis.name + " " + values[axis.id];
  return text;
}

int Mesh::size() const {
  int size = 1;
  for (const AxisInfo& axis : kAxes) size *= (*this)[axis.id];
  return size;
}

MeshPlace Mesh::place(int rank) const {
  MeshPlace place;
  for (const AxisInfo& axis : std::views::reverse(kAxes)) {
    place[axis.id] = rank % (*this)[axis.id];
    rank /= (*this)[axis.id];
  }
  return place;
}

int Mesh::rank(const MeshPlace& place) const {
  int rank = 0;
  for (const AxisInfo& axis : kAxes) rank = rank * (*this)[axis.id] + place[axis.id];
  return rank;
}

std::vector<int> Mesh::line(int rank, Axis axis) const {
  MeshPlace at = place(rank);
  std::vector<int> line;
  for (at[axis] = 0; at[axis] < (*this)[axis]; ++at[axis]) line.push_back(this->rank(at));
  return line;
}

int Mesh::span(Axis axis) const {
  int span = 1;
  for (std::size_t i = index_of(axis); i < kAxes.size(); ++i) span *= (*this)[kAxes[i].id];
  return span;
}

namespace {

// The ranks with the place of `rank` on these axes.
std::vector<int> ranks_beside(const Mesh& mesh, int rank, std::initializer_list<Axis> axes) {
  std::vector<int> ranks;
  for (int other = 0; other < mesh.size(); ++other)
    if (std::ranges::all_of(
            axes, [&](Axis axis) { return mesh.place(other)[axis] == mesh.place(rank)[axis]; }))
      ranks.push_back(other);
  return ranks;
}

}  // namespace

std::vector<int> Mesh::stage_ranks(int rank) const {
  return ranks_beside(*this, rank, {Axis::kPipeline});
}

std::vector<int> Mesh::replica_ranks(int rank) const {
  return ranks_beside(*this, rank, {Axis::kData, Axis::kContext});
}

std::vector<int> Mesh::weight_ranks(int rank) const {
  return ranks_beside(*this, rank, {Axis::kPipeline, Axis::kTensor});
}

std::string Mesh::name(int rank) const {
  const MeshPlace at = place(rank);
  std::string places;
  for (const Axis axis : kModelAxesFirst) {
    if ((*this)[axis] == 1) continue;
    places += (places.empty() ? "" : ", ") + std::string(name_of(axis)) + " " +
              std::to_string(at[axis]) + "/" + std::to_string((*this)[axis]);
  }
  const std::string name = "rank " + std::to_string(rank);
  return places.empty() ? name : name + " (" + places + ")";
}

std::string Mesh::text(const std::string& separator) const {
  return axes_text(
      PerAxis<std::string>::made_by([&](Axis axis) { return std::to_string((*this)[axis]); }),
      separator);
}

}  // namespace strata
