// A stage costs at least the sum of its layers, and that sum grows with the stage. This bounds how
// far the first and the last stages reach, so each boundary has a window of positions, some as wide
// as the number of stages. The dynamic program runs inside the windows and is still exact.
#include "strata/plan/search/partition.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "strata/base/errors.h"
#include "strata/plan/search/stage_estimate.h"

namespace strata {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Stages whose seconds differ by less are equally fast: rounding of the same sums in another order.
constexpr double kRounding = 1 + 1e-9;
// Stages that one search may evaluate: about a second.
constexpr std::int64_t kMostStages = 20'000'000;
constexpr double kGreedyPrecision = 1e-6;
constexpr int kMostDoublings = 40;

double larger(double a, double b) { return std::max(a, b); }
double sum(double a, double b) { return a + b; }

struct Cut {
  double cost = kNever;
  Partition partition = {};
};

// The positions that a search tries for each boundary between stages. Stages that cost at least the
// sum of their layers reach no further from either end of the model.
class Windows {
 public:
  // possible(stage, layers): false only if no stage at this position can have these layers or a
  // superset.
  template <typename Possible>
  Windows(const std::vector<int>& places, int num_stages, const Possible& possible)
      : first_(num_stages + 1, 0), last_(num_stages + 1, 0) {
    const int last_place = static_cast<int>(places.size()) - 1;
    for (int stage = 0; stage < num_stages; ++stage) {
      int end = last_[stage];
      const int most = last_place - (num_stages - stage - 1);
      while (end < most && possible(stage, {places[last_[stage]], places[end + 1]})) ++end;
      last_[stage + 1] = end;
    }
    first_[num_stages] = last_place;
    for (int stage = num_stages; stage-- > 0;) {
      int begin = first_[stage + 1];
      while (begin > stage && possible(stage, {places[begin - 1], places[first_[stage + 1]]})) {
        --begin;
      }
      first_[stage] = begin;
    }
    // Per stage and end: the first begin that is possible; it grows with the end.
    begins_.resize(num_stages);
    for (int stage = 0; stage < num_stages; ++stage) {
      int begin = first_[stage];
      for (int end = first_[stage + 1]; end <= last_[stage + 1]; ++end) {
        while (begin < end && !possible(stage, {places[begin], places[end]})) ++begin;
        begins_[stage].push_back(begin);
        stages_ += std::max(0, std::min(end, last_[stage] + 1) - begin);
      }
    }
  }

  int first(int boundary) const { return first_[boundary]; }
  int last(int boundary) const { return last_[boundary]; }
  int first_begin(int stage, int end) const { return begins_[stage][end - first_[stage + 1]]; }
  std::int64_t stages() const { return stages_; }  // stages that a search evaluates

 private:
  std::vector<int> first_, last_;  // per boundary: indices of positions
  std::vector<std::vector<int>> begins_;
  std::int64_t stages_ = 0;
};

// The cut at these positions with the smallest combined cost; among equal ones that with the
// earliest boundaries, the last boundary first.
template <typename Measure>
Cut cheapest_cut(const std::vector<int>& places, int num_stages, const Windows& windows,
                 const Measure& measure, double (*combine)(double, double)) {
  struct Best {
    double cost = kNever;
    int from = 0;
  };
  std::vector<std::vector<Best>> best(num_stages + 1);
  best[0] = {{.cost = 0}};
  for (int stage = 0; stage < num_stages; ++stage) {
    const int first_end = windows.first(stage + 1), first_begin = windows.first(stage);
    best[stage + 1].resize(std::max(0, windows.last(stage + 1) - first_end + 1));
    for (int end = first_end; end <= windows.last(stage + 1); ++end) {
      Best& here = best[stage + 1][end - first_end];
      const int last_begin = std::min(end - 1, windows.last(stage));
      for (int begin = windows.first_begin(stage, end); begin <= last_begin; ++begin) {
        const double before = best[stage][begin - first_begin].cost;
        if (before == kNever) continue;
        const double cost = combine(before, measure(stage, {places[begin], places[end]}));
        if (cost < here.cost) here = {cost, begin};
      }
    }
  }
  if (best[num_stages].empty()) return {};
  Cut cut{.cost = best[num_stages].back().cost};
  if (cut.cost == kNever) return cut;
  cut.partition.bounds.assign(num_stages + 1, places.back());
  int place = static_cast<int>(places.size()) - 1;
  for (int stage = num_stages; stage > 0; --stage) {
    place = best[stage][place - windows.first(stage)].from;
    cut.partition.bounds[stage - 1] = places[place];
  }
  return cut;
}

class Partitioner {
 public:
  Partitioner(const Dataflow& dataflow, const CostTable& costs, const PartitionRequest& request)
      : request_(request),
        num_layers_(dataflow.num_layers),
        num_stages_(request.ranks * request.virtual_stages),
        batch_bytes_(costs.batch_bytes),
        estimate_(dataflow, costs, request.recompute, request.ranks > 1) {}

