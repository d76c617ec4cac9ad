#include <string>

#include "strata/claim/claims.h"
#include "strata/plan/simulate/communication.h"

namespace strata {
namespace {

constexpr std::int64_t kWeights = std::int64_t{1} << 30;
constexpr int kRanks = 384, kRanksOfAMachine = 8;
constexpr int kBytes = 2;  // fp16 weights and gradients

// What a rank sends for a layer of matrices, in multiples of the bytes of its fp16 weights.
ReplicaTraffic traffic_of(const Traffic& format, int shard_ranks = 0) {
  const LayerCost layer{.weight_bytes = kBytes * kWeights,
                        .matrix_bytes = kBytes * kWeights,
                        .gradient_bytes = kBytes * kWeights};
  const ZeroPolicy zero{.stage = 3, .shard_ranks = shard_ranks, .traffic = format};
  Dataflow one;
  one.num_layers = 1;
  const ShardLayout layout = shard_layout(zero, kRanks, one, LayerSet::all(1));
  ReplicaTraffic traffic = replica_traffic(
      shard_bytes(layer, layout[0], layout, kBytes, /*reads_in_place=*/false), layout);
  for (double* bytes : {&traffic.reduce, &traffic.fetch, &traffic.gather})
    *bytes /= static_cast<double>(kBytes * kWeights);
  return traffic;
}

ClaimRow row(const std::string& what, double published, double reproduced,
             Explanation explanation = {}) {
  // The papers round (n - 1) / n to 1.
  return {.what = what,
          .unit = "M",
          .decimals = 3,
          .published = published,
          .reproduced = reproduced,
          .tolerance = within(0.005),
          .explanation = std::move(explanation)};
}

}  // namespace

Claim zero_plus_plus_claim() {
  const Traffic integers{.gradients = TrafficFormat::kInt4, .weights = TrafficFormat::kInt8};
  const ReplicaTraffic full = traffic_of({}), sent = traffic_of(integers);
  const Explanation scales{"One fp32 scale for 128 integers, which the paper does not count.",
                           0.07};
  Claim claim{
      .name = "zero-plus-plus",
      .system = "DeepSpeed ZeRO++",
      .statement =
          "Integers and a second copy of the weights in every machine reduce what a rank "
          "sends other machines in a step from 3 M to 0.75 M, where M is its fp16 weights.",
      .source = "Wang et al. 2023, arXiv 2306.10209, abstract and the comparison of volumes",
      .method = "The bytes that Strata's planner counts for ZeRO 3 with mesh.traffic.",
      .pictured_unit = "M",
      .strata = "Strata keeps no second copy of fp16 weights. With mesh.shard_ranks " +
                std::to_string(kRanksOfAMachine) +
                " the ranks of a machine share one set of shards, so only gradients leave the "
                "machine; a rank then holds an eighth of the weights and states."};
  claim.rows = {row("ZeRO 3, gather for forward", 1, full.fetch),
                row("ZeRO 3, gather for backward", 1, full.fetch),
                row("ZeRO 3, sum of gradients", 1, full.reduce),
                row("int8 weights, gather for forward", 0.5, sent.fetch, scales),
                row("int4 gradients, sum", 0.25, sent.reduce, scales)};
  claim.figures = {{"ZeRO 3, int8 weights gathered twice, int4 gradients, 384 ranks",
                    format_double(2 * sent.fetch + sent.reduce, 2) + " M"},
                   {"the same with mesh.shard_ranks 8, at most between machines",
                    format_double(traffic_of(integers, kRanksOfAMachine).reduce, 2) + " M"}};
  return claim;
}

}  // namespace strata
