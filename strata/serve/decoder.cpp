// Decoding is an evaluation of one micro-batch, with the same programs, interpreter, tiers and
// stage machine as training. Its only sample consists of the new tokens of all sequences.
#include "strata/serve/decoder.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/models/quantised_model.h"
#include "strata/nn/graph/weight_name.h"
#include "strata/nn/kernels/quantised_tiles.h"
#include "strata/pipeline/plan_steps.h"

namespace strata {

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

std::vector<int> layers_of(const StepPlan& steps, int pipeline_rank) {
  std::vector<int> layers;
  for (int layer = 0; layer < steps.dataflow().num_layers; ++layer)
    if (steps.pipeline_rank(layer) == pipeline_rank) layers.push_back(layer);
  return layers;
}

// A trainer's stages and tiers. Nothing of a pass leaves the device.
StepPlan steps_of_trainer(const Sequential& model, const StepPlan& plan) {
  const StepDecisions& trained = plan.decisions();
  StepDecisions decisions{.schedule = trained.schedule,
                          .mesh = trained.mesh,
                          .virtual_stages = trained.virtual_stages,
                          .order = trained.order,
                          .rank_of_stage = trained.rank_of_stage,
                          .partition = trained.partition,
                          .tiers = trained.tiers};
  decisions.mesh[Axis::kData] = decisions.mesh[Axis::kContext] = 1;
  for (LayerTiers& layer : decisions.tiers.layers) layer.activations = Tier::kDevice;
  return plan_steps(model, std::move(decisions));
}

void check_trained(const Sequential& model, const LayerStore& trained, int layer) {
  constexpr ErrorSource kErrors{"serve.decoder"};
  const LayerLayout &ours = model.layout(layer), &theirs = trained.layout(layer);
  const bool same = std::ranges::equal(
      ours.placements, theirs.placements, [](const WeightPlacement& a, const WeightPlacement& b) {
        return a.offset == b.offset && a.shape == b.shape && a.borrowed == b.borrowed;
      });
  if (!same || trained.placement(layer).dtype != weight_type(model))
    throw kErrors.user(model.name(layer), "the trainer's model has other weights",
                       "the sizes and the precision of the trainer's model", "others",
                       "make both models from the same options");
  if (trained.placement(layer).gathered_weights)
    throw kErrors.user("mesh.zero", "each replica has only a part of the weights",
                       "ZeRO 2 or less, so that a replica decodes alone", "ZeRO 3",
                       "set mesh.zero to 2");
}

}  // namespace

StepPlan decoder_steps(const Sequential& model, const Mesh& mesh, TierLayout tiers) {
  STRATA_CHECK_EQ(mesh.weight_ranks(), 1, "serve.decoder");
  const auto planned = [&](TierLayout layout) {
    return plan_steps(model,
                      {.mesh = mesh,
                       .partition = even_partition(model.num_layers(), mesh[Axis::kPipeline]),
                       .tiers = std::move(layout)});
  };
  // Weights that other ranks use through a tie stay on the device, so nothing of their layer leaves
  // it: there is no update elsewhere.
  TierLayout on_ranks = planned(std::move(tiers)).decisions().tiers;
  for (LayerTiers& layer : on_ranks.layers)
    if (!layer.fetches_weights()) layer = {};
  return planned(std::move(on_ranks));
}

std::int64_t page_bytes(const Sequential& model, const StepPlan& steps, std::int64_t page_tokens) {
  std::int64_t most = 0;
  for (int rank = 0; rank < steps.decisions().mesh[Axis::kPipeline]; ++rank)
    most = std::max(most, page_bytes(model, layers_of(steps, rank), page_tokens));
  return most;
}

Decoder::Decoder(const Sequential& model, StepPlan steps, const PageRoom& room, const Group& world,
                 const WeightTiers& tiers)
    : Decoder(model, std::move(steps), room, world, tiers, nullptr) {
  for (const int layer : layers_here())
    store_.insert(layer, model.layout(layer), weight_placement(model, steps_, layer));
}

Decoder::Decoder(const Sequential& model, LayerStore& trained, const StepPlan& plan,
                 const PageRoom& room, const Group& world)
    : Decoder(model, steps_of_trainer(model, plan), room, world, {}, &trained) {
  for (const int layer : layers_here()) check_trained(model, trained, layer);
}

