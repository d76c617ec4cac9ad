/// Computes what ZeRO leaves on every rank of a model's weights, gradients and optimizer states,
/// and what the ranks send for it, from the number of parameters alone.
///
/// The ledger has the exact bytes of a recipe's model; this is the arithmetic of the papers.
///
/// Source  ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054, sections 3, 5 and 7).
/// Units   bytes of one rank; fractions are kept.
/// Errors  UserError: an unknown convention, a stage outside 0 to 3, counts below 1.
#pragma once

#include <string>
#include <vector>

#include "strata/layout/costs.h"

namespace strata {

/// Bytes per parameter of each kind, with everything on one rank.
struct ParameterBytes {
  std::string name;     ///< its name in options
  std::string meaning;  ///< its description, one clause
  double weight = 4;
  double gradient = 4;
  double states = 8;
  double total() const { return weight + gradient + states; }
};

/// fp32 | mixed | zero-paper | megatron-fp16.
const std::vector<ParameterBytes>& precision_conventions();
const ParameterBytes& precision_convention(const std::string& name);

/// The same model with this convention's bytes per parameter, to compute the ledger of another
/// system.
CostTable with_parameter_bytes(CostTable costs, const ParameterBytes& bytes);

/// The bytes of one rank.
struct ModelStateBytes {
  double weights = 0;
  double gradients = 0;
  double states = 0;
  double total() const { return weights + gradients + states; }
};

/// Stage 1 shards states, 2 also gradients, 3 also weights over `shard_ranks`.
ModelStateBytes zero_bytes(double parameters, const ParameterBytes& bytes, int zero,
                           int shard_ranks);

/// Elements that a rank sends in a step of one micro-batch, as a multiple of the parameters: 2 for
/// stages 0 to 2, 3 for stage 3, both times (n - 1) / n, which papers round to 1.
double zero_volume(int zero, int shard_ranks);

/// What `strata size parameters` prints: one line per ZeRO stage.
std::string zero_table(double parameters, const ParameterBytes& bytes, int shard_ranks);

/// Parses "7.5e9", "7.5B", "350M" or "1T" as a count of `what`.
/// Errors  UserError on anything else.
double parse_count(const std::string& text, const std::string& what = "parameters");

}  // namespace strata
