// Running a layer again frees many bytes, offloading its inputs few. The exchange that gains time
// is therefore one recomputed layer less for several more offloaded ones, or the reverse.
#include "strata/plan/search/activation_choice.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace strata {
namespace {

using Layers = std::vector<int>;

// relative difference below which two steps count as equally fast
constexpr double kAsFast = 1e-9;

// A second starting point is searched only for models so small that it costs few trials.
constexpr int kTrialsOfTwoBeginnings = 100;

// With up to this many members, each is tried in an exchange; with more, one of each run of equal
// members.
constexpr std::size_t kEachTried = 12;

LayerSet without(LayerSet set, int layer) {
  set.remove(layer);
  return set;
}

LayerSet with(LayerSet set, int layer) {
  set.add(layer);
  return set;
}

LayerSet every(const LayerSet& set, std::size_t step) {
  const Layers layers = set.layers();
  LayerSet some;
  for (std::size_t i = 0; i < layers.size(); i += step) some.add(layers[i]);
  return some;
}

// The layer at a level, not run again as a whole.
ActivationChoice at_level(ActivationChoice choice, int layer, Recompute level) {
  choice.recompute.whole.remove(layer);
  choice.offload.remove(layer);
  choice.recompute.levels.set(layer, level);
  return choice;
}

class Descent {
 public:
  Descent(const ActivationSearch& search, const ActivationChoice& start)
      : search_(search),
        costs_(search.costs[search.base]),
        best_(start),
        trials_(std::max(1, search.most_trials)) {
    best_seconds_ = result_of(start).seconds;
  }

  ActivationChoice operator()() {
    begin_elsewhere();
    while (trials_ > 0 && (drop() || exchange() || move())) {
    }
    return best_;
  }

 private:
  // Starts from all recomputed layers offloaded, or every second one, which leaves twice the
  // compute to overlap with.
  void begin_elsewhere() {
    for (const std::size_t step : {1, 2}) {
      if (step > 1 && search_.most_trials < kTrialsOfTwoBeginnings) return;
      ActivationChoice choice{best_.recompute, every(best_.recompute.whole, step)};
      if (search_.may_keep) {
        choice.recompute = choose_recompute(
            search_.costs, search_.base, search_.rank_of_layer, search_.device_bytes,
            [&](const RecomputeChoice& recompute) {
              return search_.trial({recompute, every(recompute.whole, step)}).ledger;
            });
        choice.offload = every(choice.recompute.whole, step);
      }
      adopt(choice);
    }
  }

  // Removes one member.
  bool drop() {
    for (const int layer : best_.offload.layers())
      if (adopt({best_.recompute, without(best_.offload, layer)})) return true;
    if (!search_.may_keep) return false;
    for (const int layer : slowest_first(best_.recompute.whole))
      if (recompute_less(layer, Recompute::kAttention)) return true;
    for (const int layer : slowest_first(best_.recompute.levels.other_layers()))
      if (recompute_less(layer, less(best_.recompute.levels.of(layer)))) return true;
    return false;
  }

  static Recompute less(Recompute level) {
    return static_cast<Recompute>(static_cast<int>(level) - 1);
  }

  // Moves a layer to a level from the base to the deepest, the fewest seconds first.
  bool recompute_less(int layer, Recompute deepest) {
    for (int l = static_cast<int>(search_.base); l <= static_cast<int>(deepest); ++l) {
      const auto level = static_cast<Recompute>(l);
      if (search_.costs.has(level) && adopt(at_level(best_, layer, level))) return true;
    }
    return false;
  }

  bool exchange() {
    if (!search_.may_keep) return false;
    for (const int layer : some_of(slowest_first(best_.recompute.whole)))
      if (keep_for_offloads(layer)) return true;
    const Layers kept = some_of(slowest_first(layers_kept()));
    for (auto layer = kept.rbegin(); layer != kept.rend(); ++layer)
      if (recompute_for_offloads(*layer)) return true;
    for (const int layer : some_of(slowest_first(best_.recompute.whole)))
      for (const int other : kept)
        if (recompute_instead(other, layer)) return true;
    return false;
  }

  // Offloads the inputs of another layer instead: the compute between two offloads overlaps with
  // them.
  bool move() {
    const Layers again = best_.recompute.whole.layers();
    for (std::size_t i = 0; i < again.size(); ++i) {
      if (!best_.offload.has(again[i])) continue;
      for (const std::size_t other : {i + 1, i - 1, i + 2, i - 2}) {
        if (other >= again.size() || best_.offload.has(again[other])) continue;
        if (adopt({best_.recompute, with(without(best_.offload, again[i]), again[other])}))
          return true;
      }
    }
    return false;
  }

