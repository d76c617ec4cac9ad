/// Names the operations inside a layer whose results its backward computes again, and says which of
/// them each layer of a model computes again.
///
/// A level includes those before it: each saves fewer bytes and takes more seconds. A layer may
/// instead run again as a whole, from its inputs (Op::kRecompute). No level changes a bit.
///
/// Source  Korthikanti et al. 2022 (selective recompute of attention); Chen et al. 2016 (cheap
///         operations).
#pragma once

#include <compare>
#include <cstdint>
#include <iterator>
#include <vector>

namespace strata {

enum class Recompute : std::uint8_t {
  kNone,       ///< nothing: operations save all that they need
  kCheap,      ///< norms and activations
  kProducts,   ///< and the products after norms: queries, keys, values, and the inside of the MLP
  kAttention,  ///< and attention
};
inline constexpr Recompute kRecomputeLevels[] = {Recompute::kNone, Recompute::kCheap,
                                                 Recompute::kProducts, Recompute::kAttention};
inline constexpr int kNumRecomputeLevels = static_cast<int>(std::size(kRecomputeLevels));
const char* name_of(Recompute level);  ///< "none", "cheap", "products", "attention"

class RecomputeLevels {
 public:
  /// All layers have this level.
  RecomputeLevels(Recompute base = Recompute::kCheap) : base_(base) {}

  Recompute base() const { return base_; }
  Recompute of(int layer) const {
    return layer < static_cast<int>(levels_.size()) ? levels_[layer] : base_;
  }
  void set(int layer, Recompute level);
  /// Layers with another level than the base, ascending.
  std::vector<int> other_layers() const;
  friend auto operator<=>(const RecomputeLevels&, const RecomputeLevels&) = default;

 private:
  Recompute base_;
  std::vector<Recompute> levels_;  // up to the last layer with another level
};

}  // namespace strata
