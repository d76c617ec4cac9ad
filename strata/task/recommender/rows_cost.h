/// Says what the rows of a recommender's step cost: measured on this machine, or reckoned from what a
/// machine's network is said to be.
///
/// Measured are steps without a net, on tables of their own: samples of the recipe's data are read, rows
/// read, pooled and updated, on as many replicas at once as will train. Seconds of a processor count, so
/// that what else the machine does is not in them.
///
/// Cost    of the probe, at most a second and, unless they are open, one opening of the data; kept in the
///         cache of probes.
/// Units   seconds.
#pragma once

#include <string>
#include <vector>

#include "strata/layout/costs.h"
#include "strata/plan/machine_profile.h"
#include "strata/task/recipe.h"
#include "strata/task/recommender/click_data.h"
#include "strata/task/recommender/recommender_fields.h"

namespace strata {

/// Ids of one sample, by table: the most that the recipe lets it have; and the features of which it says
/// none.
struct SampleIds {
  std::vector<double> of_table;
  std::vector<std::string> unbounded;
};
SampleIds sample_ids(const RecommenderFields& fields, const WorkerOptions& worker);

/// What nobody has measured: a processor's seconds are assumed.
RowsCost estimated_rows(const RecommenderFields& fields, const Recipe& recipe,
                        const MachineProfile& machine);

/// `cache_file`: of probes; empty: none. `data`: the recipe's, if somebody has opened them already.
RowsCost probed_rows(const RecommenderFields& fields, const Recipe& recipe,
                     const MachineProfile& machine, const std::string& cache_file,
                     const ClickData* data = nullptr);

/// What a measurement depends on, in one line: another recipe's counts if this is the same.
std::string rows_probe_key(const RecommenderFields& fields, const Recipe& recipe);

}  // namespace strata