  // Keeps one more layer and adds the fewest offloads that free enough memory for it: early layers
  // first, whose inputs wait longest, or evenly spread.
  bool keep_for_offloads(int layer) {
    const ActivationChoice fewer = at_level(best_, layer, search_.base);
    for (const bool spread : {false, true}) {
      Layers more, others;
      for (const int l : fewer.recompute.whole.layers()) {
        if (fewer.offload.has(l)) continue;
        (spread && more.size() > others.size() ? others : more).push_back(l);
      }
      more.insert(more.end(), others.begin(), others.end());
      const auto offloading = [&](std::size_t count) {
        ActivationChoice choice = fewer;
        for (std::size_t i = 0; i < count; ++i) choice.offload.add(more[i]);
        return choice;
      };
      if (adopt_fewest(more.size(), offloading)) return true;
    }
    return false;
  }

  // Recomputes one more layer, so that fewer offload. The last layers, which wait least, stay on
  // the device.
  bool recompute_for_offloads(int layer) {
    const Layers offload = best_.offload.layers();
    if (offload.empty()) return false;
    const auto offloading = [&](std::size_t count) {
      ActivationChoice choice = run_again(best_, layer);
      choice.offload = LayerSet(Layers(offload.begin(), offload.begin() + count));
      return choice;
    };
    return adopt_fewest(offload.size(), offloading);
  }

  bool recompute_instead(int layer, int of) {
    if (search_.rank_of_layer[layer] != search_.rank_of_layer[of]) return false;
    ActivationChoice choice =
        run_again(at_level(best_, of, best_.recompute.levels.of(layer)), layer);
    if (adopt(choice)) return true;
    if (!best_.offload.has(of)) return false;
    choice.offload.add(layer);
    return adopt(choice);
  }

  ActivationChoice run_again(ActivationChoice choice, int layer) const {
    choice.recompute.levels.set(layer, search_.base);
    choice.recompute.whole.add(layer);
    return choice;
  }

  // Bisects, as more offloads free more bytes.
  template <typename F>
  bool adopt_fewest(std::size_t most, F choice_of) {
    if (!fits(choice_of(most))) return false;
    std::size_t low = 0, high = most;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (fits(choice_of(middle))) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return adopt(choice_of(high));
  }

  Layers layers_kept() const {
    Layers kept;
    for (int l = 0; l < static_cast<int>(costs_.layers.size()); ++l) {
      const LayerCost& cost = costs_.layers[l];
      if (!best_.recompute.whole.has(l) && cost.recomputable && cost.saved_bytes > 0)
        kept.push_back(l);
    }
    return kept;
  }

  Layers slowest_first(const LayerSet& set) const { return slowest_first(set.layers()); }
  Layers slowest_first(Layers layers) const {
    std::sort(layers.begin(), layers.end(), [&](int a, int b) {
      const double left = costs_.layers[a].forward_seconds;
      const double right = costs_.layers[b].forward_seconds;
      return left != right ? left > right : a < b;
    });
    return layers;
  }

  // With many members, the first of each run of equal ones.
  Layers some_of(const Layers& layers) const {
    if (layers.size() <= kEachTried) return layers;
    Layers some;
    for (const int layer : layers)
      if (some.empty() || !are_equal(some.back(), layer)) some.push_back(layer);
    return some;
  }

  bool are_equal(int a, int b) const {
    const LayerCost &x = costs_.layers[a], &y = costs_.layers[b];
    const RecomputeLevels& levels = best_.recompute.levels;
    return x.forward_seconds == y.forward_seconds && x.saved_bytes == y.saved_bytes &&
           x.input_bytes == y.input_bytes && levels.of(a) == levels.of(b) &&
           best_.offload.has(a) == best_.offload.has(b) &&
           search_.rank_of_layer[a] == search_.rank_of_layer[b];
  }

  struct Result {
    bool fits = false;
    double seconds = 0;
  };

  // Without trials left, reports that a choice does not fit.
  Result result_of(const ActivationChoice& choice) {
    const Key key(choice.recompute.whole.layers(), choice.recompute.levels,
                  choice.offload.layers());
    if (const auto known = results_.find(key); known != results_.end()) return known->second;
    if (trials_ <= 0) return {};
    --trials_;
    const ActivationTrial trial = search_.trial(choice);
    return results_[key] = {trial.fits, trial.step_seconds};
  }

  bool fits(const ActivationChoice& choice) { return result_of(choice).fits; }

  bool adopt(const ActivationChoice& choice) {
    const auto [fits, seconds] = result_of(choice);
    if (!fits) return false;
    const bool same = std::abs(seconds - best_seconds_) <= kAsFast * best_seconds_;
    if (same ? members(choice) >= members(best_) : seconds > best_seconds_) return false;
    best_ = choice;
    best_seconds_ = seconds;
    return true;
  }

  static int members(const ActivationChoice& choice) {
    return choice.recompute.whole.size() + choice.offload.size() +
           static_cast<int>(choice.recompute.levels.other_layers().size());
  }

  using Key = std::tuple<Layers, RecomputeLevels, Layers>;

  const ActivationSearch& search_;
  const CostTable& costs_;  // at the base
  ActivationChoice best_;
  double best_seconds_ = 0;
  int trials_;
  std::map<Key, Result> results_;
};

}  // namespace

ActivationChoice choose_activations(const ActivationSearch& search, const ActivationChoice& start) {
  return Descent(search, start)();
}

}  // namespace strata
