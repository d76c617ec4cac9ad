// Only a ledger decides what fits, and it walks over the whole step. So ranks are searched
// together, with one ledger for all of them, and equal layers share one trial.
#include "strata/plan/search/recompute_choice.h"

#include <algorithm>
#include <numeric>

namespace strata {
namespace {

using Layers = std::vector<int>;

// Ledgers for testing which layers of a rank are unnecessary, one layer each; more layers are
// tested by runs of equal ones.
constexpr std::size_t kMostTries = 32;

// Per rank: the layers that free bytes, the best first.
std::vector<Layers> rank_layers(const CostTable& costs, const std::vector<int>& rank_of_layer,
                                int num_ranks) {
  std::vector<Layers> layers(num_ranks);
  for (int l = 0; l < static_cast<int>(costs.layers.size()); ++l) {
    const LayerCost& cost = costs.layers[l];
    if (cost.recomputable && cost.saved_bytes > 0) layers[rank_of_layer[l]].push_back(l);
  }
  for (Layers& of_rank : layers) {
    std::sort(of_rank.begin(), of_rank.end(), [&](int a, int b) {
      const double left = costs.layers[a].forward_seconds * costs.layers[b].saved_bytes;
      const double right = costs.layers[b].forward_seconds * costs.layers[a].saved_bytes;
      return left != right ? left < right : a < b;
    });
  }
  return layers;
}

LayerSet set_of(const std::vector<Layers>& layers) {
  LayerSet set;
  for (const Layers& of_rank : layers) {
    for (const int l : of_rank) set.add(l);
  }
  return set;
}

// Searches all ranks together. A rank's bytes depend on its own layers, except for the moment at
// which others receive what it sent.
class Search {
 public:
  Search(const CostTable& costs, std::int64_t device_bytes, const LedgerOf& ledger_of)
      : costs_(costs), device_bytes_(device_bytes), ledger_of_(ledger_of) {}

  // The shortest prefix of each rank's layers that fits, by bisection.
  std::vector<Layers> shortest(const std::vector<Layers>& layers) const {
    std::vector<std::size_t> low(layers.size(), 0);
    std::vector<std::size_t> high;
    for (const Layers& of_rank : layers) high.push_back(of_rank.size());
    std::vector<Layers> beginning(layers.size());
    const auto cut = [&](const std::vector<std::size_t>& length) {
      for (std::size_t r = 0; r < layers.size(); ++r) {
        beginning[r].assign(layers[r].begin(), layers[r].begin() + length[r]);
      }
      return beginning;
    };
    while (low != high) {
      std::vector<std::size_t> middle(layers.size());
      for (std::size_t r = 0; r < layers.size(); ++r) middle[r] = (low[r] + high[r]) / 2;
      const Ledger ledger = ledger_with(cut(middle));
      for (std::size_t r = 0; r < layers.size(); ++r) {
        if (low[r] == high[r]) continue;
        (fits(ledger[r]) ? high[r] : low[r]) = middle[r] + (fits(ledger[r]) ? 0 : 1);
      }
    }
    return cut(high);
  }

  // Removes every unnecessary member.
  std::vector<Layers> without_surplus(const std::vector<Layers>& chosen) const {
    std::vector<Layers> candidates = chosen;
    std::size_t most = 0;
    for (Layers& of_rank : candidates) {
      most = std::max(most, of_rank.size());
      std::sort(of_rank.begin(), of_rank.end(), [&](int a, int b) {
        const double left = costs_.layers[a].forward_seconds;
        const double right = costs_.layers[b].forward_seconds;
        return left != right ? left > right : a > b;
      });
    }
    return most <= kMostTries ? without_each(candidates) : without_runs(candidates);
  }

  bool all_fit(const std::vector<Layers>& layers) const {
    return peak_bytes(ledger_with(layers)) <= device_bytes_;
  }

 private:
  // Tries to remove every member of each rank, in order.
  std::vector<Layers> without_each(const std::vector<Layers>& candidates) const {
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
  std::vector<Layers> without_runs(const std::vector<Layers>& candidates) const {
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
           x.backward_transient_bytes == y.backward_transient_bytes;
  }

  bool fits(const RankLedger& rank) const { return rank.peak_bytes <= device_bytes_; }
  Ledger ledger_with(const std::vector<Layers>& layers) const { return ledger_of_(set_of(layers)); }

  const CostTable& costs_;
  std::int64_t device_bytes_;
  const LedgerOf& ledger_of_;
};

}  // namespace

LayerSet choose_recompute(const CostTable& costs, const std::vector<int>& rank_of_layer,
                          std::int64_t device_bytes, const LedgerOf& ledger_of) {
  const Ledger first = ledger_of({});
  if (peak_bytes(first) <= device_bytes) return {};

  const Search search(costs, device_bytes, ledger_of);
  const auto chosen =
      search.shortest(rank_layers(costs, rank_of_layer, static_cast<int>(first.size())));
  const auto fewer = search.without_surplus(chosen);
  return set_of(search.all_fit(fewer) ? fewer : chosen);
}

LayerSet recompute_all(const CostTable& costs) {
  LayerSet layers;
  for (int l = 0; l < static_cast<int>(costs.layers.size()); ++l)
    if (costs.layers[l].recomputable) layers.add(l);
  return layers;
}

}  // namespace strata
