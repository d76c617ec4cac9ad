#include "strata/plan/plan_options.h"

#include <algorithm>

#include "strata/base/enum_names.h"
#include "strata/schedule/builders.h"

namespace strata {
namespace {

// A mesh beyond these sizes is a typing error.
constexpr double kMostRanksOfMesh = 1 << 20;  // check_mesh() rejects larger products of axes
constexpr double kVirtualStagesLimit = 1024;
constexpr double kMostThreads = 1024;
constexpr double kMostBlockTokens = 1 << 30;
constexpr double kMostStallSeconds = 1e6;
constexpr double kMostLatencySeconds = 10;
constexpr double kLeastTrafficBlock = 32;
constexpr double kMostWindow = 1 << 20;
constexpr double kMostStepsOfACommit = 1e12;

void describe_link(OptionSet& set, const std::string& prefix, MeshOptions& options) {
  set.add(
      prefix + ".bandwidth", &options.link_bandwidth,
      {.help = "Most that a process sends to all others in a second; emulated, to show what a run "
               "takes on a slow network (0: no limit)",
       .unit = "bytes",
       .minimum = 0});
  set.add(prefix + ".latency", &options.link_latency,
          {.help = "Time that a message between processes takes longer; emulated",
           .unit = "s",
           .minimum = 0,
           .maximum = kMostLatencySeconds});
}

void describe_traffic(OptionSet& set, const std::string& prefix, Traffic& traffic) {
  set.add(
      prefix + ".gradients", &traffic.gradients, all_named<TrafficFormat>(),
      {.help = "Numbers in which replicas send each other gradients of matrices; int8 and int4: "
               "integers with one scale a block"});
  set.add(prefix + ".weights", &traffic.weights, all_named<TrafficFormat>(),
          {.help = "Numbers in which ranks gather matrices for a forward or backward, with zero 3; "
                   "updates change the weights themselves"});
  set.add(prefix + ".block", &traffic.block,
          {.help = "Elements of a matrix that have one scale: a power of two",
           .unit = "elements",
           .minimum = kLeastTrafficBlock,
           .maximum = kFlatBlock});
}

void describe_context(OptionSet& set, const std::string& prefix, MeshOptions& options) {
  set.add(prefix + ".cp_exchange", &options.cp_exchange, all_named<ContextExchange>(),
          {.help = "What ranks of cp exchange for attention. ring: keys and values go from rank to "
                   "rank; ulysses: tokens for heads, so that each attends with some heads to all "
                   "tokens"});
  set.add(prefix + ".cp_block", &options.cp_block,
          {.help = "Tokens that ring attention takes at once: with equal blocks attention has the "
                   "same bits for any cp, 1 included; 0: a chunk, of which each rank has two",
           .unit = "tokens",
           .minimum = 0,
           .maximum = kMostBlockTokens});
}

}  // namespace

std::int64_t MeshOptions::stages_per_rank() const {
  return std::max<std::int64_t>(virtual_stages, traits_of(schedule).stages_per_rank);
}

void describe(OptionSet& set, const std::string& prefix, MeshOptions& options) {
  set.add(
      prefix + ".auto", &options.automatic,
      {.help = "Search the fastest pp, dp, cp, tp, zero, schedule and virtual_stages that fit"});
  set.add(prefix + ".ranks", &options.ranks,
          {.help = "Ranks that auto divides among the axes; 0: pp x dp x cp x tp, or else one for "
                   "each process or core",
           .unit = "ranks",
           .minimum = 0,
           .maximum = kMostRanksOfMesh});
  for (const AxisInfo& axis : kAxes) {
    set.add(prefix + "." + axis.name, &options.axes[axis.id],
            {.help = axis.help, .unit = axis.unit, .minimum = 1, .maximum = double(axis.most)});
  }
  set.add(prefix + ".zero", &options.zero.stage,
          {.help = "What replicas hold once: 1 optimizer states, 2 also gradients, 3 also weights",
           .minimum = 0,
           .maximum = 3});
  set.add(
      prefix + ".shard_ranks", &options.zero.shard_ranks,
      {.help = "Replicas among which one set of ZeRO shards is divided (hybrid sharding); 0: all",
       .unit = "replicas",
       .minimum = 0,
       .maximum = kMostRanksOfMesh});
  set.add(prefix + ".reduce", &options.zero.reduce, all_named<ReduceMode>(),
          {.help = "When replicas add their gradients: once a step, after each micro-batch (less "
                   "memory with zero 2 and 3, more communication), or what fits"});
  describe_traffic(set, prefix + ".traffic", options.zero.traffic);
  set.add(
      prefix + ".reduction", &options.reduction, all_named<Reduction>(),
      {.help = "In which order sums between ranks are made; ordered: that of ranks, the same bits "
               "however they are connected; native: what NCCL is fastest with, between processes "
               "with GPUs (elsewhere ordered)"});
  set.add(prefix + ".sequence_parallel", &options.sequence_parallel,
          {.help = "Divide what tensor-parallel ranks would all keep along the sequence"});
  describe_context(set, prefix, options);
  set.add(prefix + ".virtual_stages", &options.virtual_stages,
          {.help = "Stages that every rank holds; more than one needs gpipe or interleaved. zbv, "
                   "v-half, v-min and dualpipev always have two",
           .unit = "stages",
           .minimum = 1,
           .maximum = kVirtualStagesLimit});
  set.add(
      prefix + ".schedule", &options.schedule,
      named({ScheduleKind::kGpipe, ScheduleKind::kVertical, ScheduleKind::k1f1b,
             ScheduleKind::kInterleaved, ScheduleKind::kZbH1, ScheduleKind::kZbH2,
             ScheduleKind::kZbv, ScheduleKind::kVHalf, ScheduleKind::kVMin,
             ScheduleKind::kDualPipeV, ScheduleKind::kZb, ScheduleKind::kFile}),
      {.help = "Order of forwards and backwards. vertical: layers that live off the device run all "
               "micro-batches each time they are fetched; zb-h1, zb-h2, zbv, v-half, v-min, "
               "dualpipev, zb: backwards in two halves, of which the second fills waits "
               "(docs/schedules.md); zb: searched for the measured times; file: read from "
               "mesh.schedule_file"});
  set.add(prefix + ".schedule_file", &options.schedule_file,
          {.help = "CSV file of an order, as PyTorch's pipelining writes it"});
  set.add(prefix + ".threads", &options.threads,
          {.help = "Threads of each rank (0: cores / ranks)",
           .unit = "threads",
           .minimum = 0,
           .maximum = kMostThreads});
  set.add(prefix + ".transport", &options.transport, all_named<TransportKind>(),
          {.help = "What carries messages between processes; auto: ucx between machines that all "
                   "have an RDMA device (InfiniBand, RoCE) and UCX, sockets elsewhere"});
  describe_link(set, prefix + ".link", options);
  set.retire(prefix + ".stall_seconds", "10",
             "set mesh.stall_fatal_seconds; after a sixth of it a stalled rank is named");
  set.add(prefix + ".stall_fatal_seconds", &options.stall_fatal_seconds,
          {.help = "Seconds without progress after which the run ends; more than any layer takes. "
                   "A stalled rank is named after a sixth of them. 0: the run never ends, and the "
                   "rank is named after 10 s",
           .unit = "s",
           .minimum = 0,
           .maximum = kMostStallSeconds});
}

const char* name_of(RecomputeMode mode) {
  using enum RecomputeMode;
  static constexpr EnumNames<RecomputeMode> kNames{
      {kNone, "none"},           {kCheap, "cheap"}, {kProducts, "products"},
      {kAttention, "attention"}, {kFull, "full"},   {kAuto, "auto"}};
  return kNames[mode];
}

Recompute level_of(RecomputeMode mode) {
  switch (mode) {
    case RecomputeMode::kNone:
      return Recompute::kNone;
    case RecomputeMode::kProducts:
      return Recompute::kProducts;
    case RecomputeMode::kAttention:
      return Recompute::kAttention;
    case RecomputeMode::kCheap:
    case RecomputeMode::kFull:
    case RecomputeMode::kAuto:
      break;
  }
  return Recompute::kCheap;
}

const char* name_of(TierChoice choice) {
  using enum TierChoice;
  static constexpr EnumNames<TierChoice> kNames{
      {kAuto, "auto"}, {kDevice, "device"}, {kHost, "host"}, {kDisk, "disk"}};
  return kNames[choice];
}

void describe(OptionSet& set, const std::string& prefix, MemoryOptions& options) {
  set.add(prefix + ".device", &options.device,
          {.help = "Budget of one rank's device; a plan that needs more is refused (0: no limit)",
           .unit = "bytes",
           .minimum = 0});
  set.add(prefix + ".host", &options.host,
          {.help = "Budget of one rank's host memory, for what does not live on its device (0: no "
                   "limit)",
           .unit = "bytes",
           .minimum = 0});
  set.add(
      prefix + ".recompute", &options.recompute, all_named<RecomputeMode>(),
      {.help = "What runs again in backward instead of being kept: nothing; activations and norms; "
               "also the products after norms; also attention; whole layers; or, layer by layer, "
               "the cheapest of these that fit the budget"});
  const auto tier = named({TierChoice::kAuto, TierChoice::kDevice, TierChoice::kHost});
  const auto tier_or_disk = all_named<TierChoice>();
  set.add(prefix + ".weights", &options.weights, tier_or_disk,
          {.help = "Where weights live: on the host they are on the device only while layers need "
                   "them; auto: there if nothing less makes the plan fit"});
  set.add(
      prefix + ".gradients", &options.gradients, tier_or_disk,
      {.help = "Where gradients live: on the host each leaves as soon as it is complete; on disk "
               "each is then written there, until the norm is known and its layer is updated"});
  set.add(
      prefix + ".states", &options.states, tier_or_disk,
      {.help = "Where the optimizer's states live, and so where layers are updated; those on disk "
               "are updated on the host, layer by layer"});
  set.add(
      prefix + ".activations", &options.activations, tier,
      {.help =
           "Where layers that run again in backward keep their inputs until then; auto: layer by "
           "layer, where that makes a step of this budget shorter, or makes it fit"});
  set.add(prefix + ".window", &options.window,
          {.help = "Layers whose weights are on the device at once, where they live elsewhere (0: "
                   "as many as fit)",
           .unit = "layers",
           .minimum = 0,
           .maximum = kMostWindow});
  set.add(prefix + ".link.bandwidth", &options.link_bandwidth,
          {.help = "Of the link between device and host, a second and way; on a CPU it is emulated "
                   "(0: as fast as memory)",
           .unit = "bytes",
           .minimum = 0});
  set.retire(prefix + ".link.latency", "0",
             "describe the link in a machine's file (link.latency), and plan with --machine");
  set.add(prefix + ".disk.path", &options.disk.path,
          {.help = "Folder on a disk for what lives there; the run can be resumed from it"});
  set.add(prefix + ".disk.bytes", &options.disk.bytes,
          {.help = "Budget of one rank in that folder (0: as much as is free)",
           .unit = "bytes",
           .minimum = 0});
  set.add(prefix + ".disk.commit_every", &options.disk.commit_every,
          {.help = "Steps between those that the folder can be resumed from; weights that do not "
                   "live on the disk are written then, too",
           .unit = "steps",
           .minimum = 1,
           .maximum = kMostStepsOfACommit});
  set.retire(prefix + ".disk.io", "auto",
             "remove it: Strata uses io_uring where the kernel permits it, threads elsewhere");
}

}  // namespace strata
