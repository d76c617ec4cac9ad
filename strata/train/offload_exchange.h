/// Brings what every rank moved in a step between its device, host memory and a disk into one record.
///
/// Threads  collective.
#pragma once

#include "strata/comm/group.h"
#include "strata/report/metrics.h"
#include "strata/train/trainer.h"

namespace strata {

class OffloadExchange {
 public:
  /// `use`: of this rank since it was made; the record is of what came since the call before.
  OffloadRecord of_step(Group& group, const Trainer::OffloadUse& use, bool on_disk);

 private:
  Trainer::OffloadUse before_;
};

}  // namespace strata
