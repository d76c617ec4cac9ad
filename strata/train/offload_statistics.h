/// Combines what every rank moved in a step between its device, host memory and a disk into one
/// record.
///
/// Threads  collective.
#pragma once

#include "strata/report/metrics.h"
#include "strata/train/step_sums.h"
#include "strata/train/trainer.h"

namespace strata {

class OffloadStatistics {
 public:
  /// Adds this rank's numbers since the previous call. `use`: totals since the trainer was created.
  void add(StepSums& sums, const Trainer::OffloadUse& use);

  /// The record of the step, after StepSums::share().
  OffloadRecord record(bool on_disk) const;

 private:
  Trainer::OffloadUse before_;
  OffloadRecord record_;
  DiskRecord disk_;
};

}  // namespace strata
