#include "strata/plan/search/rank_balance.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "strata/plan/search/stage_estimate.h"

namespace strata {
namespace {

// The slowest rank, then how uneven ranks are, then how uneven stages are. Rounded, so that sums of
// the same numbers in another order are equal.
using Load = std::tuple<double, double, double>;

constexpr double kRounding = 1e-9;  // of the whole model's seconds

class Loads {
 public:
  Loads(const Dataflow& dataflow, const CostTable& costs, const PartitionRequest& request)
      : request_(request),
        estimate_(dataflow, costs, request.recompute, request.ranks > 1),
        unit_(kRounding * estimate_.least_seconds({0, dataflow.num_layers})) {}

  Load of(const Partition& cut) const {
    std::vector<double> ranks(request_.ranks);
    double stages = 0;
    for (int stage = 0; stage < cut.num_stages(); ++stage) {
      const double seconds = estimate_(cut.layers(stage)).seconds;
      const int rank =
          request_.rank_of_stage.empty() ? stage % request_.ranks : request_.rank_of_stage[stage];
      ranks[rank] += seconds;
      stages += seconds * seconds;
    }
    double squares = 0;
    for (const double seconds : ranks) squares += seconds * seconds;
    return {rounded(*std::ranges::max_element(ranks)), rounded(squares), rounded(stages)};
  }

 private:
  double rounded(double seconds) const {
    return unit_ > 0 ? std::nearbyint(seconds / unit_) * unit_ : seconds;
  }

  const PartitionRequest& request_;
  StageEstimator estimate_;
  double unit_;
};

}  // namespace

Partition with_even_ranks(const Dataflow& dataflow, const CostTable& costs,
                          const PartitionRequest& request, Partition cut) {
  const Loads loads(dataflow, costs, request);
  Load best = loads.of(cut);
  for (std::optional<Partition> better = cut; better;) {
    cut = *better;
    better.reset();
    for (int bound = 1; bound < cut.num_stages(); ++bound) {
      for (const int step : {-1, 1}) {
        Partition moved = cut;
        moved.bounds[bound] += step;
        if (moved.bounds[bound] <= moved.bounds[bound - 1] ||
            moved.bounds[bound] >= moved.bounds[bound + 1])
          continue;
        if (const Load load = loads.of(moved); load < best) {
          best = load;
          better = std::move(moved);
        }
      }
    }
  }
  return cut;
}

}  // namespace strata
