// Actions are walked in the order of the simulated clock, not rank by rank: when a rank lets go of what it
// sent depends on when the other takes it. Only changes of bytes are kept, so that a step of many
// micro-batches costs memory by its actions, not by its tensors.
#include "strata/plan/ledger.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "strata/base/errors.h"
#include "strata/plan/segment_pools.h"
#include "strata/plan/value_holders.h"
#include "strata/schedule/dataflow.h"
#include "strata/schedule/messages.h"

namespace strata {
namespace {

// What a rank adds up at a time of the others' gradients (comm/ordered_sum.cpp).
constexpr std::int64_t kSumBytes = 1 << 17;

struct Traits {
  bool trains = false;  // has backwards
  bool meets = false;   // all ranks do, at the norm
  LayerSet recompute;
};

Traits traits_of(const Schedule& schedule) {
  Traits traits;
  for (const Program& program : schedule.programs) {
    for (const Action& action : program) {
      traits.trains |= action.op == Op::kBackward;
      traits.meets |= action.op == Op::kReduceNormAndLoss;
      if (action.op != Op::kRecompute) continue;
      for (int l = action.layers.begin; l < action.layers.end; ++l) traits.recompute.add(l);
    }
  }
  return traits;
}

// Of a buffer, up to whole blocks.
std::int64_t padding(std::int64_t bytes, std::int64_t block) {
  return (bytes + block - 1) / block * block - bytes;
}

class Bookkeeper {
 public:
  Bookkeeper(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
             const CostTable& costs, const ShardLayout& shards, bool reads_in_place,
             const TierLayout& tiers, const RecordedPrograms& recorded)
      : dataflow_(dataflow),
        costs_(costs),
        placement_(dataflow, partition, schedule.rank_of_stage),
        traits_(traits_of(schedule)),
        now_(schedule.num_ranks()),
        ledger_(schedule.num_ranks()),
        changes_(schedule.num_ranks()),
        holders_(dataflow, placement_, schedule.num_micro_batches),
        shards_(shard_bytes(costs, shards, reads_in_place, tiers)),
        in_flight_(schedule.num_ranks()),
        has_met_(schedule.num_ranks()),
        replicas_(shards.replicas),
        open_(dataflow.num_layers),
        activations_leaving_(schedule.num_ranks(), {-1, -1}),
        host_activations_(schedule.num_ranks()),
        leaving_(schedule.num_ranks(), -1),
        pools_(schedule.num_ranks()) {
    for (ByteTable& table : now_) {
      table[ByteKind::kBatch] = costs.batch_bytes;
      table[ByteKind::kContext] = costs.context_bytes;
      table[ByteKind::kWorkspaces] = costs.workspace_bytes;
    }
    find_copies();
    for (int l = 0; l < dataflow.num_layers; ++l) add_fixed(l);
    add_tiers(ledger_, dataflow, placement_, shards_, shards, tiers, traits_.trains);
    for (int r = 0; r < schedule.num_ranks(); ++r) {
      change(r, 0, now_[r].total());
      look(r, -1);
      if (!recorded.empty()) pools_[r] = SegmentPools(recorded[r], now_[r].total());
    }
  }

  void perform(ActionRef ref, const Action& action, const TraceEvent& event) {
    rank_ = ref.rank;
    position_ = ref.position;
    ++performed_;
    if (traits_.meets && is_send(action.op)) sent_[message_key(action, rank_)] = performed_;
    if (traits_.meets && is_receive(action.op)) {
      const auto sent = sent_.find(message_key(action, rank_));
      let_received_go(action.peer, sent->second, event.end_seconds);
      sent_.erase(sent);
    }
    if (action.op == Op::kReduceNormAndLoss) {
      // No rank leaves the norm before all have received what was sent to them.
      let_received_go(-1, performed_, event.begin_seconds);
      has_met_[rank_] = true;
    }
    const std::int64_t before = now_[rank_].total();
    action_peak_ = before;
    walk(action, event.end_seconds);
    pools_[rank_].perform(ref.position, before, action_peak_, now_[rank_].total());
    const bool receive = is_receive(action.op);  // waits first
    change(rank_, receive ? event.end_seconds : event.begin_seconds, action_peak_ - before);
    change(rank_, event.end_seconds, now_[rank_].total() - action_peak_);
  }

