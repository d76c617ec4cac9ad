#include "strata/measure/probe.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/comm/lone_context.h"
#include "strata/comm/one_bit_mean.h"
#include "strata/comm/ranks.h"
#include "strata/device/block_malloc.h"
#include "strata/measure/probe_cache.h"
#include "strata/nn/graph/initialise.h"
#include "strata/nn/primitives/primitive_choice.h"
#include "strata/optim/gradient_norm.h"
#include "strata/optim/lamb.h"
#include "strata/optim/muon.h"
#include "strata/optim/one_bit_adam.h"
#include "strata/optim/one_bit_lamb.h"
#include "strata/optim/optimizer.h"
#include "strata/optim/step_primitives.h"
#include "strata/pipeline/layer_graph.h"
#include "strata/tier/store.h"

namespace strata {
namespace {

constexpr double kProbeSeconds = 0.1;  // per layer, after the first round
constexpr double kPatience = 4;        // this many times longer while rounds disagree
constexpr double kSteadySpread = 0.1;
constexpr int kMinRounds = 4, kMaxRounds = 100;
constexpr double kLongSeconds = 1;  // longer probes are reported to the user

// Before each part of a layer a device copies so many bytes, which takes an H100 about 0.7 ms:
// longer than a host needs to enqueue a block's kernels, and more than its cache holds. Less if two
// such buffers would fill the device.
constexpr std::int64_t kAheadBytes = std::int64_t{128} << 20;
constexpr std::int64_t kAheadShare = 512;
constexpr int kAheadCopies = 8;

std::vector<at::Tensor> random_inputs(const std::vector<TensorSpec>& specs, Device device) {
  std::vector<at::Tensor> inputs;
  for (const TensorSpec& spec : specs)
    inputs.push_back(c10::isFloatingType(spec.dtype)
                         ? at::randn(spec.shape, device.options(at::kFloat)).to(spec.dtype)
                         : at::randint(0, 2, spec.shape, device.options(at::kLong)).to(spec.dtype));
  return inputs;
}

// Stands for one of n tensor-parallel ranks: does its part of the work in the split shapes. The
// plan adds the ranks' messages; they are not timed here.
class LoneSlice final : public TensorParallel {
 public:
  explicit LoneSlice(const TensorSplit& split) : split_(split) {}
  int rank() const override { return 0; }
  int size() const override { return split_.ranks; }
  bool sequence() const override { return split_.sequence; }
  void all_reduce_sum(at::Tensor&) const override {}
  void all_reduce_max(at::Tensor&) const override {}
  at::Tensor gather_sequence(const at::Tensor& x) const override {
    return at::cat(std::vector<at::Tensor>(split_.ranks, x), 1);
  }
  at::Tensor reduce_scatter_sequence(const at::Tensor& x) const override {
    // A new tensor, as of other ranks: operators write to it.
    return x.narrow(1, 0, x.size(1) / split_.ranks).clone(at::MemoryFormat::Contiguous);
  }

 private:
  TensorSplit split_;
};

// Bytes of each of the two buffers that are copied.
std::int64_t ahead_bytes(Device device) {
  return std::min(kAheadBytes, backend_of(device.kind).facts(device.index).bytes / kAheadShare);
}

// Work for a device that is unrelated to the measurement; none if the rank computes itself.
class Ahead {
 public:
  Ahead(const Stream& stream, Device device) : queue_(stream.queue()) {
    if (!queue_) return;
    bytes_ = ahead_bytes(device);
    for (at::Tensor& side : sides_) side = at::zeros({bytes_}, device.options(at::kByte));
  }
  void copy() const {
    for (int i = 0; queue_ && i < kAheadCopies; ++i)
      queue_->copy(sides_[i % 2].data_ptr(), sides_[1 - i % 2].const_data_ptr(),
                   static_cast<std::size_t>(bytes_));
  }

