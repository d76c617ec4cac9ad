// Everything is enqueued on the device's compute stream without waiting: each kernel reads the
// results of earlier kernels from the step's scalars.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/device/device.h"
#include "strata/optim/cuda_kernels.h"
#include "strata/optim/gradient_norm.h"
#include "strata/optim/step_primitives.h"

namespace strata {
namespace {

void* stream_of(const at::Tensor& x) {
  STRATA_CHECK(x.is_cuda() && x.is_contiguous(), "optim.step_primitives");
  return Stream::compute({DeviceKind::kCuda, x.device().index()}).native();
}

class CudaStepPrimitives final : public StepPrimitives {
 public:
  void block_sums(const at::Tensor& gradients, FlatRange part, std::span<const FlatRange> counted,
                  const at::Tensor& sums) const override {
    STRATA_CHECK_EQ(gradients.scalar_type(), at::kFloat, "optim.block_sums");
    STRATA_CHECK_EQ(gradients.numel(), part.size(), "optim.block_sums");
    void* stream = stream_of(gradients);
    const float* values = gradients.const_data_ptr<float>();
    auto* blocks = sums.mutable_data_ptr<double>();
    sums.zero_();
    const auto add = [&](std::int64_t begin, std::int64_t end) {
      if (begin < end)
        cuda::add_block_squares(values + begin - part.begin, blocks + begin / kFlatBlock,
                                end - begin, stream);
    };
    for (const FlatRange range : counted) {
      const std::int64_t begin = std::max(range.begin, part.begin);
      const std::int64_t end = std::min(range.end, part.end);
      // The rest of a block that another range may have begun is a sum of its own, as on the host.
      const std::int64_t edge = std::min(end, num_blocks(begin) * kFlatBlock);
      add(begin, edge);
      add(std::max(begin, edge), end);
    }
  }

  void sum_layers(const at::Tensor& blocks, std::span<const LayerBlocks> layers,
                  const at::Tensor& sums) const override {
    cuda::sum_layers(blocks.const_data_ptr<double>(), on_device(layers, blocks),
                     static_cast<std::int64_t>(layers.size()), sums.mutable_data_ptr<double>(),
                     stream_of(blocks));
  }

  void end_step(const at::Tensor& sums, double clip, StepScalars& scalars) const override {
    cuda::end_step(sums.const_data_ptr<double>(), sums.numel(), clip, &scalars, stream_of(sums));
  }

  BegunUpdate begin_update(const kernels::UpdateConstants& constants, const StepScalars& scalars,
                           Device device) const override {
    const UnchargedScope uncharged;
    BegunUpdate begun{&scalars,
                      at::empty({sizeof(kernels::UpdateStep)}, device.options(at::kByte))};
    cuda::begin_update(constants, &scalars,
                       static_cast<kernels::UpdateStep*>(begun.constants.mutable_data_ptr()),
                       stream_of(begun.constants));
    return begun;
  }

  void update(kernels::UpdateRule rule, const UpdateRange& range,
              const BegunUpdate& step) const override {
    cuda::update(rule, static_cast<const kernels::UpdateStep*>(step.constants.const_data_ptr()),
                 update_arrays(range, kernels::num_slots(rule)), range.weights.numel(),
                 step.scalars, stream_of(range.weights));
  }

  void move_statistic(const StatisticRange& range, const StepScalars& scalars) const override {
    cuda::move_statistic(range.values.mutable_data_ptr<float>(),
                         range.found.const_data_ptr<double>(), range.momentum, range.values.numel(),
                         &scalars, stream_of(range.values));
  }

 private:
  // Copied once per device and table, because a recorded step must not read host memory.
  const LayerBlocks* on_device(std::span<const LayerBlocks> layers, const at::Tensor& like) const {
    std::vector<std::int64_t> key = {like.device().index()};
    for (const LayerBlocks& layer : layers)
      key.insert(key.end(), {layer.begin, layer.end, layer.target});
    const std::lock_guard lock(mutex_);
    at::Tensor& table = tables_[key];
    if (!table.defined()) {
      const UnchargedScope uncharged;  // shared by ranks on the device, outlives them
      const auto bytes = static_cast<std::int64_t>(layers.size_bytes());
      const at::Tensor host = at::empty({bytes}, host_options(at::kByte));
      std::memcpy(host.mutable_data_ptr(), layers.data(), layers.size_bytes());
      table = host.to(like.device());
    }
    return static_cast<const LayerBlocks*>(table.const_data_ptr());
  }

  mutable std::mutex mutex_;
  mutable std::map<std::vector<std::int64_t>, at::Tensor> tables_;
};

}  // namespace

const StepPrimitives& cuda_step_primitives() {
  // Never freed, because the driver may be unloaded before static objects.
  static const auto& primitives = *new CudaStepPrimitives;
  return primitives;
}

}  // namespace strata
