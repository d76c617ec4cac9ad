// Decoding is a forward-only schedule of one micro-batch whose sample grows: the same programs and
// the same interpreter as in training, performed by a machine that keeps no graph.
#include "strata/serve/decoder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/pipeline/value_table.h"
#include "strata/schedule/step_plan.h"
#include "strata/shard/tensor_group.h"

namespace strata {
namespace {

constexpr int kText = 0;  // the only micro-batch

Partition even_partition(int layers, int stages) {
  if (stages > layers) {
    throw UserError({.operation = "serve.decoder",
                     .where = "mesh.pp",
                     .what = "more stages than layers",
                     .expected = "at most " + std::to_string(layers),
                     .got = std::to_string(stages),
                     .fix = "pass --set mesh.pp=" + std::to_string(layers)});
  }
  Partition partition;
  for (int stage = 0; stage <= stages; ++stage) partition.bounds.push_back(layers * stage / stages);
  return partition;
}

std::vector<int> layers_of(const Partition& partition, int stage) {
  std::vector<int> layers;
  for (int layer = partition.bounds[stage]; layer < partition.bounds[stage + 1]; ++layer)
    layers.push_back(layer);
  return layers;
}

Program forward_program(const Sequential& model, const Partition& partition, int rank) {
  const StepPlan plan(model.dataflow(), /*with_weights=*/{}, {.partition = partition});
  return plan.evaluation(1).programs[rank];
}

// `pass`: a stage may be ahead of the next one by several.
MessageTag tag_of(const Action& action, std::int32_t pass) {
  return {.kind = static_cast<std::int32_t>(Op::kSendActivation),
          .value = action.value,
          .micro_batch = pass};
}

// The layer that owns the weight which `use` is tied to, and its name there.
std::string owner_name(const Sequential& model, const WeightSpec& use) {
  for (const Tie& tie : model.dataflow().ties) {
    if (tie.name != use.tie) continue;
    for (const WeightSpec& owned : model.layout(tie.owner).specs)
      if (owned.tie == use.tie) return model.name(tie.owner) + "." + owned.name;
  }
  throw InternalError(
      {.operation = "serve.weights", .what = "a tie without owner", .got = use.tie});
}

// Makes room for the weights of a stage alone.
void insert_weights(LayerStore& store, const Sequential& model, const std::vector<int>& layers) {
  for (const int layer : layers) {
    const LayerLayout& layout = model.layout(layer);
    store.insert(layer, layout, {.shard = {0, layout.own_numel}, .trains = false});
  }
}

}  // namespace

KeyValueCache::KeyValueCache(const Sequential& model, const std::vector<int>& layers,
                             std::int64_t positions, Device device)
    : positions_(positions) {
  for (const int layer : layers) {
    LayerCache& kept = layers_[layer];
    for (const TensorSpec& spec : model.layer(layer).cache(/*samples=*/1, positions))
      kept.tensors.push_back(at::empty(spec.shape, device.options(spec.dtype)));
  }
}

void KeyValueCache::append(std::int64_t tokens) {
  length_ += tokens;
  STRATA_CHECK(length_ >= 0 && length_ <= positions_, "serve.cache");
  for (auto& [layer, kept] : layers_) kept.position = length_;
}

// Performs the forward of one stage on the tokens at hand.
class Decoder::Stage final : public Machine {
 public:
  Stage(const Sequential& model, LayerStore& store, const KeyValueCache& cache, MeshGroups& groups,
        const Program& program)
      : model_(model), store_(store), cache_(cache), groups_(groups) {
    if (groups.tp.size() > 1) tensor_ = std::make_unique<TensorGroup>(groups.tp, false);
    uses_.assign(model.dataflow().values.size(), 0);
    for (const Action& action : program)
      if (action.op == Op::kSendActivation) ++uses_[action.value];
    for (const Value& value : model.dataflow().values)
      for (const int consumer : value.consumers)
        uses_[&value - model.dataflow().values.data()] += store.contains(consumer);
  }

  /// The last layer's output; undefined on other stages.
  at::Tensor run(const Program& program, at::Tensor tokens) {
    tokens_ = std::move(tokens);
    values_ = {};
    output_.reset();
    ++pass_;
    execute(program, *this);
    return std::move(output_);
  }

