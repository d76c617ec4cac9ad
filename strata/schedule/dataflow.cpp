#include "strata/schedule/dataflow.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {

int Partition::stage_of(int layer) const {
  STRATA_CHECK(!bounds.empty() && layer >= bounds.front() && layer < bounds.back(),
               "schedule.stage_of");
  return static_cast<int>(std::upper_bound(bounds.begin(), bounds.end(), layer) - bounds.begin()) -
         1;
}

}  // namespace strata
