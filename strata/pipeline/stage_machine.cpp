#include "strata/pipeline/stage_machine.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/device/account.h"
#include "strata/device/device.h"
#include "strata/device/tensor_executor.h"

namespace strata {
namespace {

MessageTag tag_of(Op send, const Action& action) {
  return {.kind = static_cast<std::int32_t>(send),
          .value = action.value,
          .consumer = action.consumer,
          .micro_batch = action.micro_batch};
}

}  // namespace

StageMachine::StageMachine(const Sequential& model, StepPlan plan, const MachineOptions& options,
                           LayerStore& store, const Optimizer* optimizer, MeshGroups& groups,
                           OffloadedActivations* offloaded, TrackTrace* track_trace,
                           BatchRows* rows, GradientFilter* filter)
    : model_(model),
      plan_(std::move(plan)),
      options_(options),
      store_(store),
      optimizer_(optimizer),
      groups_(groups),
      offloaded_(offloaded),
      step_end_(groups, model.num_layers(), options.clip),
      track_trace_(track_trace),
      rows_(rows),
      filter_(filter) {
  loss_.sum = zero_loss(groups.world.device().options(at::kDouble));
  STRATA_CHECK_EQ(model.split().ranks, groups[Axis::kTensor].size(), "pipeline.stage_machine");
  if (groups[Axis::kTensor].size() > 1)
    tensor_ = std::make_unique<TensorGroup>(groups[Axis::kTensor], model.split().sequence);
  const ContextSplit& context = model.split().context;
  STRATA_CHECK_EQ(context.ranks, groups[Axis::kContext].size(), "pipeline.stage_machine");
  if (context.divides()) context_ = std::make_unique<ContextGroup>(groups[Axis::kContext], context);
  if (!optimizer ||
      !std::ranges::any_of(store.layers(), [&](int layer) { return updates_on_host(layer); }))
    return;
  host_threads_ = std::make_unique<ThreadPool>(thread_pool().threads());
  host_updates_ = std::make_unique<Executor>(tensor_executor("host update"));
}

void StageMachine::begin(const Program& program, StepInputs inputs) {
  if (device_tracks_) device_tracks_->settle();  // those of earlier steps
  inputs_ = std::move(inputs);
  step_end_.begin({.step = inputs_.step,
                   .learning_rate = inputs_.learning_rate,
                   .inverse_valid_tokens =
                       1 / static_cast<double>(std::max<std::int64_t>(1, inputs_.valid_tokens)),
                   .first_sample = inputs_.micro_batches.front().first_sample,
                   .has_gradients = filter_ == nullptr || filter_->has_gradients() ? 1 : 0,
                   .updates = inputs_.updates ? 1 : 0});
  loss_.sum.zero_();  // a recorded step uses its address
  loss_.scores = inputs_.scores;
  tables_ = {};
  graphs_.clear();
  host_squares_.clear();
  reductions_.clear();
  if (offloaded_) offloaded_->clear();
  sends_.assign(model_.dataflow().values.size(), 0);
  for (const Action& action : program)
    if (action.op == Op::kSendActivation && action.micro_batch == 0) ++sends_[action.value];
  make_input_gradients();
  if (!inputs_.training) return;
  for (const int layer : store_.layers())
    store_.acquire(layer, StateKind::kGradients).zero_gradients();
}

// New tensors: readers of the previous step's may still use them.
void StageMachine::make_input_gradients() {
  input_gradients_.assign(model_.batch_inputs().size(), {});
  if (!inputs_.training) return;
  for (const int layer : store_.layers()) {
    for (const InputRef& ref : model_.inputs(layer)) {
      if (ref.value >= 0 || !model_.wants_gradient(ref.batch_input)) continue;
      const at::Tensor& last = inputs_.micro_batches.back().inputs[ref.batch_input];
      std::vector<std::int64_t> shape = last.sizes().vec();
      shape[0] +=
          inputs_.micro_batches.back().first_sample - inputs_.micro_batches.front().first_sample;
      input_gradients_[ref.batch_input] = at::empty(shape, last.options());
    }
  }
}

void StageMachine::keep_input_gradient(int batch_input, int micro_batch,
                                       const at::Tensor& gradient) {
  const std::vector<MicroBatch>& batches = inputs_.micro_batches;
  at::Tensor part = input_gradients_[batch_input].narrow(
      0, batches[micro_batch].first_sample - batches.front().first_sample, gradient.size(0));
  part.copy_(gradient);
  step_end_.take_out_scale(part);
}

void StageMachine::perform(const Action& action) {
  // A GPU's allocator does not check an account in advance, so an excess of the last action ends
  // the run here.
  if (const MemoryAccount* account = current_memory_account(groups_.world.device().kind))
    account->require_within_budget();
  if (action.op != Op::kUpdate) finish_updates();
  switch (action.op) {
    case Op::kForward:
      return forward(action);
    case Op::kRecompute:
      return recompute(action);
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      return backward(action);
    case Op::kOffloadActivations:
      return offload_activations(action);
    case Op::kFetchActivations:
      return offloaded_->fetch(action.layers.begin, action.micro_batch);
    case Op::kSendActivation:
      return send_activation(action);
    case Op::kSendGradient:
      return send_gradient(action);
    case Op::kReceiveActivation:
    case Op::kReceiveGradient:
      return receive(action);
    case Op::kSendTiedGradient:
    case Op::kSendTiedWeight:
      return send_tied(action);
    case Op::kReceiveTiedGradient:
    case Op::kReceiveTiedWeight:
      return receive_tied(action);
    case Op::kAddTiedGradients:
      return add_ties(action);
    case Op::kPrefetchWeights:
      return store_.prefetch(action.layers.begin, StateKind::kWeights);
    case Op::kReleaseWeights:
      return store_.release(action.layers.begin, StateKind::kWeights);
    case Op::kOffloadGradients:
      return offload_gradients(action.layers.begin);
    case Op::kReduceGradients:
      return reduce_gradients(action);
    case Op::kAwaitGradients:
      return await_gradients(action);
    case Op::kReduceNormAndLoss:
      return reduce_norm_and_loss();
    case Op::kUpdate:
      return update(action);
    case Op::kGatherWeights:
      return gather_weights(action);
    case Op::kPrefetchRows:
      if (rows_) rows_->prefetch(inputs_.step);
      return;
    case Op::kFetchRows:
      if (rows_) fetch_rows();
      return;
    case Op::kSendRowGradients:
      if (rows_) rows_->send_gradients(inputs_.step, input_gradients_[model_.rows_input()].cpu());
      return;
  }
}

ForwardContext StageMachine::context(int layer, int micro_batch) {
  const std::vector<MicroBatch>& batches = inputs_.micro_batches;
  const StepScalars& step = step_end_.known();
  const double loss_scale = inputs_.training ? step.loss_scale : 1;
  return {.training = inputs_.training,
          .recompute = plan_.decisions().levels.of(layer),
          .seed = options_.seed,
          .step = step.step,
          .first_sample =
              step.first_sample + batches[micro_batch].first_sample - batches.front().first_sample,
          .layer = layer,
          // Scales are powers of two: the product has the bits of a quotient.
          .loss_scale = loss_scale * step.inverse_valid_tokens,
          .loss = &loss_,
          .label_smoothing = inputs_.training ? options_.label_smoothing : 0,
          .tensor = tensor_.get(),
          .context_parallel = inputs_.decoding ? nullptr : context_.get(),
          .cache = inputs_.decoding ? &inputs_.decoding->caches.at(layer) : nullptr,
          .scalars = step_end_.on_device()};
}

bool StageMachine::is_local(int layer) const {
  return plan_.pipeline_rank(layer) == groups_[Axis::kPipeline].rank();
}

bool StageMachine::is_full(int micro_batch) const {
  const MicroBatch& batch = inputs_.micro_batches[micro_batch];
  return !batch.inputs.empty() && batch.inputs[0].size(0) == plan_.decisions().micro_batch;
}

int StageMachine::local_uses(int value) const {
  const std::vector<int>& consumers = model_.dataflow().values[value].consumers;
  return static_cast<int>(std::count_if(consumers.begin(), consumers.end(),
                                        [&](int layer) { return is_local(layer); }));
}

void StageMachine::forward(const Action& action) {
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer)
    forward_layer(layer, action.micro_batch);
}

