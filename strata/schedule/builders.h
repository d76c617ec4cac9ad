/// Builds the order of compute actions of every rank, stage by stage. The passes in passes.h add
/// all other actions.
///
/// Source  GPipe (Huang et al. 2019); 1F1B with flush (PipeDream-2BW, Narayanan et al. 2021);
///         interleaved 1F1B (Narayanan et al. 2021, SC'21); ZB-H1 and ZB-H2 (Qi et al. 2023, "Zero
///         Bubble Pipeline Parallelism"); ZBV, V-Half, V-Min (Qi et al. 2024, "Pipeline Parallelism
///         with Controllable Memory"); DualPipeV (DeepSeek-AI 2025). Any number of micro-batches
///         >= 1.
///         Backward runs in ascending micro-batch order in all schedules, GPipe included, so that
///         gradients accumulate in the same order under every schedule.
/// Errors  UserError on counts below 1.
#pragma once

#include "strata/schedule/action.h"

namespace strata {

struct PipelineShape {
  int ranks = 1;
  int micro_batches = 1;
  int virtual_stages = 1;  ///< stages per rank
  /// empty: as the kind places its stages; forward_only() alone accepts other places
  std::vector<int> rank_of_stage = {};
};

/// What holds for all schedules of a kind.
struct ScheduleTraits {
  int stages_per_rank = 0;  ///< 0: any number
  /// Stage s of 2p is on rank s or 2p-1-s: the first and the last stage share a rank. Otherwise
  /// stage s is on rank s mod p.
  bool v_shaped = false;
  bool halves = false;      ///< its backwards run in two halves
  bool has_builder = true;  ///< false: the order is searched or read (StepDecisions::order)
};
const ScheduleTraits& traits_of(ScheduleKind kind);

/// Per stage: its rank. `stages`: of all ranks.
std::vector<int> ranks_of_stages(ScheduleKind kind, int ranks, int stages);

/// The kinds that build_schedule() builds.
inline constexpr ScheduleKind kBuiltSchedules[] = {
    ScheduleKind::kGpipe,       ScheduleKind::kVertical, ScheduleKind::k1f1b,
    ScheduleKind::kInterleaved, ScheduleKind::kZbH1,     ScheduleKind::kZbH2,
    ScheduleKind::kZbv,         ScheduleKind::kVHalf,    ScheduleKind::kVMin,
    ScheduleKind::kDualPipeV,   ScheduleKind::kForward};

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

/// 1F1B whose backwards run in two halves: the first at the place of the backward, the second
/// later, where the rank would wait. As many activations as 1F1B's first rank, on every rank.
Schedule zb_h1(PipelineShape shape);

/// Nearly twice as many warm-up forwards as 1F1B, so that ranks with equal halves never wait.
Schedule zb_h2(PipelineShape shape);

/// Two stages a rank, placed in a V: no waits if forwards and both halves take equal time, with
/// the activations of 1F1B's first rank on every rank.
Schedule zbv(PipelineShape shape);

/// The same stages with half and a third of these activations, and with waits.
Schedule v_half(PipelineShape shape);
Schedule v_min(PipelineShape shape);

/// DualPipe on a V of two stages a rank: forwards and backwards of different micro-batches in turn.
Schedule dualpipev(PipelineShape shape);

/// Forwards only: evaluation and generation.
Schedule forward_only(PipelineShape shape);

Schedule build_schedule(ScheduleKind kind, PipelineShape shape);

/// Upper bound of the (virtual stage, micro-batch) activations that a rank holds at once. They are
/// held until the backward, or its first half.
int in_flight_bound(ScheduleKind kind, PipelineShape shape, int rank);

/// The same, counted in a program of whole stages.
int peak_in_flight(const Program& program);

/// The order of the first micro-batches of a schedule. The rest is dropped, which keeps it legal.
Schedule first_micro_batches(const Schedule& schedule, int micro_batches);

}  // namespace strata
