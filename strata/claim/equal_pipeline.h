/// Simulates a pipeline whose stages take equal times, as papers about schedules assume.
///
/// Units  any unit of time, the same for all fields.
#pragma once

#include "strata/schedule/action.h"

namespace strata {

struct EqualPipeline {
  ScheduleKind schedule = ScheduleKind::k1f1b;
  int ranks = 1;
  int micro_batches = 1;
  int virtual_stages = 1;
  // Of a micro-batch on one rank, all of its stages together.
  double forward = 1;
  double input = 1;   ///< first half of the backward
  double weight = 1;  ///< second half
  double transfer = 0;
  bool recomputes = false;  ///< every stage runs forward again before its backward
  bool keeps_one = false;   ///< but not for the micro-batch whose backward is first
};

/// The longest time from the first to the last work of a rank.
double pipeline_seconds(const EqualPipeline& pipeline);

/// Mini-batches in the time that one rank takes for a forward of a mini-batch, whose backward takes
/// twice as long. Ranks and micro-batches divide it evenly; the times of `pipeline` are not used.
double equal_speed(EqualPipeline pipeline);

/// The share of that time without forwards and backwards.
double bubble_rate(const EqualPipeline& pipeline);

}  // namespace strata
