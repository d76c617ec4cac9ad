/// Describes clicks that are made up, so that a run needs no file and its best AUC is known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/base/options.h"

namespace strata {

struct SyntheticFeature {
  std::string name;
  std::int64_t cardinality = 100000;  ///< ids that there are
  double zipf = 1.05;                 ///< exponent; 0: all ids equally often
  std::int64_t least_ids = 1;         ///< of a sample
  std::int64_t most_ids = 1;          ///< as many as least_ids, up to this, equally often
};

struct SyntheticOptions {
  std::int64_t samples = 1000000;  ///< of an epoch; those for validation follow them
  std::int64_t validation_samples = 100000;
  std::vector<SyntheticFeature> features;
  std::int64_t numeric = 0;      ///< columns n1, n2, ...: standard normal
  double positive = 0.25;        ///< about this fraction of labels is 1
  double linear = 1;             ///< standard deviation of what ids add to the logit
  double pairwise = 0.5;         ///< of what pairs of features add
  double noise = 0;              ///< fraction of labels that are drawn anew, whatever the sample
  std::int64_t drift_every = 0;  ///< samples after which hot ids change; 0: never
  double drift_share = 0.01;     ///< of the ids, by which ranks move on each time
  std::int64_t seed = 1;
};

void describe(OptionSet& set, const std::string& prefix, SyntheticFeature& feature);
void describe(OptionSet& set, const std::string& prefix, SyntheticOptions& options);

}  // namespace strata