  // Three searches, each among the winners of the previous one, so that ties are broken exactly.
  std::optional<Partition> best(bool capped) const {
    const Search fastest = find_fastest(capped);
    if (fastest.cut.cost == kNever) return std::nullopt;
    const Windows& windows = fastest.windows;
    const double seconds = fastest.cut.cost * kRounding;
    const auto memory = [&](int stage, LayerRange layers) {
      const StageEstimate estimate = estimate_(layers);
      if (!fits(stage, estimate, capped) || estimate.seconds > seconds) return kNever;
      return static_cast<double>(stage_bytes(stage, estimate));
    };
    const Cut smallest = cheapest_cut(fastest.places, num_stages_, windows, memory, larger);
    const auto boundary = [&](int stage, LayerRange layers) {
      if (memory(stage, layers) > smallest.cost) return kNever;
      return static_cast<double>(estimate_(layers).boundary_bytes);
    };
    return cheapest_cut(fastest.places, num_stages_, windows, boundary, sum).partition;
  }

  std::vector<std::int64_t> rank_bytes(const Partition& partition) const {
    std::vector<std::int64_t> bytes(request_.ranks, batch_bytes_);
    std::vector<std::int64_t> transient(request_.ranks);
    for (int stage = 0; stage < partition.num_stages(); ++stage) {
      const int rank = rank_of(stage);
      const StageEstimate estimate = estimate_(partition.layers(stage));
      bytes[rank] += kept_bytes(stage, estimate.fixed_bytes, estimate.activation_bytes);
      transient[rank] = std::max(transient[rank], estimate.transient_bytes);
    }
    for (int rank = 0; rank < request_.ranks; ++rank) bytes[rank] += transient[rank];
    return bytes;
  }

 private:
  struct Search {
    std::vector<int> places;
    Windows windows;
    Cut cut;
  };

  // A limit on seconds defines the windows. The best cut within the limit is the best of all; a cut
  // beyond it is a better limit; without any cut the limit is raised.
  Search find_fastest(bool capped) const {
    const double all = estimate_.least_seconds({0, num_layers_});
    for (double limit = greedy_seconds(capped);;) {
      Search search = fastest_within(limit * kRounding, capped);
      const double found = search.cut.cost;
      if (found <= limit * kRounding) return search;
      if (found == kNever && limit >= all) return search;
      limit = found == kNever ? 2 * limit : found;
    }
  }

  // Fills stage after stage up to a limit and bisects the smallest limit that works. This limit
  // belongs to a cut, so the fastest cut is within it. Without such a cut: the mean of the stages.
  double greedy_seconds(bool capped) const {
    double low = estimate_.least_seconds({0, num_layers_}) / num_stages_;
    double high = low;
    const double mean = low;
    int doublings = 0;
    while (!fills(high, capped)) {
      if (++doublings > kMostDoublings) return mean;
      high *= 2;
    }
    while (high - low > kGreedyPrecision * high) {
      const double middle = (low + high) / 2;
      (fills(middle, capped) ? high : low) = middle;
    }
    return high;
  }

  bool fills(double seconds, bool capped) const {
    int begin = 0;
    for (int stage = 0; stage < num_stages_; ++stage) {
      const auto ok = [&](int end) {
        const StageEstimate estimate = estimate_({begin, end});
        return estimate.seconds <= seconds && fits(stage, estimate, capped);
      };
      const int most = num_layers_ - (num_stages_ - stage - 1);
      if (!ok(begin + 1)) return false;
      int end = begin + 1;
      for (int step = most - end; step > 0; step /= 2) {
        while (end + step <= most && ok(end + step)) end += step;
      }
      begin = end;
    }
    return begin == num_layers_;
  }

