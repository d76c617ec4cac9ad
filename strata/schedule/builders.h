/// Builds the order of compute actions of every rank, stage by stage. The passes in passes.h add
/// all other actions.
///
/// Source  GPipe (Huang et al. 2019); 1F1B with flush (PipeDream-2BW, Narayanan et al. 2021);
///         interleaved 1F1B (Narayanan et al. 2021, SC'21). Any number of micro-batches >= 1.
///         Backward runs in ascending micro-batch order in all schedules, GPipe included, so that
///         gradients accumulate in the same order under every schedule.
/// Errors  UserError on counts below 1.
#pragma once

#include "strata/schedule/action.h"

namespace strata {

struct PipelineShape {
  int ranks = 1;
  int micro_batches = 1;
  int virtual_stages = 1;  ///< stages per rank (interleaved); stage s is on rank s mod ranks
};

/// All forwards, then all backwards. With virtual stages: chunk by chunk (looped breadth-first).
Schedule gpipe(PipelineShape shape);

/// GPipe, except that layers whose weights are not resident run one after another, each for all
/// micro-batches, so that each layer is fetched once per pass.
/// Source  GreedySnake (vertical scheduling of gradient accumulation).
Schedule vertical(PipelineShape shape);

/// min(m, p-r-1) forwards, then one forward and one backward in turn, then the remaining backwards.
/// virtual_stages must be 1.
Schedule one_f_one_b(PipelineShape shape);

/// 1F1B over virtual stages, in groups of p micro-batches. If p does not divide the count, the
/// schedule is built for the next multiple and the surplus is dropped, which keeps it legal. With
/// one stage per rank it is plain 1F1B: the longer warm-up would only hold more activations.
Schedule interleaved(PipelineShape shape);

/// Forwards only: evaluation and generation.
Schedule forward_only(PipelineShape shape);

Schedule build_schedule(ScheduleKind kind, PipelineShape shape);

/// Upper bound of the (virtual stage, micro-batch) activations that a rank holds at once.
int in_flight_bound(ScheduleKind kind, PipelineShape shape, int rank);

}  // namespace strata