  Ledger take() {
    for (std::size_t r = 0; r < ledger_.size(); ++r) {
      if (const std::int64_t more = pools_[r].beyond(ledger_[r].peak_bytes); more > 0) {
        ledger_[r].peak_bytes += more;
        ledger_[r].at_peak[ByteKind::kPools] = more;
        change(static_cast<int>(r), 0, more);
      }
      std::int64_t level = 0;
      std::sort(changes_[r].begin(), changes_[r].end(), [](const Change& a, const Change& b) {
        return std::pair(a.seconds, a.order) < std::pair(b.seconds, b.order);
      });
      ledger_[r].timeline.reserve(changes_[r].size());
      for (const auto& [seconds, order, bytes] : changes_[r]) {
        ledger_[r].timeline.push_back({seconds, level += bytes});
      }
    }
    return std::move(ledger_);
  }

 private:
  struct Change {
    double seconds = 0;
    std::size_t order = 0;  // among changes of one time
    std::int64_t bytes = 0;
  };
  // What a rank has sent and still holds, as far as it knows.
  struct InFlight {
    int peer = 0;
    std::int64_t received = 0;  // when, among all actions
    std::int64_t bytes = 0;
  };
  void change(int rank, double seconds, std::int64_t bytes) {
    if (bytes != 0) changes_[rank].push_back({seconds, changes_[rank].size(), bytes});
  }

  // Layers that use a weight whose owner lives on another rank.
  void find_copies() {
    copies_.resize(dataflow_.num_layers);
    for (const Tie& tie : dataflow_.ties) {
      for (const int user : tie.users) {
        if (placement_.rank[tie.owner] != placement_.rank[user]) copies_[user] = true;
      }
    }
  }

