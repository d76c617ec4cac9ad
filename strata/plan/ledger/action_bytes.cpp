// Applies each action to the bytes of its rank. Part of Bookkeeper.
#include <algorithm>
#include <cmath>
#include <utility>

#include "strata/plan/ledger/bookkeeper.h"

namespace strata {
namespace {

// The bytes of other ranks' gradients that a rank adds at a time (comm/ordered_sum.cpp).
constexpr std::int64_t kSumBytes = 1 << 17;

}  // namespace

void Bookkeeper::walk(const Action& action, double end_seconds) {
  micro_batch_ = action.micro_batch;
  const auto [begin, end] = action.layers;
  if (is_compute(action.op)) return compute(action);
  switch (action.op) {
    case Op::kSendActivation:
    case Op::kSendGradient:
      send(action);
      break;
    case Op::kReceiveActivation:
      references(action.value, rank_) = holders_.readers(action.value, rank_);
      take_over(action, --references(action.value, action.peer) == 0, end_seconds);
      break;
    case Op::kReceiveGradient:
      take_over(action, true, end_seconds);
      break;
    case Op::kSendTiedWeight:
    case Op::kSendTiedGradient:
      add(ByteKind::kValues, tied_bytes(costs_.layers[action.consumer], action.op));
      look(rank_, position_);
      break;
    case Op::kReceiveTiedWeight:
    case Op::kReceiveTiedGradient:
      receive_tied(action, end_seconds);
      break;
    case Op::kAddTiedGradients:
      add(ByteKind::kValues, -std::exchange(tied_gradients_[action.value], 0));
      break;
    case Op::kPrefetchWeights:
      for (int l = begin; l < end; ++l) {
        add(ByteKind::kBuffers, shards_[l].fetched_weights);
        bring_part(l);
      }
      look(rank_, position_);
      break;
    case Op::kReleaseWeights:
      for (int l = begin; l < end; ++l) add(ByteKind::kBuffers, -shards_[l].fetched_weights);
      break;
    case Op::kReduceGradients:
      for (int l = begin; l < end; ++l)
        add(ByteKind::kBuffers, shards_[l].received + shards_[l].gradient_code);
      look(rank_, position_);
      for (int l = begin; l < end; ++l)
        if (shards_[l].gradient_code > 0) let_whole_gradient_go(l);
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
      end_export();
      let_parts_go(parts_[rank_].gathered);
      end_offload();
      break;
    case Op::kUpdate:  // states and weights stay in place
      for (int l = begin; l < end; ++l) update(l);
      break;
    case Op::kForward:  // compute() does these
    case Op::kRecompute:
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kGatherWeights:  // kUpdate has started this exchange
    case Op::kPrefetchRows:   // embeddings wait in host memory
    case Op::kFetchRows:
    case Op::kSendRowGradients:
      break;
  }
}

void Bookkeeper::compute(const Action& action) {
  const auto [begin, end] = action.layers;
  if (action.op == Op::kForward || action.op == Op::kRecompute) {
    for (int l = begin; l < end; ++l) {
      gather(l);
      action.op == Op::kForward ? forward(l) : recompute(l);
    }
    return;
  }
  for (int l = end; l-- > begin;) {
    gather(l);
    if (action.op == Op::kBackward) backward(l);
    if (action.op == Op::kBackwardInput) backward_inputs(l);
    if (action.op == Op::kBackwardWeight) backward_weights(l);
  }
}

void Bookkeeper::update(int layer) {
  const LayerCost& cost = costs_.layers[layer];
  const bool shared = shards_[layer].states < cost.state_bytes;
  look_with_transients(cost.update_bytes + (shared ? cost.shared_update_bytes : 0) +
                       shards_[layer].signs);
}

void Bookkeeper::forward(int layer) {
  const LayerCost& cost = costs_.layers[layer];
  for (const int v : placement_.outputs[layer]) {
    add(ByteKind::kValues, value_bytes(v));
    make(v, -1);
    references(v, rank_) = holders_.readers(v, rank_) + holders_.ranks_served(v);
  }
  const bool keeps_graph = traits_.trains && !traits_.recompute.has(layer);
  if (keeps_graph) add(ByteKind::kSaved, scaled(cost.saved_bytes));
  look_with_transients(keeps_graph
                           ? scaled(cost.forward_transient_bytes, cost.forward_fixed_bytes)
                           : scaled(cost.no_grad_transient_bytes, cost.no_grad_fixed_bytes));
  for (const int v : placement_.outputs[layer]) free_unless_used(v);
  if (!traits_.trains) release_inputs(layer);
}

void Bookkeeper::recompute(int layer) {
  const LayerCost& cost = costs_.layers[layer];
  if (fetched_.contains({layer, micro_batch_})) host_activations_[rank_] -= input_bytes(layer);
  add(ByteKind::kSaved, scaled(cost.saved_bytes));
  std::int64_t transients = scaled(cost.forward_transient_bytes, cost.forward_fixed_bytes);
  for (const int v : placement_.outputs[layer]) transients += value_bytes(v);
  look_with_transients(transients);
}

void Bookkeeper::backward(int layer) {
  make_input_gradients(layer);
  const LayerCost& cost = costs_.layers[layer];
  look_with_transients(scaled(cost.backward_transient_bytes, cost.backward_fixed_bytes));
  add(ByteKind::kSaved, -scaled(cost.saved_bytes));
  let_output_gradients_go(layer);
  let_inputs_go(layer);
}

// The second half reads the layer's inputs and what the first one keeps for it, gradients of
// outputs included.
void Bookkeeper::backward_inputs(int layer) {
  const LayerCost& cost = costs_.layers[layer];
  make_input_gradients(layer);
  look_with_transients(scaled(cost.input_transient_bytes, cost.backward_fixed_bytes));
  add(ByteKind::kSaved, scaled(cost.kept_bytes) - scaled(cost.saved_bytes));
  let_output_gradients_go(layer);
}

void Bookkeeper::backward_weights(int layer) {
  const LayerCost& cost = costs_.layers[layer];
  hold_whole_gradient(layer);
  look_with_transients(scaled(cost.weight_transient_bytes, cost.backward_fixed_bytes));
  add(ByteKind::kSaved, -scaled(cost.kept_bytes));
  let_inputs_go(layer);
}

void Bookkeeper::make_input_gradients(int layer) {
  for (const int v : placement_.inputs[layer]) {
    if (!dataflow_.values[v].differentiable) continue;
    add(ByteKind::kValues, value_bytes(v));
    make(v, layer);
  }
  hold_whole_gradient(layer);
}

void Bookkeeper::let_output_gradients_go(int layer) {
  for (const int v : placement_.outputs[layer]) {
    const Value& value = dataflow_.values[v];
    if (!value.differentiable) continue;
    for (const int consumer : value.consumers) {
      add(ByteKind::kValues, -value_bytes(v));
      leave(v, consumer);
    }
  }
}

// Frees the inputs of the previous offload: a rank waits for that offload before it starts the
// next.
void Bookkeeper::offload_activations(int layer) {
  end_activation_offload();
  activations_leaving_[rank_] = {layer, micro_batch_};
  std::int64_t& host = host_activations_[rank_];
  host += input_bytes(layer);
  ledger_[rank_].host.activations = std::max(ledger_[rank_].host.activations, host);
}

void Bookkeeper::end_activation_offload() {
  const auto [layer, micro_batch] = std::exchange(activations_leaving_[rank_], {-1, -1});
  if (layer < 0) return;
  const int now = std::exchange(micro_batch_, micro_batch);
  release_inputs(layer);
  micro_batch_ = now;
}

// The layer has a copy of its own, even if other layers read the value.
void Bookkeeper::fetch_activations(int layer) {
  end_activation_offload();
  add(ByteKind::kValues, input_bytes(layer));
  fetched_.insert({layer, micro_batch_});
  look(rank_, position_);
}

void Bookkeeper::let_inputs_go(int layer) {
  if (fetched_.erase({layer, micro_batch_}) > 0) {
    add(ByteKind::kValues, -input_bytes(layer));
  } else {
    release_inputs(layer);
  }
}

std::int64_t Bookkeeper::input_bytes(int layer) const {
  std::int64_t bytes = 0;
  for (const int v : placement_.inputs[layer]) bytes += value_bytes(v);
  return bytes;
}

// The whole gradient exists in addition to the shard, which waits for the sum or holds the earlier
// micro-batches.
void Bookkeeper::hold_whole_gradient(int layer) {
  if (shards_[layer].opened_gradients == 0 || open_[layer]) return;
  open_[layer] = true;
  add(whole_gradient_kind(layer), shards_[layer].opened_gradients);
}

void Bookkeeper::let_whole_gradient_go(int layer) {
  if (!open_[layer]) return;
  open_[layer] = false;
  add(whole_gradient_kind(layer), -shards_[layer].opened_gradients);
}

// The sum of an offloaded shard is allocated while the previous one may still be in transit.
void Bookkeeper::end_reduction(int layer) {
  const std::int64_t sum = travelling_bytes(layer);
  add(ByteKind::kBuffers, sum);
  // the sum is allocated before peers report that they have read the exported gradient
  look(rank_, position_);
  // A rank that starts another reduction in the same step has awaited the previous one. With one
  // reduction per step, all start before any is awaited, so a gradient that peers read stays until
  // the norm.
  if (shards_[layer].shards.reduced_each) end_export();
  add(ByteKind::kBuffers, shards_[layer].sum_code);
  // Of a code that another process has on this machine, a rank adds a copy.
  const std::int64_t code = shards_[layer].gradient_code;
  if (replicas_ > 1)
    look_with_transients(code > 0 ? code / replicas_
                                  : std::min(kSumBytes, shards_[layer].own_gradients));
  add(ByteKind::kBuffers, -shards_[layer].received);
  if (shards_[layer].gradient_code > 0) {
    exported_[rank_].first = ByteKind::kBuffers;
    exported_[rank_].second += shards_[layer].gradient_code + shards_[layer].sum_code;
  } else if (exports_gradient(layer)) {
    open_[layer] = false;
    exported_[rank_].first = whole_gradient_kind(layer);
    exported_[rank_].second += shards_[layer].opened_gradients;
  } else {
    let_whole_gradient_go(layer);
  }
  if (sum > 0) add(ByteKind::kBuffers, -std::exchange(leaving_sum_[rank_], sum));
}

// Whether peers may still read the gradient in place. NCCL is done with it when this rank is.
bool Bookkeeper::exports_gradient(int layer) const {
  const bool by_library = costs_.launch.kernel > 0 && shards_[layer].received > 0;
  return open_[layer] && replicas_ > 1 && !by_library;
}

void Bookkeeper::end_export() {
  const auto [kind, bytes] = std::exchange(exported_[rank_], {ByteKind::kBuffers, 0});
  add(kind, -bytes);
}

// Fetches this rank's part of weights that live off the device to the device. On a CPU it fetches
// from disk to host memory that peers may read longer than a staging buffer lasts. A code of the
// part is made on the device.
void Bookkeeper::bring_part(int layer) {
  const std::int64_t bytes = shards_[layer].gathered_part;
  if (bytes == 0 || replicas_ == 1) return;
  Parts& parts = parts_[rank_];
  parts.here.push_back({.layer = layer, .bytes = bytes, .begun = parts.gathered});
  add_part(layer, bytes);
}

// A replica that starts to fetch this layer has completed the gathers before it in its program, so
// the parts of those layers are no longer read.
void Bookkeeper::gather(int layer) {
  Parts& parts = parts_[rank_];
  const auto part = std::ranges::find_if(
      parts.here, [&](const Part& it) { return it.layer == layer && it.gathered == 0; });
  if (part == parts.here.end()) return;
  part->gathered = ++parts.gathered;
  if (shards_[layer].weight_code > 0) look_with_transients(part->bytes);  // a copy of a code
  let_parts_go(part->begun);
}

void Bookkeeper::let_parts_go(int gathered) {
  std::erase_if(parts_[rank_].here, [&](const Part& part) {
    if (part.gathered == 0 || part.gathered > gathered) return false;
    add_part(part.layer, -part.bytes);
    return true;
  });
}

void Bookkeeper::add_part(int layer, std::int64_t bytes) {
  if (costs_.launch.kernel > 0 || shards_[layer].weight_code > 0)
    return add(ByteKind::kBuffers, bytes);
  const LayerOnDisk& disk = shards_[layer].disk;
  // peers read them where they are updated
  if (disk.weights == 0 || disk.weights_on_host) return;
  Parts& parts = parts_[rank_];
  parts.host_bytes += bytes;
  parts.most_host_bytes = std::max(parts.most_host_bytes, parts.host_bytes);
}

// A GPU sums a shard that lives on the host in device memory. A CPU sums it in place.
std::int64_t Bookkeeper::travelling_bytes(int layer) const {
  const bool travels = replicas_ > 1 && costs_.launch.kernel > 0;
  return travels ? shards_[layer].updated.gradients : 0;
}

// The copy to the host is complete, so the buffer is free.
void Bookkeeper::end_offload() {
  if (leaving_[rank_] >= 0) let_whole_gradient_go(leaving_[rank_]);
  leaving_[rank_] = -1;
  add(ByteKind::kBuffers, -std::exchange(leaving_sum_[rank_], 0));
}

ByteKind Bookkeeper::whole_gradient_kind(int layer) const {
  return shards_[layer].shards.reduced_each ? ByteKind::kBuffers : ByteKind::kGradients;
}

// Charges the receiver from now on, and the sender no longer if `lets_go`.
void Bookkeeper::take_over(const Action& action, bool lets_go, double seconds) {
  const std::int64_t bytes = value_bytes(action.value);
  add(ByteKind::kValues, bytes);
  make(action.value, action.consumer);
  look(rank_, position_);
  const SentValue sent{bytes, made(action.peer, action.value, action.consumer)};
  if (lets_go && !sent_.holds_on(action.peer, rank_, sent)) let_sent_go(action.peer, sent, seconds);
}

// A sent weight or gradient is a copy; the original stays. A weight is copied into place, a
// gradient waits for the sum.
void Bookkeeper::receive_tied(const Action& action, double seconds) {
  const std::int64_t bytes = tied_bytes(costs_.layers[action.consumer], action.op);
  add(ByteKind::kValues, bytes);
  look(rank_, position_);
  const SentValue sent{bytes, SegmentPools::kOrdinary};
  if (!sent_.holds_on(action.peer, rank_, sent)) let_sent_go(action.peer, sent, seconds);
  if (action.op == Op::kReceiveTiedGradient) {
    tied_gradients_[action.value] += bytes;
  } else {
    add(ByteKind::kValues, -bytes);
  }
}

void Bookkeeper::let_sent_go(int rank, const SentValue& sent, double seconds) {
  now_[rank][ByteKind::kValues] -= sent.bytes;
  pools_[rank].let_go(sent.made, sent.bytes);
  changes_[rank].add(seconds, -sent.bytes);
}

void Bookkeeper::make(int value, int consumer) {
  if (!pools_[rank_].empty())
    made_[{rank_, value, consumer, micro_batch_}] = pools_[rank_].made(value_bytes(value));
}

int Bookkeeper::made(int rank, int value, int consumer) const {
  const auto known = made_.find({rank, value, consumer, micro_batch_});
  return known == made_.end() ? SegmentPools::kOrdinary : known->second;
}

// Segments that begin later do not find the value, unless layers on this rank still read it.
void Bookkeeper::send(const Action& action) {
  if (pools_[rank_].empty()) return;
  const bool gradient = action.op == Op::kSendGradient;
  if (!gradient && holders_.readers(action.value, rank_) > 0) return;
  int& made = made_.at({rank_, action.value, action.consumer, micro_batch_});
  pools_[rank_].leaves(made, value_bytes(action.value));
  made = pools_[rank_].stays(made) ? SegmentPools::kForEver : SegmentPools::kOrdinary;
}

void Bookkeeper::leave(int value, int consumer) {
  if (pools_[rank_].empty()) return;
  const int made = this->made(rank_, value, consumer);
  pools_[rank_].leaves(made, value_bytes(value));
  if (pools_[rank_].stays(made)) stays_ += value_bytes(value);
}

void Bookkeeper::release_inputs(int layer) {
  for (const int v : placement_.inputs[layer]) {
    --references(v, rank_);
    free_unless_used(v);
  }
}

void Bookkeeper::free_unless_used(int value) {
  if (references(value, rank_) != 0) return;
  add(ByteKind::kValues, -value_bytes(value));
  leave(value, -1);
}

std::int64_t Bookkeeper::scaled(std::int64_t bytes) const {
  return std::llround(static_cast<double>(bytes) * costs_.scale(micro_batch_));
}

std::int64_t Bookkeeper::scaled(std::int64_t bytes, std::int64_t fixed) const {
  return fixed + scaled(bytes - fixed);
}

void Bookkeeper::look_with_transients(std::int64_t bytes) {
  now_[rank_][ByteKind::kTransients] = bytes;
  look(rank_, position_);
  now_[rank_][ByteKind::kTransients] = 0;
}

}  // namespace strata