 private:
  StreamQueue* queue_;
  std::int64_t bytes_ = 0;
  std::array<at::Tensor, 2> sides_;
};

// A moment on the rank's clock, or on a device after its enqueued work.
struct Moment {
  double seconds = 0;
  Completion event = {};
};

// One distinct layer of a rank, ready to run.
class ProbedLayer {
 public:
  ProbedLayer(const Layer& layer, const LayerLayout& layout, const std::vector<TensorSpec>& specs,
              const CostRequest& request, Recompute level, const TensorSplit& split,
              const Optimizer& optimizer, const Stream& stream, const Ahead& ahead)
      : layer_(layer),
        layout_(layout),
        blocks_(layout),
        optimizer_(optimizer),
        halves_(request.halves),
        sends_signs_(request.sends_signs),
        device_(request.device),
        stream_(stream),
        ahead_(ahead),
        store_(Backends{}, Residency::kUntilReleased, request.device),
        slice_(split),
        context_ranks_(split.context),
        inputs_(random_inputs(specs, request.device)) {
    store_.insert(0, layout,
                  {.shard = {0, layout.own_numel},
                   .dtype = request.precision,
                   .optimizer_slots = static_cast<int>(optimizer.slot_names().size())});
    const Pin pin = store_.acquire(0, StateKind::kWeights);
    for (std::size_t i = 0; i < layout.specs.size(); ++i) {
      const at::Tensor first_values =
          at::zeros(layout.placements[i].shape, host_options(at::kFloat));
      initialise(first_values, layout.specs[i], "probe", /*seed=*/1, /*rank=*/0, split.ranks);
      pin.weights()[i].detach().copy_(first_values);
    }
    sink_.sum = zero_loss(request.device.options(at::kDouble));
    if (!on_host())
      scalars_ = at::zeros({static_cast<std::int64_t>(sizeof(StepScalars))},
                           request.device.options(at::kByte));
    context_ = {.training = true,
                .recompute = level,
                .loss = &sink_,
                .tensor = split.ranks > 1 ? &slice_ : nullptr,
                .context_parallel = split.context.divides() ? &context_ranks_ : nullptr,
                .scalars = on_host() ? nullptr : &scalars()};
  }

  // Once forward, backward and update.
  void run(const std::function<double()>& clock) {
    const Pin pin = store_.acquire(0, StateKinds::all());
    pin.open_gradients();
    ahead_.copy();
    const Moment start = moment(clock);
    LayerGraph graph{.inputs = make_inputs(inputs_)};
    std::vector<at::Tensor> outputs = forward_with_graph(layer_, context_, pin.weights(), graph);
    const Moment forward_end = moment(clock);
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& output : outputs)
      gradients.push_back(at::ones(output.sizes(), output.options()));
    outputs.clear();
    ahead_.copy();
    const Moment backward_start = moment(clock);
    if (halves_) {
      backward_to_inputs(graph, std::move(gradients));
    } else {
      backward(std::move(graph), std::move(gradients));
    }
    const Moment inputs_end = moment(clock);
    if (halves_) backward_to_weights(std::move(graph));
    const Moment backward_end = moment(clock);
    ahead_.copy();
    const Moment update_start = moment(clock);
    update(pin);
    const Moment update_end = moment(clock);
    if (++runs_ == 1) return;  // the first run includes page faults and the start of libraries
    const auto add = [&](LayerPart part, const Moment& from, const Moment& to) {
      seconds_[static_cast<int>(part)].push_back(between(from, to));
    };
    add(LayerPart::kForward, start, forward_end);
    add(LayerPart::kBackward, backward_start, backward_end);
    add(LayerPart::kUpdate, update_start, update_end);
    if (!halves_) return;
    add(LayerPart::kInputs, backward_start, inputs_end);
    add(LayerPart::kWeights, inputs_end, backward_end);
  }

  LayerSeconds seconds() const {
    LayerSeconds result;
    for (int part = 0; part < kNumLayerParts; ++part)
      result.parts[part] = timing_of(seconds_[part]);
    return result;
  }

