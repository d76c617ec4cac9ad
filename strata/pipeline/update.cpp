// The end of a step: ties, the gradient norm, the optimizer. Part of StageMachine.
#include "strata/optim/gradient_norm.h"
#include "strata/pipeline/stage_machine.h"

namespace strata {
namespace {

// Index, in its layer, of the weight that takes part in a tie.
std::size_t tied_weight(const LayerLayout& layout, const std::string& tie) {
  for (std::size_t i = 0; i < layout.specs.size(); ++i)
    if (layout.specs[i].tie == tie) return i;
  throw InternalError(
      {.operation = "pipeline.tied_weight", .what = "no weight in the tie", .got = tie});
}

}  // namespace

void StageMachine::send_tied(const Action& action) {
  const Tie& tie = model_.wiring().ties[action.value];
  const bool is_gradient = action.op == Op::kSendTiedGradient;
  const int layer = is_gradient ? action.consumer : tie.owner;
  const Lease lease = store_.acquire(layer);
  const at::Tensor& leaf = lease.weights()[tied_weight(*lease.buffers().layout, tie.name)];
  // A copy: the buffer itself stays here and will be written again.
  group_.send(action.peer,
              {.kind = static_cast<std::int32_t>(action.op),
               .value = action.value,
               .consumer = action.consumer},
              (is_gradient ? leaf.grad() : leaf.detach()).clone());
}

void StageMachine::receive_tied(const Action& action) {
  const bool is_gradient = action.op == Op::kReceiveTiedGradient;
  const Op send = is_gradient ? Op::kSendTiedGradient : Op::kSendTiedWeight;
  at::Tensor tensor = group_.receive(action.peer, {.kind = static_cast<std::int32_t>(send),
                                                   .value = action.value,
                                                   .consumer = action.consumer});
  if (is_gradient) {
    received_ties_[{action.value, action.consumer}] = std::move(tensor);
    return;
  }
  const Lease lease = store_.acquire(action.consumer);
  const std::string& tie = model_.wiring().ties[action.value].name;
  lease.weights()[tied_weight(*lease.buffers().layout, tie)].detach().copy_(tensor);
}

// Adds the gradients of all uses to the owner's, in ascending layer order.
void StageMachine::sum_ties() {
  const std::vector<Tie>& ties = model_.wiring().ties;
  for (int index = 0; index < static_cast<int>(ties.size()); ++index) {
    const Tie& tie = ties[index];
    if (!is_local(tie.owner)) continue;
    const Lease owner = store_.acquire(tie.owner);
    at::Tensor sum = owner.weights()[tied_weight(*owner.buffers().layout, tie.name)].grad();
    for (const int user : tie.users) {
      if (is_local(user)) {
        const Lease lease = store_.acquire(user);
        sum.add_(lease.weights()[tied_weight(*lease.buffers().layout, tie.name)].grad());
      } else {
        sum.add_(received_ties_.at({index, user}));
      }
    }
  }
  received_ties_.clear();
}

void StageMachine::reduce_norm() {
  sum_ties();
  // One entry a layer, filled by its rank alone (adding zeros is exact), and the loss behind them.
  std::vector<double> shared(model_.num_layers() + 1, 0.0);
  for (const int layer : store_.layers()) {
    const Lease lease = store_.acquire(layer);
    const LayerBuffers& buffers = lease.buffers();
    shared[layer] = sum_of_squares(buffers.gradients.narrow(0, 0, buffers.layout->own_numel));
  }
  shared.back() = loss_.sum;
  group_.all_reduce(shared);
  outcome_.loss = shared.back() / static_cast<double>(inputs_.valid_tokens);
  shared.pop_back();
  outcome_.gradient_norm = global_norm(shared);
}

void StageMachine::update() {
  const double factor = clip_factor(outcome_.gradient_norm, options_.clip);
  for (const int layer : store_.layers()) {
    const Lease lease = store_.acquire(layer);
    const LayerBuffers& buffers = lease.buffers();
    const at::Tensor gradients = buffers.gradients.narrow(0, 0, buffers.layout->own_numel);
    if (factor != 1.0) gradients.mul_(factor);
    if (buffers.layout->own_numel == 0) continue;
    optimizer_->update({.weights = buffers.weights,
                        .gradients = gradients,
                        .slots = buffers.slots,
                        .decay_numel = buffers.layout->decay_numel},
                       inputs_.step + 1, inputs_.learning_rate);
  }
}

}  // namespace strata
