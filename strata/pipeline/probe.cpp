#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "strata/base/clock.h"
#include "strata/base/median.h"
#include "strata/comm/thread_ranks.h"
#include "strata/nn/initialise.h"
#include "strata/optim/gradient_norm.h"
#include "strata/optim/optimizer.h"
#include "strata/pipeline/costs.h"
#include "strata/pipeline/layer_graph.h"
#include "strata/pipeline/probe_cache.h"
#include "strata/tier/store.h"

namespace strata {
namespace {

constexpr double kProbeSeconds = 0.1;  // a layer, beyond the first run
constexpr int kMinRuns = 3, kMaxRuns = 50;

std::vector<at::Tensor> random_inputs(const std::vector<TensorSpec>& specs) {
  std::vector<at::Tensor> inputs;
  for (const TensorSpec& spec : specs)
    inputs.push_back(c10::isFloatingType(spec.dtype) ? at::randn(spec.shape).to(spec.dtype)
                                                     : at::randint(0, 2, spec.shape, at::kLong));
  return inputs;
}

// One of n tensor-parallel ranks alone: its share of the work in the shapes it has among them. What
// the ranks tell one another is reckoned by the plan, not timed here.
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
    return x.narrow(1, 0, x.size(1) / split_.ranks).contiguous();
  }

 private:
  TensorSplit split_;
};

// Runs one layer until its median is steady, in step with the other ranks.
LayerSeconds time_layer(const Layer& layer, const LayerLayout& layout,
                        const std::vector<TensorSpec>& specs, bool keep_intermediates,
                        const TensorSplit& split, at::ScalarType precision,
                        const Optimizer& optimizer, Group& group) {
  LayerStore store(device_medium());
  store.insert(0, layout, {}, static_cast<int>(optimizer.slot_names().size()),
               {.shard = {0, layout.own_numel}, .dtype = precision});
  const Lease lease = store.acquire(0);
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const at::Tensor first_values = at::zeros(layout.placements[i].shape);
    initialise(first_values, layout.specs[i], "probe", /*seed=*/1, /*rank=*/0, split.ranks);
    lease.weights()[i].detach().copy_(first_values);
  }
  const std::vector<at::Tensor> inputs = random_inputs(specs);
  LossSink sink;
  const LoneSlice slice(split);
  const ForwardContext context{.training = true,
                               .keep_intermediates = keep_intermediates,
                               .loss = &sink,
                               .tensor = split.ranks > 1 ? &slice : nullptr};

  std::vector<double> forward, backward, update;
  const double begin = now_seconds();
  for (int run = 0; run < kMaxRuns; ++run) {
    group.barrier();
    const double start = now_seconds();
    LayerGraph graph{.inputs = make_inputs(inputs)};
    std::vector<at::Tensor> outputs = forward_with_graph(layer, context, lease.weights(), graph);
    const double forward_end = now_seconds();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& output : outputs)
      gradients.push_back(at::ones(output.sizes(), output.options()));
    outputs.clear();
    const double backward_start = now_seconds();
    strata::backward(std::move(graph), std::move(gradients));
    const double backward_end = now_seconds();
    LayerBuffers& buffers = lease.buffers();
    if (layout.own_numel > 0) {
      const at::Tensor own = buffers.gradients.tensor().narrow(0, 0, layout.own_numel);
      sum_of_squares(own);
      optimizer.update({buffers.master, own, buffers.slots, layout.decay_numel}, run + 1, 0.0);
    }
    buffers.gradients.tensor().zero_();
    update.push_back(now_seconds() - backward_end);
    forward.push_back(forward_end - start);
    backward.push_back(backward_end - backward_start);
    // Rank 0 decides, so that all ranks leave together.
    double stop[] = {
        group.rank() == 0 && run >= kMinRuns && now_seconds() - begin > kProbeSeconds ? 1.0 : 0.0};
    group.all_reduce(stop);
    if (stop[0] > 0) break;
  }
  // The first run pays for page faults and the libraries' start.
  for (std::vector<double>* times : {&forward, &backward, &update}) times->erase(times->begin());
  return {median(forward), median(backward), median(update)};
}

}  // namespace

void probe_seconds(CostTable& costs, const Sequence& model, const CostRequest& request,
                   const ProbeOptions& options) {
  const std::vector<TensorSpec> values = model.value_specs(request.batch_inputs);
  const auto optimizer = make_optimizer({.kind = options.optimizer});
  ProbeCache cache(options.cache_file);
  const auto key_of = [&](int layer) {
    std::string key = model.layer(layer).signature();
    for (const TensorSpec& spec : model.input_specs(layer, request.batch_inputs, values))
      for (const std::int64_t size : spec.shape) key += " " + std::to_string(size);
    return key + (request.keep_intermediates ? " none" : " cheap") + " " + options.optimizer + " " +
           std::to_string(options.ranks) + "x" + std::to_string(options.threads_per_rank);
  };

  std::map<std::string, int> missing;  // key -> a layer that has it
  for (int layer = 0; layer < model.num_layers(); ++layer)
    if (!cache.find(key_of(layer))) missing.emplace(key_of(layer), layer);

  for (const auto& [key, layer] : missing) {
    std::mutex mutex;
    LayerSeconds mean;
    run_thread_ranks({.ranks = options.ranks, .threads_per_rank = options.threads_per_rank},
                     [&, layer = layer](Group& group, MemoryAccount&) {
                       const LayerSeconds seconds =
                           time_layer(model.layer(layer), model.layout(layer),
                                      model.input_specs(layer, request.batch_inputs, values),
                                      request.keep_intermediates, model.split(), request.precision,
                                      *optimizer, group);
                       const std::lock_guard lock(mutex);
                       mean.forward += seconds.forward / options.ranks;
                       mean.backward += seconds.backward / options.ranks;
                       mean.update += seconds.update / options.ranks;
                     });
    cache.insert(key, mean);
  }
  cache.save();

  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const LayerSeconds seconds = *cache.find(key_of(layer));
    costs.layers[layer].forward_seconds = seconds.forward;
    costs.layers[layer].backward_seconds = seconds.backward;
    costs.layers[layer].update_seconds = seconds.update;
  }
}

}  // namespace strata
