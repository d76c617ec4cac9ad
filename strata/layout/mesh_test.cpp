#include "strata/layout/mesh.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace strata {
namespace {

// Different primes: a mesh that loses an axis, or takes one for another, has other numbers.
constexpr int kPrimes[] = {2, 3, 5, 7, 11};
static_assert(std::size(kPrimes) >= kAxes.size());

// Every assignment of the first primes to the axes, and the same with each axis of size 1.
std::vector<Mesh> example_meshes() {
  std::array<int, kAxes.size()> sizes{};
  std::copy_n(kPrimes, sizes.size(), sizes.begin());
  std::vector<Mesh> meshes{Mesh{}};
  do {
    const Mesh whole = [&] {
      Mesh mesh;
      for (std::size_t i = 0; i < sizes.size(); ++i) mesh[kAxes[i].id] = sizes[i];
      return mesh;
    }();
    meshes.push_back(whole);
    for (const AxisInfo& axis : kAxes) {
      meshes.push_back(whole);
      meshes.back()[axis.id] = 1;
    }
  } while (std::ranges::next_permutation(sizes).found);
  return meshes;
}

// The places of all ranks, counted like an odometer whose last wheel is the last axis of the table.
std::vector<MeshPlace> counted_places(const Mesh& mesh) {
  std::vector<MeshPlace> places{MeshPlace{}};
  while (true) {
    MeshPlace next = places.back();
    std::size_t wheel = kAxes.size();
    while (wheel > 0 && ++next[kAxes[wheel - 1].id] == mesh[kAxes[wheel - 1].id])
      next[kAxes[--wheel].id] = 0;
    if (wheel == 0) return places;
    places.push_back(next);
  }
}

bool differ_only_on(Axis axis, const MeshPlace& a, MeshPlace b) {
  b[axis] = a[axis];
  return a == b;
}

TEST(Axes, NamesAndOrderAreThoseOfRecipesAndCheckpoints) {
  std::vector<std::string> names, named_first;
  for (const AxisInfo& axis : kAxes) names.emplace_back(axis.name);
  for (const Axis axis : kModelAxesFirst) named_first.emplace_back(name_of(axis));
  EXPECT_EQ(names, (std::vector<std::string>{"pp", "dp", "cp", "tp"}));
  EXPECT_EQ(named_first, (std::vector<std::string>{"pp", "tp", "cp", "dp"}));
  EXPECT_EQ(std::set<Axis>(kModelAxesFirst.begin(), kModelAxesFirst.end()).size(), kAxes.size());
}

TEST(Axes, TextJoinsEveryAxisWithItsValue) {
  EXPECT_EQ(
      axes_text(
          {{Axis::kTensor, "d"}, {Axis::kPipeline, "a"}, {Axis::kContext, "c"}, {Axis::kData, "b"}},
          " x "),
      "pp a x dp b x cp c x tp d");
}

TEST(PerAxis, MakesOneValuePerAxisInOrder) {
  std::vector<Axis> order;
  const auto made = PerAxis<int>::made_by([&](Axis axis) {
    order.push_back(axis);
    return static_cast<int>(order.size());
  });
  EXPECT_EQ(order,
            (std::vector<Axis>{Axis::kPipeline, Axis::kData, Axis::kContext, Axis::kTensor}));
  EXPECT_EQ(made,
            (PerAxis<int>{
                {Axis::kPipeline, 1}, {Axis::kData, 2}, {Axis::kContext, 3}, {Axis::kTensor, 4}}));
}

TEST(Mesh, SizesDefaultToOne) {
  const Mesh mesh{{Axis::kData, 4}};
  EXPECT_EQ(mesh[Axis::kPipeline], 1);
  EXPECT_EQ(mesh[Axis::kData], 4);
  EXPECT_EQ(mesh[Axis::kTensor], 1);
  EXPECT_EQ(Mesh{}.size(), 1);
}

TEST(Mesh, NumbersPlacesInTheOrderOfTheTable) {
  for (const Mesh& mesh : example_meshes()) {
    SCOPED_TRACE(mesh.text());
    const std::vector<MeshPlace> places = counted_places(mesh);
    ASSERT_EQ(mesh.size(), static_cast<int>(places.size()));
    for (int rank = 0; rank < mesh.size(); ++rank) {
      EXPECT_EQ(mesh.place(rank), places[rank]) << rank;
      EXPECT_EQ(mesh.rank(places[rank]), rank);
    }
  }
}

TEST(Mesh, LineHoldsTheRanksThatDifferOnItsAxisOnly) {
  for (const Mesh& mesh : example_meshes()) {
    SCOPED_TRACE(mesh.text());
    const std::vector<MeshPlace> places = counted_places(mesh);
    for (const AxisInfo& axis : kAxes) {
      for (int rank = 0; rank < mesh.size(); ++rank) {
        std::vector<int> expected;
        for (int other = 0; other < mesh.size(); ++other) {
          if (differ_only_on(axis.id, places[rank], places[other])) expected.push_back(other);
        }
        EXPECT_EQ(mesh.line(rank, axis.id), expected) << axis.name << " of rank " << rank;
        EXPECT_EQ(static_cast<int>(expected.size()), mesh[axis.id]);
        const int step = mesh.span(axis.id) / mesh[axis.id];
        EXPECT_EQ(expected.back() - expected.front(), mesh.span(axis.id) - step);
      }
    }
  }
}

TEST(Mesh, StageHoldsAllAdjacentRanksOfOnePipelinePlace) {
  for (const Mesh& mesh : example_meshes()) {
    SCOPED_TRACE(mesh.text());
    const std::vector<MeshPlace> places = counted_places(mesh);
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const std::vector<int> stage = mesh.stage_ranks(rank);
      ASSERT_EQ(static_cast<int>(stage.size()), mesh.stage_size());
      EXPECT_EQ(stage.back() - stage.front() + 1, mesh.stage_size());
      EXPECT_EQ(std::ranges::count(stage, rank), 1);
      for (const int other : stage)
        EXPECT_EQ(places[other][Axis::kPipeline], places[rank][Axis::kPipeline]);
    }
  }
}

