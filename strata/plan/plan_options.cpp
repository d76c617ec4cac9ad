#include "strata/plan/plan_options.h"

namespace strata {
namespace {

// Sizes beyond which a mesh is a slip rather than a wish.
constexpr double kMostRanksOfAxis = 1 << 20;  // of one axis; check_mesh() refuses larger products
constexpr double kMostPipelineRanks = 4096;
constexpr double kVirtualStagesLimit = 1024;
constexpr double kMostThreads = 1024;
constexpr double kMostStallSeconds = 1e6;

}  // namespace

void describe(OptionSet& set, const std::string& prefix, MeshOptions& options) {
  set.add(prefix + ".auto", &options.automatic,
          {.help = "Search the fastest pp, dp, tp, zero, schedule and virtual_stages that fit"});
  set.add(prefix + ".ranks", &options.ranks,
          {.help = "Ranks that auto divides among the axes; 0: pp x dp x tp, or else one for each "
                   "process or core",
           .unit = "ranks",
           .minimum = 0,
           .maximum = kMostRanksOfAxis});
  set.add(prefix + ".pp", &options.pp,
          {.help = "Ranks that the layers are cut over",
           .unit = "ranks",
           .minimum = 1,
           .maximum = kMostPipelineRanks});
  set.add(prefix + ".dp", &options.dp,
          {.help = "Replicas, each of which trains on its part of the mini-batch",
           .unit = "replicas",
           .minimum = 1,
           .maximum = kMostRanksOfAxis});
  set.add(prefix + ".tp", &options.tp,
          {.help = "Ranks that divide the work inside every layer",
           .unit = "ranks",
           .minimum = 1,
           .maximum = kMostRanksOfAxis});
  set.add(prefix + ".zero", &options.zero,
          {.help = "What replicas hold once: 1 optimizer states, 2 also gradients, 3 also weights",
           .minimum = 0,
           .maximum = 3});
  set.add(
      prefix + ".shard_ranks", &options.shard_ranks,
      {.help = "Replicas among which one set of ZeRO shards is divided (hybrid sharding); 0: all",
       .unit = "replicas",
       .minimum = 0,
       .maximum = kMostRanksOfAxis});
  set.add(prefix + ".reduce", &options.reduce,
          named({ReduceMode::kAuto, ReduceMode::kOnce, ReduceMode::kEach}),
          {.help = "When replicas add their gradients: once a step, after each micro-batch (less "
                   "memory with zero 2 and 3, more communication), or what fits"});
  set.add(prefix + ".sequence_parallel", &options.sequence_parallel,
          {.help = "Divide what tensor-parallel ranks would all keep along the sequence"});
  set.add(prefix + ".virtual_stages", &options.virtual_stages,
          {.help = "Stages that every rank holds; more than one needs gpipe or interleaved",
           .unit = "stages",
           .minimum = 1,
           .maximum = kVirtualStagesLimit});
  set.add(
      prefix + ".schedule", &options.schedule,
      named({ScheduleKind::kGpipe, ScheduleKind::kVertical, ScheduleKind::k1f1b,
             ScheduleKind::kInterleaved}),
      {.help = "Order of forwards and backwards; vertical: layers that live off the device run all "
               "micro-batches each time they are fetched"});
  set.add(prefix + ".threads", &options.threads,
          {.help = "Threads of each rank (0: cores / ranks)",
           .unit = "threads",
           .minimum = 0,
           .maximum = kMostThreads});
  set.add(prefix + ".transport", &options.transport,
          named({TransportKind::kSockets, TransportKind::kUcx}),
          {.help = "What carries messages between processes: ucx speaks to InfiniBand and RoCE"});
  set.add(prefix + ".stall_seconds", &options.stall_seconds,
          {.help = "Name the rank that others have waited for this long (0: never)",
           .unit = "s",
           .minimum = 0,
           .maximum = kMostStallSeconds});
  set.add(prefix + ".stall_fatal_seconds", &options.stall_fatal_seconds,
          {.help = "End the run when ranks have waited this long (0: never); longer than any layer "
                   "takes",
           .unit = "s",
           .minimum = 0,
           .maximum = kMostStallSeconds});
}

const char* name_of(RecomputeMode mode) {
  constexpr const char* kNames[] = {"none", "cheap", "full", "auto"};
  return kNames[static_cast<int>(mode)];
}

void describe(OptionSet& set, const std::string& prefix, MemoryOptions& options) {
  set.add(prefix + ".device", &options.device,
          {.help = "Budget of one rank's device; a plan that needs more is refused (0: no limit)",
           .unit = "bytes",
           .minimum = 0});
  set.add(
      prefix + ".recompute", &options.recompute,
      named({RecomputeMode::kNone, RecomputeMode::kCheap, RecomputeMode::kFull,
             RecomputeMode::kAuto}),
      {.help = "What runs again in backward instead of being kept: nothing, GELU and norms, every "
               "layer, or the cheapest layers that fit the budget"});
}

}  // namespace strata