void StageMachine::forward_layer(int layer, int micro_batch) {
  std::vector<at::Tensor> inputs;
  for (const InputRef& ref : model_.inputs(layer))
    inputs.push_back(ref.value >= 0 ? tables_.values.take(ref.value, micro_batch)
                                    : inputs_.micro_batches[micro_batch].inputs[ref.batch_input]);
  const Pin pin = store_.acquire(layer, StateKind::kWeights);
  const auto span = device_span(TrackKind::kCompute, layer);  // after the weights' arrival
  const ForwardContext context = this->context(layer, micro_batch);
  std::vector<at::Tensor> outputs;
  if (!inputs_.training) {
    outputs = forward_without_graph(model_.layer(layer), context, pin.weights(), inputs);
  } else {
    LayerGraph& graph = graphs_[{layer, micro_batch}];
    graph.inputs = make_inputs(std::move(inputs), model_.differentiable_inputs(layer));
    const double begin = now_seconds();
    outputs = plan_.decisions().recompute.has(layer)
                  ? forward_without_graph(model_.layer(layer), context, pin.weights(), graph.inputs)
                  : forward_with_graph(model_.layer(layer), context, pin.weights(), graph);
    if (is_full(micro_batch)) layer_times_.add(layer, LayerPart::kForward, now_seconds() - begin);
  }
  const std::vector<int>& values = model_.outputs(layer);
  for (std::size_t i = 0; i < values.size(); ++i)
    tables_.values.put(values[i], micro_batch, outputs[i],
                       local_uses(values[i]) + sends_[values[i]]);
  if (inputs_.decoding && layer == model_.num_layers() - 1) inputs_.decoding->outputs = outputs;
}

