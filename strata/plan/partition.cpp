#include "strata/plan/partition.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "strata/base/errors.h"
#include "strata/plan/stage_estimate.h"

namespace strata {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Stages whose seconds differ by less are equally fast: sums of the same times in another order.
constexpr double kSameSeconds = 1 + 1e-9;

// What a stage at a place costs; kNever: it may not stand there.
using Measure = std::function<double(int stage, LayerRange layers)>;

double larger(double a, double b) { return std::max(a, b); }
double sum(double a, double b) { return a + b; }

struct Cut {
  double cost = kNever;
  Partition partition = {};
};

// The cut of all layers into stages of the smallest combined cost.
Cut cheapest_cut(int num_layers, int num_stages, const Measure& measure,
                 double (*combine)(double, double)) {
  std::vector<std::vector<double>> best(num_stages + 1,
                                        std::vector<double>(num_layers + 1, kNever));
  std::vector<std::vector<int>> from(num_stages + 1, std::vector<int>(num_layers + 1, 0));
  best[0][0] = 0;
  for (int stage = 0; stage < num_stages; ++stage) {
    const int last_end = num_layers - (num_stages - stage - 1);
    for (int end = stage + 1; end <= last_end; ++end) {
      for (int begin = stage; begin < end; ++begin) {
        if (best[stage][begin] == kNever) continue;
        const double cost = combine(best[stage][begin], measure(stage, {begin, end}));
        if (cost >= best[stage + 1][end]) continue;
        best[stage + 1][end] = cost;
        from[stage + 1][end] = begin;
      }
    }
  }
  Cut cut{.cost = best[num_stages][num_layers]};
  cut.partition.bounds.assign(num_stages + 1, num_layers);
  for (int stage = num_stages; stage > 0; --stage) {
    cut.partition.bounds[stage - 1] = from[stage][cut.partition.bounds[stage]];
  }
  return cut;
}

class Partitioner {
 public:
  Partitioner(const Wiring& wiring, const CostTable& costs, const PartitionRequest& request)
      : request_(request), num_layers_(wiring.num_layers), batch_bytes_(costs.batch_bytes) {
    const StageEstimator estimate(wiring, costs, request.recompute, request.ranks > 1);
    estimates_.resize(num_layers_ * (num_layers_ + 1));
    for (int begin = 0; begin < num_layers_; ++begin) {
      for (int end = begin + 1; end <= num_layers_; ++end) {
        estimates_[index({begin, end})] = estimate({begin, end});
      }
    }
  }

  // Three searches, each among the winners of the one before, so ties are broken exactly.
  std::optional<Partition> best(bool capped) const {
    const auto fits = [&](int stage, LayerRange layers) {
      return !capped || stage_bytes(stage, layers) <= share_bytes(stage);
    };
    const Cut fastest =
        search([&](int stage,
                   LayerRange layers) { return fits(stage, layers) ? at(layers).seconds : kNever; },
               larger);
    if (fastest.cost == kNever) return std::nullopt;
    const double seconds = fastest.cost * kSameSeconds;
    const Measure memory = [&](int stage, LayerRange layers) {
      if (!fits(stage, layers) || at(layers).seconds > seconds) return kNever;
      return static_cast<double>(stage_bytes(stage, layers));
    };
    const Cut smallest = search(memory, larger);
    return search(
               [&](int stage, LayerRange layers) {
                 if (memory(stage, layers) > smallest.cost) return kNever;
                 return static_cast<double>(at(layers).boundary_bytes);
               },
               sum)
        .partition;
  }

  std::vector<std::int64_t> rank_bytes(const Partition& partition) const {
    std::vector<std::int64_t> bytes(request_.ranks, batch_bytes_);
    std::vector<std::int64_t> transient(request_.ranks);
    for (int stage = 0; stage < partition.num_stages(); ++stage) {
      const int rank = stage % request_.ranks;
      bytes[rank] += kept_bytes(stage, partition.layers(stage));
      transient[rank] = std::max(transient[rank], at(partition.layers(stage)).transient_bytes);
    }
    for (int rank = 0; rank < request_.ranks; ++rank) bytes[rank] += transient[rank];
    return bytes;
  }

 private:
  std::size_t index(LayerRange layers) const {
    return static_cast<std::size_t>(layers.begin) * (num_layers_ + 1) + layers.end;
  }
  const StageEstimate& at(LayerRange layers) const { return estimates_[index(layers)]; }

  Cut search(const Measure& measure, double (*combine)(double, double)) const {
    return cheapest_cut(num_layers_, request_.ranks * request_.virtual_stages, measure, combine);
  }

  // In-flight activations of a rank are spread evenly over its stages.
  std::int64_t kept_bytes(int stage, LayerRange layers) const {
    const double in_flight = request_.in_flight.empty()
                                 ? 1.0
                                 : static_cast<double>(request_.in_flight[stage % request_.ranks]) /
                                       request_.virtual_stages;
    return at(layers).fixed_bytes + std::llround(in_flight * at(layers).activation_bytes);
  }
  std::int64_t stage_bytes(int stage, LayerRange layers) const {
    return kept_bytes(stage, layers) + at(layers).transient_bytes;
  }
  std::int64_t share_bytes(int stage) const {
    return (request_.device_bytes[stage % request_.ranks] - batch_bytes_) / request_.virtual_stages;
  }

  const PartitionRequest& request_;
  int num_layers_;
  std::int64_t batch_bytes_;
  std::vector<StageEstimate> estimates_;
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

std::optional<Partition> partition_layers(const Wiring& wiring, const CostTable& costs,
                                          const PartitionRequest& request) {
  check_counts(wiring.num_layers, request);
  const Partitioner partitioner(wiring, costs, request);
  const bool capped = !request.device_bytes.empty();
  if (!capped || request.virtual_stages == 1) return partitioner.best(capped);

  const auto fits = [&](const Partition& partition) {
    const auto bytes = partitioner.rank_bytes(partition);
    return std::equal(bytes.begin(), bytes.end(), request.device_bytes.begin(),
                      std::less_equal<>());
  };
  for (const bool share : {false, true}) {
    const auto partition = partitioner.best(share);
    if (partition && fits(*partition)) return partition;
  }
  return std::nullopt;
}

}  // namespace strata