  bool steady() const {
    const LayerSeconds known = seconds();
    return known[LayerPart::kForward].spread < kSteadySpread &&
           known[LayerPart::kBackward].spread < kSteadySpread;
  }

 private:
  bool on_host() const { return device_.kind == DeviceKind::kCpu; }
  StepScalars& scalars() { return *static_cast<StepScalars*>(scalars_.mutable_data_ptr()); }

  Moment moment(const std::function<double()>& clock) const {
    return stream_.queue() ? Moment{.event = stream_.record(EventTime::kKnown)} : Moment{clock()};
  }
  double between(const Moment& begin, const Moment& end) const {
    return stream_.queue() ? seconds_between(begin.event, end.event) : end.seconds - begin.seconds;
  }

  void update(const Pin& pin) {
    if (layout_.own_numel > 0) {
      const at::Tensor own = pin.gradient_shard();
      const MasterWeights master = pin.master();
      const UpdateRange range{.weights = master.weights,
                              .gradients = own,
                              .slots = pin.slots(),
                              .decay_numel = layout_.decay_numel,
                              .rounded = pin.rounded(),
                              .remainder = master.remainder};
      if (on_host()) {
        sum_of_squares(own);
        if (sends_signs_) {
          update_by_signs(range);
        } else if (optimizer_.has_trust_ratios()) {
          update_by_ratios(range);
        } else {
          optimizer_.update(range, runs_ + 1, 0.0);
        }
      } else {
        const FlatRange whole{0, own.numel()};
        const at::Tensor sums = at::zeros({num_blocks(own.numel())}, device_.options(at::kDouble));
        step_primitives(own.device().type()).block_sums(own, whole, {&whole, 1}, sums);
        optimizer_.update(range, optimizer_.begin_update(scalars(), device_));
        if (optimizer_.orthogonalises()) orthogonalise_matrices(own);
      }
    }
    pin.zero_gradients();
  }

  void update_by_ratios(const UpdateRange& range) {
    const LambStep step = lamb_step(optimizer_.options(), runs_ + 1, 0.0, 1.0);
    const std::vector<double> ratios =
        trust_ratios(step, add_blocks(blocks_, find_directions(step, blocks_, range, 0)));
    move_by_directions(step, blocks_, range, 0, ratios);
    optimizer_.update(narrowed(range, {range.decay_numel, range.weights.numel()}), runs_ + 1, 0.0);
  }

  // The first one after freeze_step does more.
  std::int64_t sign_update() const { return optimizer_.options().freeze_step + 2; }

  // What a replica computes if it sends signs: one of n replicas averages an n-th of n vectors.
  void update_by_signs(const UpdateRange& range) {
    const OneBitStep step = one_bit_step(optimizer_.options(), sign_update(), 0.0, 1.0, 1);
    add_momenta(step, range);
    OneBitMean mean = OneBitMean::start(*alone_, *alone_, range.slots.at(kWorkerErrorSlot),
                                        {{0, range.gradients.numel()}});
    mean.add_average(range.slots.at(kServerErrorSlot));
    mean.send_average(range.slots.at(kServerErrorSlot));
    mean.finish(range.gradients);
    if (optimizer_.freezes_trust_ratios()) return move_by_frozen_ratios(step, range);
    move_weights(step, range, range.gradients);
  }

  void move_by_frozen_ratios(const OneBitStep& adam, const UpdateRange& range) {
    const OneBitLambStep step = one_bit_lamb_step(optimizer_.options(), sign_update(), 0.0, adam);
    refresh_variances(step, blocks_, range, 0, {}, range.gradients);
    const std::vector<FrozenRatio> ratios(blocks_.weights().size());
    move_weights(step, blocks_, range, 0, ratios, range.gradients);
  }

  // Takes the time of the directions' orthogonalisation.
  void orthogonalise_matrices(const at::Tensor& flat) {
    for (std::size_t i = 0; i < layout_.specs.size(); ++i) {
      const WeightPlacement& place = layout_.placements[i];
      if (!layout_.specs[i].hidden_matrix || place.borrowed) continue;
      orthogonalised(flat.narrow(0, place.offset, place.numel).view({place.shape[0], -1}));
    }
  }

