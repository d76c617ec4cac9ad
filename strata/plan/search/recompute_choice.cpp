// Only a ledger decides what fits, and it walks over the whole step. So ranks are searched
// together, with one ledger for all of them, and equal layers share one trial.
#include "strata/plan/search/recompute_choice.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "strata/plan/search/recompute_steps.h"

namespace strata {
namespace {

using Layers = std::vector<int>;

// Ledgers for testing which layers of a rank took a step in vain, one layer each; more layers are
// tested by runs of equal ones.
constexpr std::size_t kMostTries = 32;

using Steps = std::vector<RecomputeStep>;

// Searches all ranks together. A rank's bytes depend on its own layers, except for the moment at
// which others receive what it sent.
class Search {
 public:
  Search(const LevelCosts& costs, Recompute base, const std::vector<int>& rank_of_layer,
         std::int64_t device_bytes, const LedgerOf& ledger_of, bool whole_layers)
      : costs_(costs[base]),
        base_(base),
        rank_of_layer_(rank_of_layer),
        device_bytes_(device_bytes),
        ledger_of_(ledger_of) {
    for (int l = 0; l < std::ssize(costs_.layers); ++l)
      steps_.push_back(recompute_steps(costs, base, l, whole_layers));
  }

  RecomputeChoice run(int num_ranks) {
    taken_.assign(steps_.size(), 0);
    shortest(num_ranks);
    const std::vector<int> chosen = taken_;
    for (int depth = most_taken(); depth > 0; --depth) take_back(depth, num_ranks);
    fits_ = peak_bytes(ledger()) <= device_bytes_;
    if (fits_) return choice();
    taken_ = chosen;
    fits_ = peak_bytes(ledger()) <= device_bytes_;
    return choice();
  }
  bool fits() const { return fits_; }  ///< the result

 private:
  // A layer takes its step with this index.
  struct Move {
    int layer;
    int step;
  };

  RecomputeChoice choice() const {
    RecomputeChoice choice{.levels = base_};
    for (int l = 0; l < std::ssize(steps_); ++l) {
      if (taken_[l] == 0) continue;
      const RecomputeStep& step = steps_[l][taken_[l] - 1];
      if (step.whole) {
        choice.whole.add(l);
      } else {
        choice.levels.set(l, step.level);
      }
    }
    return choice;
  }

  Ledger ledger() const { return ledger_of_(choice()); }

  double seconds_of(const Move& move) const {
    const Steps& steps = steps_[move.layer];
    return steps[move.step].seconds - (move.step == 0 ? 0 : steps[move.step - 1].seconds);
  }

  double freed_by(const Move& move) const {
    const Steps& steps = steps_[move.layer];
    const std::int64_t before =
        move.step == 0 ? costs_.layers[move.layer].saved_bytes : steps[move.step - 1].saved_bytes;
    return static_cast<double>(before - steps[move.step].saved_bytes);
  }

  // Per rank: all moves, the best first.
  std::vector<std::vector<Move>> best_first(int num_ranks) const {
    std::vector<std::vector<Move>> moves(num_ranks);
    for (int l = 0; l < std::ssize(steps_); ++l)
      for (int step = 0; step < std::ssize(steps_[l]); ++step)
        moves[rank_of_layer_[l]].push_back({l, step});
    for (std::vector<Move>& of_rank : moves)
      std::ranges::sort(of_rank, [&](const Move& a, const Move& b) {
        const double left = seconds_of(a) * freed_by(b), right = seconds_of(b) * freed_by(a);
        return left != right ? left < right
                             : std::pair(a.layer, a.step) < std::pair(b.layer, b.step);
      });
    return moves;
  }

