// Actions are walked in the order of the simulated clock instead of rank by rank, because when a
// sender frees a value depends on when the receiver takes it over. Only changes of bytes are
// stored, so memory grows with the actions of a step, not with its tensors.
#include "strata/plan/ledger/ledger.h"

#include <algorithm>
#include <utility>

#include "strata/plan/ledger/bookkeeper.h"
#include "strata/schedule/messages.h"

namespace strata {
namespace {

StepTraits traits_of(const Schedule& schedule) {
  StepTraits traits;
  for (const Program& program : schedule.programs) {
    for (const Action& action : program) {
      traits.trains |= makes_input_gradients(action.op);
      traits.meets |= action.op == Op::kReduceNormAndLoss;
      if (action.op != Op::kRecompute) continue;
      for (int l = action.layers.begin; l < action.layers.end; ++l) traits.recompute.add(l);
    }
  }
  return traits;
}

// The bytes that round a buffer up to whole blocks.
std::int64_t padding(std::int64_t bytes, std::int64_t block) {
  return (bytes + block - 1) / block * block - bytes;
}

}  // namespace

Bookkeeper::Bookkeeper(const Schedule& schedule, const Dataflow& dataflow,
                       const Partition& partition, const CostTable& costs,
                       const ShardLayout& shards, bool reads_in_place, const TierLayout& tiers,
                       const RecordedPrograms& recorded,
                       const std::vector<std::int64_t>& other_pools)
    : dataflow_(dataflow),
      costs_(costs),
      placement_(dataflow, partition, schedule.rank_of_stage),
      traits_(traits_of(schedule)),
      now_(schedule.num_ranks()),
      ledger_(schedule.num_ranks()),
      changes_(schedule.num_ranks()),
      holders_(dataflow, placement_, schedule.num_micro_batches),
      shards_(shard_bytes(costs, shards, reads_in_place, tiers)),
      sent_(schedule.num_ranks(), traits_.meets),
      tied_gradients_(dataflow.ties.size()),
      replicas_(shards.replicas),
      open_(dataflow.num_layers),
      activations_leaving_(schedule.num_ranks(), {-1, -1}),
      host_activations_(schedule.num_ranks()),
      leaving_(schedule.num_ranks(), -1),
      exported_(schedule.num_ranks(), {ByteKind::kBuffers, 0}),
      leaving_sum_(schedule.num_ranks()),
      parts_(schedule.num_ranks()),
      pools_(schedule.num_ranks()) {
  for (ByteTable& table : now_) {
    table[ByteKind::kBatch] = costs.batch_bytes;
    table[ByteKind::kPages] = costs.page_bytes;
    table[ByteKind::kDraft] = costs.draft_bytes;
    table[ByteKind::kContext] = costs.context_bytes;
    table[ByteKind::kWorkspaces] = costs.workspace_bytes;
    table[ByteKind::kCommunicators] = costs.communicator_bytes;
  }
  find_copies();
  for (int l = 0; l < dataflow.num_layers; ++l) add_fixed(l);
  add_tiers(ledger_, dataflow, placement_, shards_, shards, tiers, traits_.trains);
  for (int r = 0; r < schedule.num_ranks(); ++r) {
    const std::int64_t fixed = now_[r].total();
    if (!recorded.empty())
      pools_[r] = SegmentPools(recorded[r], fixed, other_pools.empty() ? 0 : other_pools[r]);
    if (traits_.meets) hold_from_before(r, schedule.programs[r]);
    const std::int64_t all = now_[r].total();
    pools_[r].end(fixed, all, all, 0);
    changes_[r].add(0, all);
    look(r, -1);
  }
}

// Tied weights are sent after the update: a sender may start the next step before they have
// arrived.
void Bookkeeper::hold_from_before(int rank, const Program& program) {
  for (const Action& action : program) {
    if (action.op != Op::kSendTiedWeight) continue;
    const std::int64_t bytes = tied_bytes(costs_.layers[action.consumer], action.op);
    now_[rank][ByteKind::kValues] += bytes;
    sent_.hold_from_before(rank, action.peer, {bytes, SegmentPools::kOrdinary});
  }
}

void Bookkeeper::perform(ActionRef ref, const Action& action, const TraceEvent& event) {
  rank_ = ref.rank;
  position_ = ref.position;
  sent_.next_action();
  const auto gone = [&, at = is_receive(action.op) ? event.end_seconds : event.begin_seconds](
                        const SentValue& sent) { let_sent_go(rank_, sent, at); };
  if (is_send(action.op)) sent_.send(message_key(action, rank_));
  if (is_receive(action.op)) sent_.receive(message_key(action, rank_), rank_, action.peer, gone);
  if (action.op == Op::kReduceNormAndLoss) sent_.meet(rank_, gone);
  const std::int64_t before = now_[rank_].total();
  action_peak_ = before;
  stays_ = 0;
  pools_[rank_].begin(ref.position, before);
  walk(action, event.end_seconds);
  pools_[rank_].end(before, action_peak_, now_[rank_].total(), stays_);
  const bool receive = is_receive(action.op);  // a receive waits first
  changes_[rank_].add(receive ? event.end_seconds : event.begin_seconds, action_peak_ - before);
  changes_[rank_].add(event.end_seconds, now_[rank_].total() - action_peak_);
}

Ledger Bookkeeper::take() {
  for (std::size_t r = 0; r < ledger_.size(); ++r) {
    ledger_[r].pool_bytes = pools_[r].bytes();
    ledger_[r].host.staging += parts_[r].most_host_bytes;
    if (const std::int64_t more = pools_[r].beyond(ledger_[r].peak_bytes); more > 0) {
      ledger_[r].peak_bytes += more;
      ledger_[r].at_peak[ByteKind::kPools] = more;
      changes_[r].add(0, more);
    }
    ledger_[r].timeline = changes_[r].timeline();
  }
  return std::move(ledger_);
}

// Finds the layers that use a weight whose owner is on another rank.
void Bookkeeper::find_copies() {
  copies_.resize(dataflow_.num_layers);
  for (const Tie& tie : dataflow_.ties) {
    for (const int user : tie.users) {
      if (placement_.rank[tie.owner] != placement_.rank[user]) copies_[user] = true;
    }
  }
}

void Bookkeeper::add_fixed(int layer) {
  const LayerCost& cost = costs_.layers[layer];
  ByteTable& table = now_[placement_.rank[layer]];
  const ShardBytes& shards = shards_[layer];
  table[ByteKind::kWeights] += shards.weights;
  table[ByteKind::kGradients] += shards.gradients;
  table[ByteKind::kStates] += shards.states;
  if (copies_[layer]) table[ByteKind::kReplicas] += cost.replica_bytes;
  if (traits_.trains) table[ByteKind::kBatch] += cost.batch_gradient_bytes;
  for (const std::int64_t bytes : {shards.weights, shards.gradients, shards.states})
    table[ByteKind::kRounding] += padding(bytes, costs_.allocation_block);
}

void Bookkeeper::look(int rank, int position) {
  const std::int64_t total = now_[rank].total();
  action_peak_ = std::max(action_peak_, total);
  RankLedger& rank_ledger = ledger_[rank];
  if (total <= rank_ledger.peak_bytes) return;
  rank_ledger.peak_bytes = total;
  rank_ledger.peak_position = position;
  rank_ledger.at_peak = now_[rank];
}

Ledger make_ledger(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
                   const CostTable& costs, const Simulation& simulation, const ShardLayout& shards,
                   bool reads_in_place, const TierLayout& tiers, const RecordedPrograms& recorded,
                   const std::vector<std::int64_t>& other_pools) {
  Bookkeeper books(schedule, dataflow, partition, costs, shards, reads_in_place, tiers, recorded,
                   other_pools);
  for (const ActionRef& ref : simulation.order) {
    books.perform(ref, schedule.programs[ref.rank][ref.position],
                  simulation.ranks[ref.rank].events[ref.position]);
  }
  return books.take();
}

std::int64_t peak_bytes(const Ledger& ledger) {
  std::int64_t most = 0;
  for (const RankLedger& rank : ledger) most = std::max(most, rank.peak_bytes);
  return most;
}

std::int64_t host_bytes(const Ledger& ledger) {
  std::int64_t most = 0;
  for (const RankLedger& rank : ledger) most = std::max(most, rank.host.total());
  return most;
}

std::int64_t disk_bytes(const Ledger& ledger) {
  std::int64_t most = 0;
  for (const RankLedger& rank : ledger) most = std::max(most, rank.disk_bytes);
  return most;
}

}  // namespace strata