Decoder::Decoder(const Sequential& model, StepPlan steps, const PageRoom& room, const Group& world,
                 const WeightTiers& tiers, LayerStore* trained)
    : model_(model),
      steps_(std::move(steps)),
      groups_(make_mesh_groups(world, steps_.decisions().mesh)),
      host_account_(immortal_account("host memory of rank " + std::to_string(world.rank()),
                                     tiers.host_bytes, "memory.host")),
      own_(trained ? nullptr
                   : std::make_unique<LayerStore>(
                         weight_backends(model, steps_, layers_here(), tiers, world, host_account_),
                         Residency::kUntilReleased, world.device(), &host_account_)),
      store_(trained ? *trained : *own_),
      cache_(model, layers_here(), room, world.device(),
             {.host = &host_account_,
              .folder = folder_of_rank(tiers, world, "pages"),
              .file = tiers.file}),
      machine_(model, steps_, {}, store_, /*optimizer=*/nullptr, groups_) {}

std::vector<int> Decoder::layers_here() const {
  return layers_of(steps_, groups_[Axis::kPipeline].rank());
}

Pin Decoder::pin_weights(int layer) {
  const bool away = store_.placement(layer).tiers.fetches_weights();
  return store_.acquire(layer, away ? StateKind::kWeightShard : StateKind::kWeights);
}

std::vector<NamedState> Decoder::weights_of(int layer) {
  const LayerLayout& layout = model_.layout(layer);
  const auto pin = std::make_shared<const Pin>(pin_weights(layer));
  std::vector<NamedState> weights;
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const WeightSpec& spec = layout.specs[i];
    const WeightPlacement& place = layout.placements[i];
    if (place.borrowed && store_.contains(tie_of(model_, spec).owner)) continue;
    if (quantised_source(model_.layer(layer), i)) continue;
    weights.push_back(
        {.name = weight_name(model_, layer, spec),
         .shape = spec.shape,
         .local = place.borrowed ? pin->weights()[i].view({-1})
                                 : pin->weight_shard().narrow(0, place.offset, place.numel),
         .runs = slice_runs(spec, groups_[Axis::kTensor].rank(), groups_[Axis::kTensor].size()),
         .pin = pin});
  }
  return weights;
}

void Decoder::fill_quantised(int layer, const ReadStates& read) {
  const LayerLayout& layout = model_.layout(layer);
  const Group& tensor = groups_[Axis::kTensor];
  const Pin pin = pin_weights(layer);
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const QuantisedSource source = quantised_source(model_.layer(layer), i);
    if (!source) continue;
    const WeightSpec& spec = *source.spec;
    const WeightPlacement& place = layout.placements[i];
    const at::Tensor words = pin.weight_shard().narrow(0, place.offset, place.numel);
    auto* const tiles = static_cast<std::byte*>(words.data_ptr());
    const std::int64_t in = slice_shape(spec, tensor.size())[1];
    const NamedState part{.name = weight_name(model_, layer, spec),
                          .shape = spec.shape,
                          .runs = slice_runs(spec, tensor.rank(), tensor.size())};
    read_quantised_rows(source.type, part, read, [&](const QuantisedPiece& piece) {
      kernels::put(
          tiles, in, piece.local / in,
          {.row = piece.row, .begin = piece.begin, .to = piece.local % in, .count = piece.count});
    });
  }
}

void Decoder::fill(const ReadStates& read) {
  STRATA_CHECK(own_ != nullptr, "serve.decoder");
  for (const int layer : store_.layers()) {
    groups_.world.report_progress("loading the weights of layer", layer);
    {
      const std::vector<NamedState> weights = weights_of(layer);  // pinned until all are filled
      read(weights);
      fill_quantised(layer, read);
    }
    if (store_.placement(layer).tiers.fetches_weights())
      store_.written(layer, StateKind::kWeightShard, {});
  }
}

PassOutputs Decoder::forward(const Pass& pass) {
  groups_.world.report_progress("decoding", static_cast<int>(passes_));
  std::vector<std::int64_t> packed;
  for (const PassTokens& sequence : pass)
    packed.insert(packed.end(), sequence.tokens.begin(), sequence.tokens.end());
  const at::Tensor sample = at::tensor(packed, groups_.world.device().options(at::kLong));
  Decoding decoding{.caches = cache_.begin(pass), .pass = static_cast<std::int32_t>(passes_++)};
  const Program& program = steps_.evaluation(1).programs[groups_[Axis::kPipeline].rank()];
  machine_.begin(program, {.micro_batches = {{.inputs = {sample.unsqueeze(0)}}},
                           .training = false,
                           .decoding = &decoding});
  execute(program, machine_);
  machine_.let_inputs_go();
  decoding.outputs.resize(2);
  return {.logits = decoding.outputs[0], .states = decoding.outputs[1]};
}

int Decoder::deciding_rank() const {
  MeshPlace place{};
  place[Axis::kPipeline] = steps_.pipeline_rank(model_.num_layers() - 1);
  return steps_.decisions().mesh.rank(place);
}

}  // namespace strata