// The mini-batch has placeholders: [samples, 0].
void StageMachine::fetch_rows() {
  std::vector<MicroBatch>& batches = inputs_.micro_batches;
  const int input = model_.rows_input();
  const std::int64_t first = batches.front().first_sample;
  const std::int64_t samples =
      batches.back().first_sample + batches.back().inputs[input].size(0) - first;
  at::Tensor rows = at::empty({samples, rows_->width()}, host_options(at::kFloat));
  rows_->fetch(inputs_.step, inputs_.training, rows);
  rows = rows.to(groups_.world.device().options(at::kFloat));
  for (MicroBatch& batch : batches)
    batch.inputs[input] = rows.narrow(0, batch.first_sample - first, batch.inputs[input].size(0));
  if (inputs_.training) input_gradients_[input] = at::empty_like(rows);
}

void StageMachine::offload_activations(const Action& action) {
  const int layer = action.layers.begin;
  LayerGraph& graph = graphs_.at({layer, action.micro_batch});
  offloaded_->offload(layer, action.micro_batch, std::exchange(graph.inputs, {}));
}

void StageMachine::recompute(const Action& action) {
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    LayerGraph& graph = graphs_.at({layer, action.micro_batch});
    if (graph.inputs.empty())
      graph.inputs = make_inputs(offloaded_->take(layer, action.micro_batch),
                                 model_.differentiable_inputs(layer));
    const Pin pin = store_.acquire(layer, StateKind::kWeights);
    const auto span = device_span(TrackKind::kCompute, layer);
    // The first forward has sent the outputs to their consumers; only the graph is needed.
    forward_with_graph(model_.layer(layer), context(layer, action.micro_batch), pin.weights(),
                       graph);
  }
}

void StageMachine::backward(const Action& action) {
  for (int layer = action.layers.end - 1; layer >= action.layers.begin; --layer) {
    if (action.op == Op::kBackwardWeight) {
      backward_weights(layer, action.micro_batch);
    } else {
      backward_layer(layer, action.micro_batch, action.op);
    }
  }
}

LayerGraph StageMachine::take_graph(int layer, int micro_batch) {
  auto entry = graphs_.extract({layer, micro_batch});
  STRATA_CHECK(!entry.empty(), "pipeline.take_graph");
  return std::move(entry.mapped());
}

