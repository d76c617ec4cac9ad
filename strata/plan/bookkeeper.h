/// Keeps the books of a step: what each rank holds while its actions are performed, in the order of the simulated
/// clock. ledger.h says by which rules.
///
/// The rules themselves, action by action, are in action_bytes.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "strata/plan/byte_changes.h"
#include "strata/plan/ledger.h"
#include "strata/plan/segment_pools.h"
#include "strata/plan/sent_values.h"
#include "strata/plan/value_holders.h"
#include "strata/schedule/dataflow.h"

namespace strata {

/// What programs say of a step.
struct StepTraits {
  bool trains = false;  ///< has backwards
  bool meets = false;   ///< all ranks do, at the norm
  LayerSet recompute;
};

class Bookkeeper {
 public:
  Bookkeeper(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
             const CostTable& costs, const ShardLayout& shards, bool reads_in_place,
             const TierLayout& tiers, const RecordedPrograms& recorded,
             const std::vector<std::int64_t>& other_pools);

  void perform(ActionRef ref, const Action& action, const TraceEvent& event);
  Ledger take();

 private:
  void find_copies();
  void hold_from_before(int rank, const Program& program);
  void add_fixed(int layer);
  void look(int rank, int position);

  // ---- Of what lies where a recording has it
  void make(int value, int consumer);
  void send(const Action& action);
  int made(int rank, int value, int consumer) const;
  void leave(int value, int consumer);

  // ---- Of the action being performed
  void walk(const Action& action, double end_seconds);
  void forward(int layer);
  void recompute(int layer);
  void backward(int layer);
  void offload_activations(int layer);
  void end_activation_offload();
  void fetch_activations(int layer);
  void let_inputs_go(int layer);
  std::int64_t input_bytes(int layer) const;
  void hold_whole_gradient(int layer);
  void let_whole_gradient_go(int layer);
  void end_reduction(int layer);
  std::int64_t travelling_bytes(int layer) const;
  bool lends(int layer) const;
  void bring_part(int layer);
  void gather(int layer);
  void let_parts_go(int before);
  void add_part(int layer, std::int64_t bytes);
  void end_loan();
  void end_offload();
  ByteKind whole_gradient_kind(int layer) const;
  void take_over(const Action& action, bool lets_go, double seconds);
  void receive_tied(const Action& action, double seconds);
  void let_sent_go(int rank, const SentValue& sent, double seconds);
  void release_inputs(int layer);
  void free_unless_used(int value);
  std::int64_t scaled(std::int64_t bytes) const;
  std::int64_t scaled(std::int64_t bytes, std::int64_t fixed) const;
  void look_with_transients(std::int64_t bytes);
  int& references(int value, int rank) { return holders_.references(value, rank, micro_batch_); }
  std::int64_t value_bytes(int value) const { return scaled(costs_.values[value].bytes); }
  void add(ByteKind kind, std::int64_t bytes) { now_[rank_][kind] += bytes; }

  const Dataflow& dataflow_;
  const CostTable& costs_;
  LayerPlacement placement_;
  StepTraits traits_;
  std::vector<ByteTable> now_;  // per rank
  Ledger ledger_;
  std::vector<ByteChanges> changes_;  // per rank
  ValueHolders holders_;
  std::vector<bool> copies_;        // per layer
  std::vector<ShardBytes> shards_;  // per layer
  SentValues sent_;
  std::vector<std::int64_t> tied_gradients_;  // per tie: of uses elsewhere, until they are added
  int replicas_;
  std::vector<bool> open_;                 // per layer: its whole gradient is here for a while
  std::set<std::pair<int, int>> fetched_;  // (layer, micro-batch): inputs that came back
  std::vector<std::pair<int, int>> activations_leaving_;  // per rank: the same, being offloaded
  std::vector<std::int64_t> host_activations_;            // per rank
  std::vector<int> leaving_;  // per rank: the layer whose gradient is being offloaded
  std::vector<std::pair<ByteKind, std::int64_t>>
      lent_;  // per rank: a reduced gradient that others read
  std::vector<std::int64_t>
      leaving_sum_;  // per rank: of a sum of replicas' gradients, on its way to the host
  // Of gathered weights, this rank's part, which replicas read where the fetch has brought it.
  struct Part {
    int layer = 0;
    std::int64_t bytes = 0;
    int begun = 0;     // how many layers had been gathered when it came
    int gathered = 0;  // the number of its own; 0: not yet
  };
  struct Parts {
    std::vector<Part> here;
    int gathered = 0;                                  // layers, so far
    std::int64_t host_bytes = 0, most_host_bytes = 0;  // of those that lie on the host
  };
  std::vector<Parts> parts_;         // per rank
  std::vector<SegmentPools> pools_;  // per rank
  std::int64_t stays_ = 0;           // SegmentPools::end(), of the action being performed
  // Where anything is recorded, what SegmentPools::made() has said: of a rank, a value or the gradient that one of
  // its readers gives (-1: the value), and a micro-batch.
  using Place = std::tuple<int, int, int, int>;
  std::map<Place, int> made_;
  int rank_ = 0;  // of the action being performed
  int position_ = 0;
  int micro_batch_ = -1;
  std::int64_t action_peak_ = 0;
};

}  // namespace strata
