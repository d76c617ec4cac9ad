/// Computes what the rows of a recommender's step cost: measured on this machine, or estimated from
/// the profile of a machine's network.
///
/// A measurement runs steps without a net on temporary tables: it reads samples of the recipe's
/// data, and reads, pools and updates rows, on as many replicas in parallel as will train. It
/// counts processor seconds, so that other programs do not disturb it.
///
/// Cost    at most a second per probe and, unless the data is open, one opening of it; cached with
///         the probes.
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

/// Ids of one sample, by table: the most that the recipe allows; and the features that it does not
/// limit.
struct SampleIds {
  std::vector<double> of_table;
  std::vector<std::string> unbounded;
};
SampleIds sample_ids(const RecommenderFields& fields, const WorkerOptions& worker);

/// The threads that read and update local rows: as many as all ranks that read them have, but no
/// more than the machine has cores.
int local_row_threads(const Recipe& recipe);

/// Estimates unmeasured seconds with assumed processor seconds.
RowsCost estimated_rows(const RecommenderFields& fields, const Recipe& recipe,
                        const MachineProfile& machine);

/// `cache_file`: of the probes; empty: none. `data`: the recipe's, if it is already open.
RowsCost probed_rows(const RecommenderFields& fields, const Recipe& recipe,
                     const MachineProfile& machine, const std::string& cache_file,
                     const ClickData* data = nullptr);

/// Everything that a measurement depends on, in one line: equal keys share a measurement.
std::string rows_probe_key(const RecommenderFields& fields, const Recipe& recipe);

}  // namespace strata