  void add_fixed(int layer) {
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

  void walk(const Action& action, double end_seconds) {
    micro_batch_ = action.micro_batch;
    const auto [begin, end] = action.layers;
    switch (action.op) {
      case Op::kForward:
        for (int l = begin; l < end; ++l) forward(l);
        break;
      case Op::kRecompute:
        for (int l = begin; l < end; ++l) recompute(l);
        break;
      case Op::kBackward:
        for (int l = end; l-- > begin;) backward(l);
        break;
      case Op::kReceiveActivation:
        references(action.value, rank_) = holders_.readers(action.value, rank_);
        take_over(action, --references(action.value, action.peer) == 0, end_seconds);
        break;
      case Op::kReceiveGradient:
        take_over(action, true, end_seconds);
        break;
      case Op::kReceiveTiedGradient:
        look_with_transients(costs_.layers[action.consumer].replica_bytes);
        break;
      case Op::kPrefetchWeights:
        for (int l = begin; l < end; ++l) add(ByteKind::kBuffers, shards_[l].fetched_weights);
        look(rank_, position_);
        break;
      case Op::kReleaseWeights:
        for (int l = begin; l < end; ++l) add(ByteKind::kBuffers, -shards_[l].fetched_weights);
        break;
      case Op::kReduceGradients:
        for (int l = begin; l < end; ++l) add(ByteKind::kBuffers, shards_[l].received);
        look(rank_, position_);
        break;
      case Op::kAwaitGradients:
        for (int l = begin; l < end; ++l) end_reduction(l);
        break;
      case Op::kOffloadActivations:
        for (int l = begin; l < end; ++l) offload_activations(l);
        break;
      case Op::kFetchActivations:
        for (int l = begin; l < end; ++l) fetch_activations(l);
        break;
      case Op::kOffloadGradients:
        for (int l = begin; l < end; ++l) {
          end_offload();
          leaving_[rank_] = l;
        }
        break;
      case Op::kReduceNormAndLoss:
        end_offload();
        break;
      default:
        break;
    }
  }

  void forward(int layer) {
    const LayerCost& cost = costs_.layers[layer];
    for (const int v : placement_.outputs[layer]) {
      add(ByteKind::kValues, value_bytes(v));
      references(v, rank_) = holders_.readers(v, rank_) + holders_.ranks_served(v);
    }
    if (traits_.trains && !traits_.recompute.has(layer)) {
      add(ByteKind::kSaved, scaled(cost.saved_bytes));
    }
    look_with_transients(forward_transients(cost));
    for (const int v : placement_.outputs[layer]) free_unless_used(v);
    if (!traits_.trains) release_inputs(layer);
  }

  void recompute(int layer) {
    const LayerCost& cost = costs_.layers[layer];
    if (fetched_.contains({layer, micro_batch_})) host_activations_[rank_] -= input_bytes(layer);
    add(ByteKind::kSaved, scaled(cost.saved_bytes));
    std::int64_t transients = forward_transients(cost);
    for (const int v : placement_.outputs[layer]) transients += value_bytes(v);
    look_with_transients(transients);
  }

  void backward(int layer) {
    const LayerCost& cost = costs_.layers[layer];
    for (const int v : placement_.inputs[layer]) {
      if (dataflow_.values[v].differentiable) add(ByteKind::kValues, value_bytes(v));
    }
    hold_whole_gradient(layer);
    look_with_transients(cost.backward_fixed_bytes +
                         scaled(cost.backward_transient_bytes - cost.backward_fixed_bytes));
    add(ByteKind::kSaved, -scaled(cost.saved_bytes));
    for (const int v : placement_.outputs[layer]) {
      const Value& value = dataflow_.values[v];
      const auto gradients = static_cast<std::int64_t>(value.consumers.size());
      if (value.differentiable) add(ByteKind::kValues, -gradients * value_bytes(v));
    }
    let_inputs_go(layer);
  }

  // The bytes of the one before go now: whoever offloads waits for that.
  void offload_activations(int layer) {
    end_activation_offload();
    activations_leaving_[rank_] = {layer, micro_batch_};
    std::int64_t& host = host_activations_[rank_];
    host += input_bytes(layer);
    ledger_[rank_].host.activations = std::max(ledger_[rank_].host.activations, host);
  }

  void end_activation_offload() {
    const auto [layer, micro_batch] = std::exchange(activations_leaving_[rank_], {-1, -1});
    if (layer < 0) return;
    const int now = std::exchange(micro_batch_, micro_batch);
    release_inputs(layer);
    micro_batch_ = now;
  }

  // A copy of the layer's own, whoever else reads the value.
  void fetch_activations(int layer) {
    end_activation_offload();
    add(ByteKind::kValues, input_bytes(layer));
    fetched_.insert({layer, micro_batch_});
    look(rank_, position_);
  }

  void let_inputs_go(int layer) {
    if (fetched_.erase({layer, micro_batch_}) > 0) {
      add(ByteKind::kValues, -input_bytes(layer));
    } else {
      release_inputs(layer);
    }
  }

  std::int64_t input_bytes(int layer) const {
    std::int64_t bytes = 0;
    for (const int v : placement_.inputs[layer]) bytes += value_bytes(v);
    return bytes;
  }

  // Beside the shard, which waits for the sum or has that of the micro-batches before.
  void hold_whole_gradient(int layer) {
    if (shards_[layer].opened_gradients == 0 || open_[layer]) return;
    open_[layer] = true;
    add(whole_gradient_kind(layer), shards_[layer].opened_gradients);
  }

  void let_whole_gradient_go(int layer) {
    if (!open_[layer]) return;
    open_[layer] = false;
    add(whole_gradient_kind(layer), -shards_[layer].opened_gradients);
  }

  void end_reduction(int layer) {
    if (replicas_ > 1) look_with_transients(std::min(kSumBytes, shards_[layer].own_gradients));
    add(ByteKind::kBuffers, -shards_[layer].received);
    let_whole_gradient_go(layer);
  }

  // Its bytes are on the host; whoever waits for that lets the buffer go.
  void end_offload() {
    if (leaving_[rank_] >= 0) let_whole_gradient_go(leaving_[rank_]);
    leaving_[rank_] = -1;
  }

  ByteKind whole_gradient_kind(int layer) const {
    return shards_[layer].shards.reduced_each ? ByteKind::kBuffers : ByteKind::kGradients;
  }

  // The receiver is charged from now on, and the sender no longer if it `lets_go`.
  void take_over(const Action& action, bool lets_go, double seconds) {
    const std::int64_t bytes = value_bytes(action.value);
    add(ByteKind::kValues, bytes);
    look(rank_, position_);
    if (!lets_go) return;
    if (traits_.meets && !has_met_[action.peer]) {
      in_flight_[action.peer].push_back({rank_, performed_, bytes});
      return;
    }
    now_[action.peer][ByteKind::kValues] -= bytes;
    change(action.peer, seconds, -bytes);
  }

  // A peer may be later than the simulated one: what it was sent is gone for certain when something comes
  // back that it sent after it had received that. Peer -1: all of them.
  void let_received_go(int peer, std::int64_t before, double seconds) {
    std::erase_if(in_flight_[rank_], [&](const InFlight& sent) {
      if ((peer >= 0 && sent.peer != peer) || sent.received >= before) return false;
      now_[rank_][ByteKind::kValues] -= sent.bytes;
      change(rank_, seconds, -sent.bytes);
      return true;
    });
  }

  void release_inputs(int layer) {
    for (const int v : placement_.inputs[layer]) {
      --references(v, rank_);
      free_unless_used(v);
    }
  }

  void free_unless_used(int value) {
    if (references(value, rank_) == 0) add(ByteKind::kValues, -value_bytes(value));
  }

  int& references(int value, int rank) { return holders_.references(value, rank, micro_batch_); }

  std::int64_t scaled(std::int64_t bytes) const {
    return std::llround(static_cast<double>(bytes) * costs_.scale(micro_batch_));
  }
  std::int64_t forward_transients(const LayerCost& cost) const {
    return cost.forward_fixed_bytes +
           scaled(cost.forward_transient_bytes - cost.forward_fixed_bytes);
  }
  std::int64_t value_bytes(int value) const { return scaled(costs_.values[value].bytes); }

  void add(ByteKind kind, std::int64_t bytes) { now_[rank_][kind] += bytes; }

  void look_with_transients(std::int64_t bytes) {
    now_[rank_][ByteKind::kTransients] = bytes;
    look(rank_, position_);
    now_[rank_][ByteKind::kTransients] = 0;
  }

  void look(int rank, int position) {
    const std::int64_t total = now_[rank].total();
    action_peak_ = std::max(action_peak_, total);
    RankLedger& rank_ledger = ledger_[rank];
    if (total <= rank_ledger.peak_bytes) return;
    rank_ledger.peak_bytes = total;
    rank_ledger.peak_position = position;
    rank_ledger.at_peak = now_[rank];
  }

  const Dataflow& dataflow_;
  const CostTable& costs_;
  LayerPlacement placement_;
  Traits traits_;
  std::vector<ByteTable> now_;  // per rank
  Ledger ledger_;
  // Per rank, by time: an action frees at its end, after others may have freed bytes of its rank.
  std::vector<std::vector<Change>> changes_;
  ValueHolders holders_;
  std::vector<bool> copies_;                      // per layer
  std::vector<ShardBytes> shards_;                // per layer
  std::vector<std::vector<InFlight>> in_flight_;  // per rank
  std::vector<bool> has_met_;                     // per rank: it is behind the norm
  std::map<MessageKey, std::int64_t> sent_;       // not received yet: when, among all actions
  std::int64_t performed_ = 0;
  int replicas_;
  std::vector<bool> open_;                 // per layer: its whole gradient is here for a while
  std::set<std::pair<int, int>> fetched_;  // (layer, micro-batch): inputs that came back
  std::vector<std::pair<int, int>> activations_leaving_;  // per rank: the same, being offloaded
  std::vector<std::int64_t> host_activations_;            // per rank
  std::vector<int> leaving_;         // per rank: the layer whose gradient is being offloaded
  std::vector<SegmentPools> pools_;  // per rank
  int rank_ = 0;                     // of the action being performed
  int position_ = 0;
  int micro_batch_ = -1;
  std::int64_t action_peak_ = 0;
};

}  // namespace

const char* name_of(ByteKind kind) {
  constexpr const char* kNames[kNumByteKinds] = {
      "weights", "gradients", "states",  "replicas",   "saved", "values",  "transients",
      "buffers", "batch",     "context", "workspaces", "pools", "rounding"};
  return kNames[static_cast<int>(kind)];
}

std::int64_t ByteTable::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::int64_t ByteTable::charged() const {
  const ByteTable& all = *this;
  return total() - all[ByteKind::kContext] - all[ByteKind::kPools] - all[ByteKind::kRounding];
}

Ledger make_ledger(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
                   const CostTable& costs, const Simulation& simulation, const ShardLayout& shards,
                   bool reads_in_place, const TierLayout& tiers, const RecordedPrograms& recorded) {
  Bookkeeper books(schedule, dataflow, partition, costs, shards, reads_in_place, tiers, recorded);
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
