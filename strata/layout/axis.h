/// Lists the axes of a mesh. Code that treats all axes alike loops over this table: the numbers and
/// names of ranks, recipe fields, groups, the text and JSON of plans.
///
/// A new axis is an enumerator and a row here, plus the code that gives it a meaning: its
/// collectives, its costs and the sizes that it must divide evenly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

namespace strata {

enum class Axis : std::uint8_t { kPipeline, kData, kContext, kTensor };

struct AxisInfo {
  Axis id;
  const char* name;     ///< in recipes and messages
  const char* help;     ///< one sentence: what its places divide
  const char* unit;     ///< what one place is
  const char* traffic;  ///< what its ranks exchange
  int most;             ///< places; a recipe with more has a typing error
};

/// In the order of rank numbers. The ranks of a line along the last axis are adjacent, because they
/// communicate most.
inline constexpr std::array kAxes{
    AxisInfo{Axis::kPipeline, "pp", "Ranks that the layers are cut over", "ranks",
             "transfers between stages", 4096},
    AxisInfo{Axis::kData, "dp", "Replicas, each of which trains on its part of the mini-batch",
             "replicas", "exchange between replicas", 1 << 20},
    AxisInfo{Axis::kContext, "cp", "Ranks that divide the tokens of every sample", "ranks",
             "exchange of attention", 1 << 20},
    AxisInfo{Axis::kTensor, "tp", "Ranks that divide the work inside every layer", "ranks",
             "sums inside layers", 1 << 20},
};

/// The axes that divide the model, then those that repeat it: the order in which messages name the
/// place of a rank and in which the planner searches.
inline constexpr std::array kModelAxesFirst{Axis::kPipeline, Axis::kTensor, Axis::kContext,
                                            Axis::kData};
static_assert(kModelAxesFirst.size() == kAxes.size());

constexpr std::size_t index_of(Axis axis) { return static_cast<std::size_t>(axis); }
static_assert([] {
  for (std::size_t i = 0; i < kAxes.size(); ++i) {
    if (index_of(kAxes[i].id) != i) return false;
  }
  return true;
}());

constexpr const char* name_of(Axis axis) { return kAxes[index_of(axis)].name; }  ///< "pp"

/// One value of each axis. `{{Axis::kData, 4}}` sets some and leaves the default of the others.
template <typename T>
class PerAxis {
 public:
  constexpr PerAxis() = default;
  constexpr PerAxis(std::initializer_list<std::pair<Axis, T>> values) : PerAxis() {
    for (const auto& [axis, value] : values) (*this)[axis] = value;
  }

  /// Calls `make(axis)` for each axis in the order of kAxes.
  template <typename Make>
  static PerAxis made_by(const Make& make) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return PerAxis(std::array<T, kAxes.size()>{make(kAxes[i].id)...});
    }(std::make_index_sequence<kAxes.size()>{});
  }

  constexpr T& operator[](Axis axis) { return values_[index_of(axis)]; }
  constexpr const T& operator[](Axis axis) const { return values_[index_of(axis)]; }
  friend bool operator==(const PerAxis&, const PerAxis&) = default;

 private:
  explicit PerAxis(std::array<T, kAxes.size()> values) : values_(std::move(values)) {}

  std::array<T, kAxes.size()> values_{};
};

/// Joins the axes with their values: "pp 2, dp 4, cp 1, tp 1".
std::string axes_text(const PerAxis<std::string>& values, const std::string& separator = ", ");

}  // namespace strata
