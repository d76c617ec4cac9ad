/// Checks each action against everything that all ranks have done before it.
///
/// Cost    a few array look-ups per action; one byte per layer and micro-batch, and Messages.
/// Errors  BrokenRule, here and in Messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/schedule/messages.h"
#include "strata/schedule/validator.h"

namespace strata {

std::string layer_name(int layer);  ///< as errors call it: "layer 3"

class Rules {
 public:
  Rules(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
        const ValidateOptions& options);

  /// Returns false while the action's message has not been sent or a rank has not reached the
  /// collective.
  bool ready(const Action& action, int rank);
  void perform(const Action& action, int rank);

  /// Checks that a rank that has performed its whole program has left nothing undone.
  void check_end(int rank) const;

  /// The rank that has to act before this action, which is not ready, can start.
  int awaited_rank(const Action& action) const;

  const Messages& messages() const { return messages_; }
  const std::vector<int>& peak_in_flight() const { return peak_in_flight_; }

 private:
  /// kAway: the forward has run and its inputs are on the host. kInputs: the first half of the
  /// backward has run.
  enum class State : std::uint8_t { kNothing, kForward, kAway, kRecompute, kInputs, kBackward };

  void check_compute(const Action& action, int rank) const;
  void forward(const Action& action, int rank);
  void recompute(const Action& action);
  void backward(const Action& action, int rank);
  void make_input_gradients(const Action& action, int layer, int rank);
  void end_weight_gradients(const Action& action, int layer);
  static bool has_input_gradients(State state) {
    return state == State::kInputs || state == State::kBackward;
  }
  void check_send(const Action& action, int rank) const;
  void check_send_of_tie(const Action& action, int rank) const;
  void move_activations(const Action& action, int rank);
  void add_ties(const Action& action, int rank);
  void fetch(const Action& action, int rank);
  void release(const Action& action);
  void reduce(const Action& action, int rank);
  void await(const Action& action);
  void offload(const Action& action, int rank);
  bool is_away(int layer) const;
  void check_offloaded(const Action& action, int layer) const;
  void check_own_layers(const Action& action, int rank) const;
  void check_reduced(const Action& action, int layer) const;
  void reduce_norm(const Action& action, int rank);
  void update(const Action& action, int rank);
  void gather(const Action& action) const;
  void move_rows(const Action& action, int rank);
  void check_rows_sent(const Action& action, int rank) const;
  void check_backwards_done(const Action& action, int layer) const;
  template <typename F>
  void for_each_layer(int rank, F f) const;  // calls f for every layer of the rank's stages

  bool has_value(int value, int micro_batch, int rank) const;
  bool has_gradient(int value, int consumer, int micro_batch, int rank) const;
  void enter_flight(const Action& action, int rank);
  void leave_flight(const Action& action, int rank);

  State& state(int layer, int micro_batch) {
    return states_[static_cast<std::size_t>(layer) * schedule_->num_micro_batches + micro_batch];
  }
  State state(int layer, int micro_batch) const {
    return const_cast<Rules*>(this)->state(layer, micro_batch);
  }
  int& layers_done(const Action& action) {
    return layers_done_[static_cast<std::size_t>(action.stage) * schedule_->num_micro_batches +
                        action.micro_batch];
  }

  const Schedule* schedule_;
  const Dataflow* dataflow_;
  const Partition* partition_;
  const ValidateOptions* options_;
  LayerPlacement placement_;
  Messages messages_;
  std::vector<State> states_;    // per layer and micro-batch
  std::vector<bool> held_;       // per layer: its weights are fetched
  std::vector<bool> under_way_;  // per layer: a reduction of its gradients is in progress
  // per layer: the number of micro-batches whose gradients are reduced
  std::vector<int> reduced_;
  std::vector<bool> offloaded_;               // per layer: its gradients are on the host
  std::vector<Op> rows_;                      // the actions on embeddings so far, in order
  std::vector<std::vector<int>> owned_ties_;  // per layer
  std::vector<bool> added_;                   // per tie: its gradients are summed
  // per layer: the micro-batch whose gradients of inputs, and of weights, come next
  std::vector<int> next_input_, next_backward_;
  std::vector<int> layers_done_;        // per stage and micro-batch: forwards less backwards
  std::vector<int> in_flight_;          // per rank
  std::vector<int> peak_in_flight_;     // per rank
  std::vector<bool> at_norm_, normed_;  // per rank
  std::vector<bool> updated_;           // per layer
  int ranks_at_norm_ = 0;
  bool any_updated_ = false;
};

}  // namespace strata