  const Layer& layer_;
  const LayerLayout& layout_;
  const WeightBlocks blocks_;
  const Optimizer& optimizer_;
  bool halves_;
  bool sends_signs_;
  const std::unique_ptr<Group> alone_ = single_rank();
  Device device_;
  const Stream& stream_;
  const Ahead& ahead_;
  at::Tensor scalars_;  // the numbers of a step on a device, with a learning rate of 0
  LayerStore store_;
  LoneSlice slice_;
  LoneContext context_ranks_;
  LossSink sink_;
  ForwardContext context_;
  std::vector<at::Tensor> inputs_;
  std::vector<double> seconds_[kNumLayerParts];
  int runs_ = 0;
};

using ProbedLayers = std::vector<std::unique_ptr<ProbedLayer>>;

// Rank 0 decides when to stop, so that all ranks leave together.
bool enough(const ProbedLayers& layers, int round, double seconds) {
  if (round < kMinRounds) return false;
  const double planned = kProbeSeconds * static_cast<double>(layers.size());
  if (round >= kMaxRounds || seconds > kPatience * planned) return true;
  return seconds > planned && std::all_of(layers.begin(), layers.end(),
                                          [](const auto& layer) { return layer->steady(); });
}

void run_rounds(const ProbedLayers& layers, const std::function<double()>& clock, Group& group) {
  for (const auto& layer : layers) layer->run(clock);
  const double begin = clock();
  for (int round = 1;; ++round) {
    for (const auto& layer : layers) {
      group.barrier();
      layer->run(clock);
    }
    double stop[] = {group.rank() == 0 && enough(layers, round, clock() - begin) ? 1.0 : 0.0};
    group.all_reduce(stop);
    if (stop[0] > 0) return;
  }
}

// A layer at a level.
struct Probed {
  int layer;
  const LevelTable* table;
  const LayerCost& cost() const { return table->costs->layers[layer]; }
};
using Portion = std::vector<Probed>;

// Layers that fit in options.most_bytes together with what all ranks need of them, at least one. A
// layer's levels are measured together.
std::vector<Portion> in_portions(const std::map<std::string, Portion>& missing,
                                 const ProbeOptions& options) {
  std::vector<Portion> portions;
  std::int64_t bytes = 0;
  for (const auto& [key, levels] : missing) {
    std::int64_t more = 0;
    for (const Probed& probed : levels) {
      const LayerCost& cost = probed.cost();
      more += options.ranks *
              (cost.weight_bytes + cost.gradient_bytes + cost.state_bytes + cost.replica_bytes);
    }
    if (portions.empty() || bytes + more > options.most_bytes) {
      portions.emplace_back();
      bytes = 0;
    }
    portions.back().insert(portions.back().end(), levels.begin(), levels.end());
    bytes += more;
  }
  return portions;
}

// The levels of a layer that have keys of their own.
Portion different_levels(const std::vector<LevelTable>& tables,
                         const std::vector<std::vector<std::string>>& keys, int layer) {
  Portion levels;
  for (std::size_t t = 0; t < tables.size(); ++t)
    if (t == 0 || keys[t][layer] != keys[t - 1][layer]) levels.push_back({layer, &tables[t]});
  return levels;
}

std::int64_t largest_weight_bytes(const LayerLayout& layout) {
  std::int64_t most = 0;
  for (const WeightPlacement& weight : layout.placements) {
    std::int64_t numel = 1;
    for (const std::int64_t size : weight.shape) numel *= size;
    most = std::max(most, numel * static_cast<std::int64_t>(sizeof(float)));
  }
  return most;
}

// What a rank holds while it measures a portion: state and inputs of all its layers and, of one
// layer, what it needs while it runs or its initial values are made.
std::int64_t bytes_of(const Portion& portion, const Sequential& model, const CostRequest& request) {
  const std::vector<TensorSpec> values = model.value_specs(request.batch_inputs);
  std::int64_t held = 0, running = 0;
  for (const Probed& probed : portion) {
    const LayerCost& cost = probed.cost();
    const int layer = probed.layer;
    const std::vector<TensorSpec> inputs = model.input_specs(layer, request.batch_inputs, values);
    held += cost.weight_bytes + cost.gradient_bytes + cost.state_bytes + cost.replica_bytes;
    for (const TensorSpec& input : inputs) held += input.bytes();
    std::int64_t values_and_gradients = 0;
    for (const TensorSpec& output : model.layer(layer).outputs(inputs))
      values_and_gradients += 2 * output.bytes();
    running = std::max({running, largest_weight_bytes(model.layout(layer)),
                        cost.saved_bytes + values_and_gradients +
                            std::max({cost.forward_transient_bytes, cost.backward_transient_bytes,
                                      cost.input_transient_bytes + cost.kept_bytes,
                                      cost.weight_transient_bytes})});
  }
  return held + running;
}

std::string names_of(const Portion& portion) {
  std::set<std::string> names;  // a layer is measured at several levels
  std::string text;
  for (const Probed& probed : portion)
    if (names.insert(probed.cost().name).second)
      text += (text.empty() ? "" : ", ") + probed.cost().name;
  return text;
}

// The ranks that measure on a device of the kind, by its index.
std::map<int, int> ranks_on_devices(DeviceKind kind, int ranks) {
  std::map<int, int> counts;
  for (int rank = 0; rank < ranks; ++rank) ++counts[device_of_rank(kind, rank).index];
  return counts;
}

void require_free_memory(const Portion& portion, std::int64_t bytes, Device device, int ranks,
                         std::int64_t free) {
  if (bytes * ranks <= free) return;
  const std::string each = format_bytes(bytes);
  throw SystemError(
      {.operation = "pipeline.probe",
       .where = names_of(portion),
       .what = "to measure it takes more memory than " +
               (device.kind == DeviceKind::kCpu ? "this machine" : device.name()) + " has free",
       .expected = "at most " + format_bytes(free),
       .got = ranks == 1 ? each : std::to_string(ranks) + " ranks of " + each,
       .fix = "run strata plan with --estimate, which measures nothing, or with --machine for "
              "another machine"});
}

// A system without free memory kills processes without an error, so it is checked first.
void require_free_memory(const std::vector<Portion>& portions, const Sequential& model,
                         std::int64_t workspace_bytes, const CostRequest& request,
                         const ProbeOptions& options) {
  if (portions.empty()) return;
  const DeviceKind kind = request.device.kind;
  for (const auto& [index, ranks] : ranks_on_devices(kind, options.ranks)) {
    const Device device{kind, index};
    const std::int64_t free = options.free_bytes(device);
    const std::int64_t others =
        kind == DeviceKind::kCpu ? 0 : workspace_bytes + 2 * ahead_bytes(device);
    for (const Portion& portion : portions)
      require_free_memory(portion, others + bytes_of(portion, model, request), device, ranks, free);
  }
}

// By the assumed seconds of the layers; the first round is not counted.
bool takes_long(const Portion& portion) {
  double seconds = 0;
  for (const Probed& probed : portion) {
    const LayerCost& cost = probed.cost();
    seconds += cost.forward_seconds + cost.backward_seconds + cost.update_seconds;
  }
  return std::max(kProbeSeconds * static_cast<double>(portion.size()), (kMinRounds + 1) * seconds) >
         kLongSeconds;
}

}  // namespace