// A whole backward or its first half.
void StageMachine::backward_layer(int layer, int micro_batch, Op op) {
  std::vector<at::Tensor> output_gradients;
  for (const int value : model_.outputs(layer)) {
    at::Tensor gradient =
        tables_.gradients.take_sum(model_.dataflow().values[value], value, micro_batch);
    // No layer reads it: it is the loss.
    output_gradients.push_back(gradient.defined()
                                   ? std::move(gradient)
                                   : at::ones({}, groups_.world.device().options(at::kFloat)));
  }
  LayerGraph graph = take_graph(layer, micro_batch);
  const Pin pin = store_.acquire(layer, StateKind::kWeights | StateKind::kGradients);
  const auto span = device_span(TrackKind::kCompute, layer);
  const double begin = now_seconds();
  pin.open_gradients();  // after an offload: allocates and clears a new one
  const bool whole = op == Op::kBackward;
  std::vector<at::Tensor> gradients =
      whole ? strata::backward(std::move(graph), std::move(output_gradients))
            : backward_to_inputs(graph, std::move(output_gradients));
  if (is_full(micro_batch))
    layer_times_.add(layer, whole ? LayerPart::kBackward : LayerPart::kInputs,
                     now_seconds() - begin);
  if (!whole) graphs_.emplace(std::pair(layer, micro_batch), std::move(graph));
  const std::vector<InputRef>& inputs = model_.inputs(layer);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].value >= 0) {
      tables_.gradients.put(inputs[i].value, layer, micro_batch, std::move(gradients[i]));
    } else if (model_.wants_gradient(inputs[i].batch_input)) {
      keep_input_gradient(inputs[i].batch_input, micro_batch, gradients[i]);
    }
  }
}

void StageMachine::backward_weights(int layer, int micro_batch) {
  LayerGraph graph = take_graph(layer, micro_batch);
  const Pin pin = store_.acquire(layer, StateKind::kWeights | StateKind::kGradients);
  const auto span = device_span(TrackKind::kCompute, layer);
  const double begin = now_seconds();
  backward_to_weights(std::move(graph));
  if (is_full(micro_batch)) layer_times_.add(layer, LayerPart::kWeights, now_seconds() - begin);
}

// An activation has one receiver, so the place of the consumer is free.
MessageTag StageMachine::activation_tag(const Action& action) const {
  MessageTag tag = tag_of(Op::kSendActivation, action);
  if (inputs_.decoding) tag.consumer = inputs_.decoding->pass;
  return tag;
}

void StageMachine::send_activation(const Action& action) {
  const auto span = device_span(TrackKind::kCommunicate, -1);
  groups_[Axis::kPipeline].send(action.peer, activation_tag(action),
                                tables_.values.take(action.value, action.micro_batch));
}

void StageMachine::send_gradient(const Action& action) {
  const auto span = device_span(TrackKind::kCommunicate, -1);
  groups_[Axis::kPipeline].send(
      action.peer, tag_of(Op::kSendGradient, action),
      tables_.gradients.take(action.value, action.consumer, action.micro_batch));
}

void StageMachine::receive(const Action& action) {
  const auto span = device_span(TrackKind::kCommunicate, -1);
  if (action.op == Op::kReceiveActivation) {
    tables_.values.put(action.value, action.micro_batch,
                       groups_[Axis::kPipeline].receive(action.peer, activation_tag(action)),
                       local_uses(action.value));
  } else {
    tables_.gradients.put(
        action.value, action.consumer, action.micro_batch,
        groups_[Axis::kPipeline].receive(action.peer, tag_of(Op::kSendGradient, action)));
  }
}

void StageMachine::Tables::copy_to(Tables& to) const {
  values.copy_to(to.values);
  gradients.copy_to(to.gradients);
  copy_entries(received_ties, to.received_ties);
}

StageMachine::Tables StageMachine::Tables::dense() const {
  Tables tables = *this;
  tables.values.make_dense();
  tables.gradients.make_dense();
  return tables;
}

LayerSet StageMachine::layers_with_host_inputs() const {
  LayerSet layers;
  for (const int layer : store_.layers())
    for (const InputRef& ref : model_.inputs(layer))
      if (ref.value < 0 && model_.wants_gradient(ref.batch_input)) layers.add(layer);
  return layers;
}

double StageMachine::reduce_loss() {
  // every tp rank has the same value
  double sum[] = {groups_[Axis::kTensor].rank() == 0 ? loss_.value() : 0};
  groups_.world.all_reduce(sum);
  return sum[0] / static_cast<double>(inputs_.valid_tokens);
}

}  // namespace strata
