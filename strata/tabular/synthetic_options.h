/// Describes generated clicks, for a run that needs no file and whose best AUC is known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/base/options.h"

namespace strata {

struct SyntheticFeature {
  std::string name;
  std::int64_t cardinality = 100000;  ///< number of ids
  double zipf = 1.05;                 ///< exponent; 0: all ids are equally frequent
  std::int64_t least_ids = 1;         ///< per sample
  std::int64_t most_ids = 1;          ///< uniform between least_ids and this
};

struct SyntheticOptions {
  std::int64_t samples = 1000000;  ///< per epoch; those for validation follow
  std::int64_t validation_samples = 100000;
  std::vector<SyntheticFeature> features;
  std::int64_t numeric = 0;      ///< columns n1, n2, ...: standard normal
  double positive = 0.25;        ///< approximate fraction of labels that are 1
  double linear = 1;             ///< standard deviation of the ids' contribution to the logit
  double pairwise = 0.5;         ///< standard deviation of the contribution of pairs of features
  double noise = 0;              ///< fraction of labels that are replaced by random ones
  std::int64_t drift_every = 0;  ///< samples after which hot ids change; 0: never
  std::int64_t seed = 1;
};

void describe(OptionSet& set, const std::string& prefix, SyntheticFeature& feature);
void describe(OptionSet& set, const std::string& prefix, SyntheticOptions& options);

}  // namespace strata