  // Takes the fewest moves of each rank, in order, that make it fit, by bisection.
  void shortest(int num_ranks) {
    const auto moves = best_first(num_ranks);
    std::vector<std::size_t> low(moves.size(), 0), high, middle(moves.size());
    for (const std::vector<Move>& of_rank : moves) high.push_back(of_rank.size());
    const auto take = [&](const std::vector<std::size_t>& length) {
      std::ranges::fill(taken_, 0);
      for (std::size_t r = 0; r < moves.size(); ++r)
        for (std::size_t i = 0; i < length[r]; ++i)
          taken_[moves[r][i].layer] = std::max(taken_[moves[r][i].layer], moves[r][i].step + 1);
    };
    while (low != high) {
      for (std::size_t r = 0; r < moves.size(); ++r) middle[r] = (low[r] + high[r]) / 2;
      take(middle);
      const Ledger tried = ledger();
      for (std::size_t r = 0; r < moves.size(); ++r) {
        if (low[r] == high[r]) continue;
        (fits(tried[r]) ? high[r] : low[r]) = middle[r] + (fits(tried[r]) ? 0 : 1);
      }
    }
    take(high);
  }

  int most_taken() const { return taken_.empty() ? 0 : std::ranges::max(taken_); }

  // Takes back every unnecessary step of the layers that took `depth` of them.
  void take_back(int depth, int num_ranks) {
    std::vector<Layers> candidates(num_ranks);
    std::size_t most = 0;
    for (int l = 0; l < std::ssize(steps_); ++l)
      if (taken_[l] == depth) candidates[rank_of_layer_[l]].push_back(l);
    for (Layers& of_rank : candidates) {
      most = std::max(most, of_rank.size());
      std::ranges::sort(of_rank, [&](int a, int b) {
        const double left = seconds_of({a, depth - 1}), right = seconds_of({b, depth - 1});
        return left != right ? left > right : a > b;
      });
    }
    const auto ledger_with = [&](const std::vector<Layers>& deep) {
      for (const Layers& of_rank : candidates)
        for (const int l : of_rank) taken_[l] = depth - 1;
      for (const Layers& of_rank : deep)
        for (const int l : of_rank) taken_[l] = depth;
      return ledger();
    };
    const auto kept = most <= kMostTries ? without_each(candidates, ledger_with)
                                         : without_runs(candidates, ledger_with);
    for (const Layers& of_rank : candidates)
      for (const int l : of_rank) taken_[l] = depth - 1;
    for (const Layers& of_rank : kept)
      for (const int l : of_rank) taken_[l] = depth;
  }

  // Tries to remove every member of each rank, in order.
  template <typename F>
  std::vector<Layers> without_each(const std::vector<Layers>& candidates, F ledger_with) const {
    std::size_t most = 0;
    for (const Layers& of_rank : candidates) most = std::max(most, of_rank.size());
    std::vector<Layers> kept = candidates;
    for (std::size_t i = 0; i < most; ++i) {
      std::vector<Layers> fewer = kept;
      for (std::size_t r = 0; r < fewer.size(); ++r) {
        if (i < candidates[r].size()) std::erase(fewer[r], candidates[r][i]);
      }
      const Ledger ledger = ledger_with(fewer);
      for (std::size_t r = 0; r < fewer.size(); ++r) {
        if (fits(ledger[r])) kept[r] = fewer[r];
      }
    }
    return kept;
  }

  // Equal layers are interchangeable. For each run of them, bisects how many are unnecessary, for
  // all ranks at once. Usually none is, so zero is tried first.
  template <typename F>
  std::vector<Layers> without_runs(const std::vector<Layers>& candidates, F ledger_with) const {
    std::vector<Layers> kept = candidates;
    std::vector<Run> runs(kept.size());
    const auto tried = [&](std::size_t r) {
      const Run& run = runs[r];
      return run.gone + (run.requested ? (run.most - run.gone + 1) / 2 : 1);
    };
    const auto without = [&](std::size_t r, std::size_t count) {
      Layers layers = kept[r];
      const auto first = layers.begin() + static_cast<std::ptrdiff_t>(runs[r].begin);
      layers.erase(first, first + static_cast<std::ptrdiff_t>(count));
      return layers;
    };
    for (;;) {
      std::vector<Layers> fewer = kept;
      bool open = false;
      for (std::size_t r = 0; r < kept.size(); ++r) {
        while (runs[r].gone == runs[r].most && runs[r].end < kept[r].size())
          enter_next_run(runs[r], kept[r]);
        if (runs[r].gone == runs[r].most) continue;
        open = true;
        fewer[r] = without(r, tried(r));
      }
      if (!open) return kept;
      const Ledger ledger = ledger_with(fewer);
      for (std::size_t r = 0; r < kept.size(); ++r) {
        Run& run = runs[r];
        if (run.gone == run.most) continue;
        if (fits(ledger[r])) {
          run.gone = tried(r);
        } else {
          run.most = tried(r) - 1;
        }
        run.requested = true;
        if (run.gone != run.most) continue;
        kept[r] = without(r, run.gone);
        run.end -= run.gone;
        run.gone = run.most = 0;
      }
    }
  }