  void perform(const Action& action) override {
    switch (action.op) {
      case Op::kForward:
        for (int layer = action.layers.begin; layer < action.layers.end; ++layer) forward(layer);
        return;
      case Op::kSendActivation:
        return groups_.pp.send(action.peer, tag_of(action, pass_),
                               values_.take(action.value, kText));
      case Op::kReceiveActivation:
        return values_.put(action.value, kText,
                           groups_.pp.receive(action.peer, tag_of(action, pass_)),
                           uses_[action.value]);
      default:
        throw InternalError({.operation = "serve.perform",
                             .where = to_string(action),
                             .what = "not an action of a forward pass"});
    }
  }

 private:
  void forward(int layer) {
    std::vector<at::Tensor> inputs;
    for (const InputRef& ref : model_.inputs(layer))
      inputs.push_back(ref.value >= 0 ? values_.take(ref.value, kText) : tokens_);
    const Lease lease = store_.acquire(layer, StateKind::kWeights);
    const std::vector<at::Tensor> outputs = model_.layer(layer).forward(
        {.layer = layer, .tensor = tensor_.get(), .cache = &cache_.layer(layer)}, lease.weights(),
        inputs);
    const std::vector<int>& values = model_.outputs(layer);
    for (std::size_t i = 0; i < values.size(); ++i)
      values_.put(values[i], kText, outputs[i], uses_[values[i]]);
    if (layer == model_.num_layers() - 1) output_ = outputs[0];
  }

  const Sequential& model_;
  LayerStore& store_;
  const KeyValueCache& cache_;
  MeshGroups& groups_;
  std::unique_ptr<TensorGroup> tensor_;  // null: no tensor parallelism
  std::vector<int> uses_;                // per value: consumers here and sends
  ValueTable values_;
  at::Tensor tokens_, output_;
  std::int32_t pass_ = 0;
};

Decoder::Decoder(const Sequential& model, const Mesh& mesh, std::int64_t positions,
                 const Group& world)
    : model_(model),
      groups_(make_mesh_groups(world, mesh)),
      partition_(even_partition(model.num_layers(), mesh.pp)),
      store_(device_medium(), Residency::kUntilReleased, world.device()),
      cache_(model, layers_of(partition_, groups_.pp.rank()), positions, world.device()),
      program_(forward_program(model, partition_, groups_.pp.rank())) {
  STRATA_CHECK_EQ(model.split().ranks, mesh.tp, "serve.decoder");
  STRATA_CHECK_EQ(mesh.dp, 1, "serve.decoder");
  insert_weights(store_, model, layers_of(partition_, groups_.pp.rank()));
  stage_ = std::make_unique<Stage>(model, store_, cache_, groups_, program_);
}

Decoder::~Decoder() = default;

std::vector<NamedState> Decoder::weights() {
  std::vector<NamedState> weights;
  for (const int layer : store_.layers()) {
    const LayerLayout& layout = model_.layout(layer);
    const auto lease = std::make_shared<const Lease>(store_.acquire(layer, StateKind::kWeights));
    for (std::size_t i = 0; i < layout.specs.size(); ++i) {
      const WeightSpec& spec = layout.specs[i];
      const bool borrowed = layout.placements[i].borrowed;
      weights.push_back(
          {.name = borrowed ? owner_name(model_, spec) : model_.name(layer) + "." + spec.name,
           .shape = spec.shape,
           .local = lease->weights()[i].view({-1}),
           .runs = slice_runs(spec, groups_.tp.rank(), groups_.tp.size()),
           .lease = lease});
    }
  }
  return weights;
}

at::Tensor Decoder::forward(std::span<const std::int64_t> tokens) {
  STRATA_CHECK(!tokens.empty(), "serve.forward");
  STRATA_CHECK(length() + static_cast<std::int64_t>(tokens.size()) <= positions(), "serve.forward");
  const at::NoGradGuard no_grad;
  groups_.world.doing("decoding", static_cast<int>(length()));
  const at::Tensor text = at::tensor(at::ArrayRef<std::int64_t>(tokens.data(), tokens.size()),
                                     groups_.world.device().options(at::kLong));
  at::Tensor logits = stage_->run(program_, text.unsqueeze(0));
  cache_.append(static_cast<std::int64_t>(tokens.size()));
  return logits;
}

bool Decoder::decides() const {
  return store_.contains(model_.num_layers() - 1) && groups_.tp.rank() == 0;
}

}  // namespace strata