std::string default_probe_cache() { return default_cache_file("probe.json"); }

std::vector<std::string> probe_keys(const Sequential& model, const CostRequest& request,
                                    const ProbeOptions& options) {
  const std::vector<TensorSpec> values = model.value_specs(request.batch_inputs);
  const std::string how =
      std::string(request.halves ? "halves " : "") + name_of(options.optimizer) +
      (request.sends_signs ? " signs " : " ") + std::to_string(options.ranks) + "x" +
      std::to_string(options.threads_per_rank) + " of " + std::to_string(model.split().ranks) +
      (model.split().sequence ? " sequence" : "") +
      (chosen_primitives(request.device.kind) == PrimitivesChoice::kOwn ? "" : " aten") +
      (request.device.kind == DeviceKind::kCpu
           ? ""
           : " on " + backend_of(request.device.kind).facts(request.device.index).name);
  std::vector<std::string> keys;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    std::string key = model.layer(layer).signature();
    for (const TensorSpec& spec : model.input_specs(layer, request.batch_inputs, values))
      for (const std::int64_t size : spec.shape) key += " " + std::to_string(size);
    key += std::string(" ") + c10::toString(request.precision) + " " +
           name_of(level_of(model.layer(layer), request)) + " ";
    keys.push_back(key + how);
  }
  return keys;
}