  // A run of equal layers of a rank: [begin, end) of its list, of which between `gone` and `most`
  // are unnecessary.
  struct Run {
    std::size_t begin = 0, end = 0;
    std::size_t gone = 0, most = 0;
    bool requested = false;
  };

  void enter_next_run(Run& run, const Layers& layers) const {
    run = {.begin = run.end, .end = run.end + 1};
    while (run.end < layers.size() && are_equal(layers[run.begin], layers[run.end])) ++run.end;
    run.most = run.end - run.begin;
  }

  bool are_equal(int a, int b) const {
    const LayerCost &x = costs_.layers[a], &y = costs_.layers[b];
    return x.forward_seconds == y.forward_seconds && x.saved_bytes == y.saved_bytes &&
           x.forward_transient_bytes == y.forward_transient_bytes &&
           x.backward_transient_bytes == y.backward_transient_bytes && steps_[a] == steps_[b];
  }

  bool fits(const RankLedger& rank) const { return rank.peak_bytes <= device_bytes_; }

  const CostTable& costs_;
  Recompute base_;
  const std::vector<int>& rank_of_layer_;
  std::int64_t device_bytes_;
  const LedgerOf& ledger_of_;
  std::vector<Steps> steps_;  // per layer
  std::vector<int> taken_;    // per layer: how many of its steps it takes
  bool fits_ = false;
};

}  // namespace

RecomputeChoice choose_recompute(const LevelCosts& costs, Recompute base,
                                 const std::vector<int>& rank_of_layer, std::int64_t device_bytes,
                                 const LedgerOf& ledger_of) {
  const Ledger first = ledger_of({.levels = base});
  if (peak_bytes(first) <= device_bytes) return {.levels = base};
  const int ranks = static_cast<int>(first.size());
  Search all(costs, base, rank_of_layer, device_bytes, ledger_of, /*whole_layers=*/true);
  RecomputeChoice choice = all.run(ranks);
  if (all.fits() || deepest_levels(costs, base).empty()) return choice;
  Search levels(costs, base, rank_of_layer, device_bytes, ledger_of, /*whole_layers=*/false);
  RecomputeChoice other = levels.run(ranks);
  return levels.fits() ? other : choice;
}

RecomputeChoice recompute_choice_of(const StepDecisions& decisions) {
  return {decisions.recompute, decisions.levels};
}

RecomputeChoice deepest_levels(const LevelCosts& costs, Recompute base) {
  RecomputeChoice choice{.levels = base};
  for (const Recompute level : {Recompute::kAttention, Recompute::kProducts}) {
    if (level <= base || !costs.has(level)) continue;
    for (int l = 0; l < std::ssize(costs[base].layers); ++l)
      if (costs[level].layers[l].saved_bytes < costs[base].layers[l].saved_bytes)
        choice.levels.set(l, level);
    break;
  }
  return choice;
}

LayerSet recompute_all(const CostTable& costs) {
  LayerSet layers;
  for (int l = 0; l < static_cast<int>(costs.layers.size()); ++l)
    if (costs.layers[l].recomputable) layers.add(l);
  return layers;
}

}  // namespace strata