TEST(Mesh, RanksWithTheSameWeightsDifferInDataAndContextOnly) {
  for (const Mesh& mesh : example_meshes()) {
    SCOPED_TRACE(mesh.text());
    const std::vector<MeshPlace> places = counted_places(mesh);
    for (int rank = 0; rank < mesh.size(); ++rank) {
      std::vector<int> weights, replica;
      for (int other = 0; other < mesh.size(); ++other) {
        const MeshPlace &a = places[rank], &b = places[other];
        if (a[Axis::kPipeline] == b[Axis::kPipeline] && a[Axis::kTensor] == b[Axis::kTensor])
          weights.push_back(other);
        if (a[Axis::kData] == b[Axis::kData] && a[Axis::kContext] == b[Axis::kContext])
          replica.push_back(other);
      }
      EXPECT_EQ(mesh.weight_ranks(rank), weights);
      EXPECT_EQ(mesh.weight_ranks(), std::ssize(weights));
      EXPECT_EQ(mesh.replica_ranks(rank), replica);
    }
  }
}

TEST(Mesh, NameStatesThePlaceOnEveryAxisLargerThanOne) {
  for (const Mesh& mesh : example_meshes()) {
    std::set<std::string> names;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const std::string name = mesh.name(rank);
      names.insert(name.substr(name.find(' ', 5) + 1));
      for (const AxisInfo& axis : kAxes) {
        const std::string place = std::string(axis.name) + " " +
                                  std::to_string(mesh.place(rank)[axis.id]) + "/" +
                                  std::to_string(mesh[axis.id]);
        EXPECT_EQ(name.find(place) != std::string::npos, mesh[axis.id] > 1) << name;
      }
    }
    EXPECT_EQ(static_cast<int>(names.size()), mesh.size()) << "places are not unique";
  }
}

// Checkpoints and golden texts depend on these numbers.
TEST(Mesh, KeepsNumbersAndNamesOfEarlierVersions) {
  const Mesh mesh{{Axis::kPipeline, 2}, {Axis::kData, 3}, {Axis::kTensor, 2}};
  EXPECT_EQ(mesh.line(9, Axis::kTensor), (std::vector<int>{8, 9}));
  EXPECT_EQ(mesh.line(9, Axis::kData), (std::vector<int>{7, 9, 11}));
  EXPECT_EQ(mesh.line(9, Axis::kPipeline), (std::vector<int>{3, 9}));
  EXPECT_EQ(mesh.stage_ranks(9), (std::vector<int>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(mesh.text(), "pp 2, dp 3, cp 1, tp 2");
  const Mesh large{{Axis::kPipeline, 4}, {Axis::kData, 2}, {Axis::kTensor, 4}};
  EXPECT_EQ(large.name(14), "rank 14 (pp 1/4, tp 2/4, dp 1/2)");
  EXPECT_EQ((Mesh{{Axis::kPipeline, 2}}).name(1), "rank 1 (pp 1/2)");
  EXPECT_EQ(Mesh{}.name(0), "rank 0");
}

}  // namespace
}  // namespace strata