std::vector<std::vector<std::string>> probe_seconds(const std::vector<LevelTable>& tables,
                                                    const Sequential& model,
                                                    const CostRequest& request,
                                                    const ProbeOptions& options) {
  const std::vector<TensorSpec> values = model.value_specs(request.batch_inputs);
  const auto optimizer = make_optimizer({.kind = options.optimizer});
  ProbeCache cache(options.cache_file);

  std::vector<std::vector<std::string>> keys;
  for (const LevelTable& table : tables) {
    CostRequest at_level = request;
    at_level.recompute = table.level;
    keys.push_back(probe_keys(model, at_level, options));
  }
  std::map<std::string, Portion> missing;  // layers of which a level is not known well enough
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const bool known = std::ranges::all_of(keys, [&](const std::vector<std::string>& of_level) {
      return cache.find(of_level[layer]) && !cache.is_disturbed(of_level[layer]);
    });
    if (!known) missing.try_emplace(keys.front()[layer], different_levels(tables, keys, layer));
  }

  const std::vector<Portion> portions = in_portions(missing, options);
  require_free_memory(portions, model, tables.front().costs->workspace_bytes, request, options);
  const PassingBlocks blocks;
  for (const Portion& portion : portions) {
    if (options.report && takes_long(portion)) options.report(names_of(portion));
    std::mutex mutex;
    std::vector<std::vector<LayerSeconds>> measured(portion.size());  // by rank
    run_thread_ranks({.ranks = options.ranks,
                      .threads_per_rank = options.threads_per_rank,
                      .device = request.device},
                     [&](Group& group, MemoryAccount&) {
                       const Stream stream = options.stream(request.device);
                       const Ahead ahead(stream, request.device);
                       ProbedLayers layers;
                       for (const auto& [layer, table] : portion)
                         layers.push_back(std::make_unique<ProbedLayer>(
                             model.layer(layer), model.layout(layer),
                             model.input_specs(layer, request.batch_inputs, values), request,
                             table->level, model.split(), *optimizer, stream, ahead));
                       run_rounds(layers, options.clock, group);
                       const std::lock_guard lock(mutex);
                       for (std::size_t i = 0; i < layers.size(); ++i)
                         measured[i].push_back(layers[i]->seconds());
                     });
    for (std::size_t i = 0; i < portion.size(); ++i)
      cache.measured_again(keys[portion[i].table - tables.data()][portion[i].layer],
                           mean_of(measured[i]));
  }
  cache.save();

  for (std::size_t t = 0; t < tables.size(); ++t) {
    for (int layer = 0; layer < model.num_layers(); ++layer) {
      const LayerSeconds seconds = *cache.find(keys[t][layer]);
      LayerCost& cost = tables[t].costs->layers[layer];
      cost.forward_seconds = seconds.forward();
      cost.backward_seconds = seconds.backward();
      cost.update_seconds = seconds.update();
      cost.weight_seconds = seconds.weights();
    }
  }
  return keys;
}

}  // namespace strata