  Search fastest_within(double seconds, bool capped) const {
    const auto possible = [&](int stage, LayerRange layers) {
      return estimate_.least_seconds(layers) <= seconds &&
             (!capped ||
              kept_bytes(stage, estimate_.least_fixed_bytes(layers),
                         estimate_.least_activation_bytes(layers)) <= budget_bytes(stage));
    };
    std::vector<int> places = every(1);
    Windows windows(places, num_stages_, possible);
    // Positions are skipped only if a model is so uneven and so long that windows do not help.
    for (int step = 2; windows.stages() > kMostStages && num_layers_ / step >= 4 * num_stages_;
         step *= 2) {
      places = every(step);
      windows = Windows(places, num_stages_, possible);
    }
    const auto measure = [&](int stage, LayerRange layers) {
      const StageEstimate estimate = estimate_(layers);
      return fits(stage, estimate, capped) ? estimate.seconds : kNever;
    };
    Cut cut = cheapest_cut(places, num_stages_, windows, measure, larger);
    return {std::move(places), std::move(windows), std::move(cut)};
  }

  // The begin of every `step`-th layer, and the end.
  std::vector<int> every(int step) const {
    std::vector<int> places;
    for (int l = 0; l < num_layers_; l += step) places.push_back(l);
    places.push_back(num_layers_);
    return places;
  }

  int rank_of(int stage) const {
    return request_.rank_of_stage.empty() ? stage % request_.ranks : request_.rank_of_stage[stage];
  }

  // In-flight activations of a rank are spread evenly over its stages.
  std::int64_t kept_bytes(int stage, std::int64_t fixed, std::int64_t activation) const {
    const double in_flight =
        request_.in_flight.empty()
            ? 1.0
            : static_cast<double>(request_.in_flight[rank_of(stage)]) / request_.virtual_stages;
    return fixed + std::llround(in_flight * static_cast<double>(activation));
  }
  std::int64_t stage_bytes(int stage, const StageEstimate& estimate) const {
    return kept_bytes(stage, estimate.fixed_bytes, estimate.activation_bytes) +
           estimate.transient_bytes;
  }
  std::int64_t budget_bytes(int stage) const {
    return (request_.device_bytes[rank_of(stage)] - batch_bytes_) / request_.virtual_stages;
  }
  bool fits(int stage, const StageEstimate& estimate, bool capped) const {
    return !capped || stage_bytes(stage, estimate) <= budget_bytes(stage);
  }

  const PartitionRequest& request_;
  int num_layers_, num_stages_;
  std::int64_t batch_bytes_;
  StageEstimator estimate_;
};

void check_counts(int num_layers, const PartitionRequest& request) {
  const int ranks = request.ranks;
  const int stages = request.virtual_stages;
  const std::string mesh =
      "mesh.pp " + std::to_string(ranks) + ", mesh.virtual_stages " + std::to_string(stages);
  if (ranks < 1 || stages < 1) {
    throw UserError({.operation = "plan.partition",
                     .where = mesh,
                     .what = "a pipeline needs at least one rank and one stage a rank",
                     .expected = "1 or more of each",
                     .got = std::to_string(std::min(ranks, stages)),
                     .fix = "set mesh.pp and mesh.virtual_stages to 1 or more"});
  }
  if (static_cast<std::int64_t>(ranks) * stages <= num_layers) return;
  const int most = num_layers / stages;
  throw UserError({.operation = "plan.partition",
                   .where = mesh,
                   .what = "there are more stages than layers",
                   .expected = "at most " + std::to_string(num_layers) + " stages",
                   .got = std::to_string(static_cast<std::int64_t>(ranks) * stages),
                   .fix = most > 0 ? "set mesh.pp to at most " + std::to_string(most)
                                   : "set mesh.virtual_stages to 1 and mesh.pp to at most " +
                                         std::to_string(num_layers)});
}

}  // namespace

std::optional<Partition> partition_layers(const Dataflow& dataflow, const CostTable& costs,
                                          const PartitionRequest& request) {
  check_counts(dataflow.num_layers, request);
  const Partitioner partitioner(dataflow, costs, request);
  const bool capped = !request.device_bytes.empty();
  if (!capped || request.virtual_stages == 1) return partitioner.best(capped);

  const auto fits = [&](const Partition& partition) {
    const auto bytes = partitioner.rank_bytes(partition);
    return std::equal(bytes.begin(), bytes.end(), request.device_bytes.begin(),
                      std::less_equal<>());
  };
  for (const bool capped_stages : {false, true}) {
    const auto partition = partitioner.best(capped_stages);
    if (partition && fits(*partition)) return partition;
  }
  return std::nullopt;
}

}  // namespace strata
