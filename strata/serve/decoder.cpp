// Decoding is an evaluation of one micro-batch, with the same programs, interpreter and stage
// machine as training. Its only sample consists of the new tokens of all sequences.
#include "strata/serve/decoder.h"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {

at::ScalarType weight_type(const Sequential& model) {
  return model.value_specs({{.shape = {1, 1}, .dtype = at::kLong}}).front().dtype;
}

namespace {

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

// Allocates only the weights of a stage.
void insert_weights(LayerStore& store, const Sequential& model, const std::vector<int>& layers) {
  const at::ScalarType dtype = weight_type(model);
  for (const int layer : layers) {
    const LayerLayout& layout = model.layout(layer);
    store.insert(layer, layout, {.shard = {0, layout.own_numel}, .dtype = dtype, .trains = false});
  }
}

}  // namespace

std::string weight_name(const Sequential& model, int layer, const WeightSpec& spec) {
  if (spec.tie.empty()) return model.name(layer) + "." + spec.name;
  for (const Tie& tie : model.dataflow().ties) {
    if (tie.name != spec.tie) continue;
    for (const WeightSpec& owned : model.layout(tie.owner).specs)
      if (owned.tie == spec.tie) return model.name(tie.owner) + "." + owned.name;
  }
  throw InternalError(
      {.operation = "serve.weights", .what = "a tie without owner", .got = spec.tie});
}

std::int64_t page_bytes(const Sequential& model, const Mesh& mesh, std::int64_t page_tokens) {
  const int stages = mesh[Axis::kPipeline];
  const Partition partition = even_partition(model.num_layers(), stages);
  std::int64_t most = 0;
  for (int stage = 0; stage < stages; ++stage)
    most = std::max(most, page_bytes(model, layers_of(partition, stage), page_tokens));
  return most;
}

Decoder::Decoder(const Sequential& model, const Mesh& mesh, const PageRoom& room,
                 const Group& world)
    : model_(model),
      groups_(make_mesh_groups(world, mesh)),
      plan_(model.dataflow(), /*with_weights=*/{},
            {.partition = even_partition(model.num_layers(), mesh[Axis::kPipeline])}),
      store_(Backends{}, Residency::kUntilReleased, world.device()),
      cache_(model, layers_of(plan_.decisions().partition, groups_[Axis::kPipeline].rank()), room,
             world.device()),
      machine_(model, plan_, {}, store_, /*optimizer=*/nullptr, groups_) {
  STRATA_CHECK_EQ(mesh[Axis::kData], 1, "serve.decoder");
  insert_weights(store_, model,
                 layers_of(plan_.decisions().partition, groups_[Axis::kPipeline].rank()));
}

std::vector<NamedState> Decoder::weights() {
  std::vector<NamedState> weights;
  for (const int layer : store_.layers()) {
    const LayerLayout& layout = model_.layout(layer);
    const auto pin = std::make_shared<const Pin>(store_.acquire(layer, StateKind::kWeights));
    for (std::size_t i = 0; i < layout.specs.size(); ++i) {
      const WeightSpec& spec = layout.specs[i];
      weights.push_back(
          {.name = weight_name(model_, layer, spec),
           .shape = spec.shape,
           .local = pin->weights()[i].view({-1}),
           .runs = slice_runs(spec, groups_[Axis::kTensor].rank(), groups_[Axis::kTensor].size()),
           .pin = pin});
    }
  }
  return weights;
}

at::Tensor Decoder::forward(const Pass& pass) {
  groups_.world.report_progress("decoding", static_cast<int>(passes_));
  std::vector<std::int64_t> packed;
  for (const PassTokens& sequence : pass)
    packed.insert(packed.end(), sequence.tokens.begin(), sequence.tokens.end());
  const at::Tensor sample = at::tensor(packed, groups_.world.device().options(at::kLong));
  Decoding decoding{.caches = cache_.begin(pass), .pass = static_cast<std::int32_t>(passes_++)};
  const Program& program = plan_.evaluation(1).programs[groups_[Axis::kPipeline].rank()];
  machine_.begin(program, {.micro_batches = {{.inputs = {sample.unsqueeze(0)}}},
                           .training = false,
                           .decoding = &decoding});
  execute(program, machine_);
  machine_.let_inputs_go();
  return decoding.logits;
}

bool Decoder::decides() const {
  return store_.contains(model_.num_layers() - 1) && groups_[Axis::kTensor].rank() == 0;
}

}  // namespace strata
