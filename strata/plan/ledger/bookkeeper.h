/// Records what each rank holds while its actions are performed, in the order of the simulated
/// clock. ledger.h states the rules.
///
/// action_bytes.cpp applies the rules action by action.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "strata/layout/dataflow.h"
#include "strata/plan/ledger/byte_changes.h"
#include "strata/plan/ledger/ledger.h"
#include "strata/plan/ledger/segment_pools.h"
#include "strata/plan/ledger/sent_values.h"
#include "strata/plan/ledger/value_holders.h"

namespace strata {

/// Properties of a step's programs.
struct StepTraits {
  bool trains = false;  ///< the step has backwards
  bool meets = false;   ///< the step has a norm, at which all ranks meet
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

  // ---- Values and gradients at recorded addresses
  void make(int value, int consumer);
  void send(const Action& action);
  int made(int rank, int value, int consumer) const;
  void leave(int value, int consumer);

  // ---- The current action
  void walk(const Action& action, double end_seconds);
  void update(int layer);
  void forward(int layer);
  void compute(const Action& action);
  void recompute(int layer);
  void backward(int layer);
  void backward_inputs(int layer);
  void backward_weights(int layer);
  void make_input_gradients(int layer);
  void let_output_gradients_go(int layer);
  void offload_activations(int layer);
  void end_activation_offload();
  void fetch_activations(int layer);
  void let_inputs_go(int layer);
  std::int64_t input_bytes(int layer) const;
  void hold_whole_gradient(int layer);
  void let_whole_gradient_go(int layer);
  void end_reduction(int layer);
  std::int64_t travelling_bytes(int layer) const;
  bool exports_gradient(int layer) const;
  void bring_part(int layer);
  void gather(int layer);
  void let_parts_go(int before);
  void add_part(int layer, std::int64_t bytes);
  void end_export();
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
  // per tie: gradients of uses on other ranks, until they are added
  std::vector<std::int64_t> tied_gradients_;
  int replicas_;
  std::vector<bool> open_;                 // per layer: its whole gradient is allocated
  std::set<std::pair<int, int>> fetched_;  // (layer, micro-batch): inputs fetched from the host
  std::vector<std::pair<int, int>> activations_leaving_;  // per rank: inputs being offloaded
  std::vector<std::int64_t> host_activations_;            // per rank
  std::vector<int> leaving_;  // per rank: the layer whose gradient is being offloaded
  std::vector<std::pair<ByteKind, std::int64_t>>
      exported_;  // per rank: a reduced gradient that peers still read
  std::vector<std::int64_t>
      leaving_sum_;  // per rank: a sum of replicas' gradients that is being offloaded
  // This rank's part of gathered weights, which replicas read in place after its fetch.
  struct Part {
    int layer = 0;
    std::int64_t bytes = 0;
    int begun = 0;     // the number of gathers that had completed when it was fetched
    int gathered = 0;  // the index of the layer's own gather; 0: not yet
  };
  struct Parts {
    std::vector<Part> here;
    int gathered = 0;  // gathers so far
    // bytes of the parts that are in host memory
    std::int64_t host_bytes = 0, most_host_bytes = 0;
  };
  std::vector<Parts> parts_;         // per rank
  std::vector<SegmentPools> pools_;  // per rank
  std::int64_t stays_ = 0;           // SegmentPools::end() of the current action
  // If anything is recorded: the result of SegmentPools::made() for a rank, a value or the gradient
  // from one of its readers (-1: the value), and a micro-batch.
  using Place = std::tuple<int, int, int, int>;
  std::map<Place, int> made_;
  int rank_ = 0;  // of the current action
  int position_ = 0;
  int micro_batch_ = -1;
  std::int64_t action_peak_ = 0;
};

}  // namespace strata
