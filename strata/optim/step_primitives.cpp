#include "strata/optim/step_primitives.h"

#include <ATen/ops/empty.h>

#include <new>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/device/device.h"
#include "strata/nn/primitives/primitive_choice.h"
#include "strata/optim/gradient_norm.h"

namespace strata {
namespace {

std::span<double> doubles_of(const at::Tensor& sums) {
  STRATA_CHECK(sums.is_cpu() && sums.is_contiguous(), "optim.step_primitives");
  return {sums.mutable_data_ptr<double>(), static_cast<std::size_t>(sums.numel())};
}

class HostStepPrimitives final : public StepPrimitives {
 public:
  void block_sums(const at::Tensor& gradients, FlatRange part, std::span<const FlatRange> counted,
                  const at::Tensor& sums) const override {
    strata::block_sums(gradients, part, counted, doubles_of(sums));
  }

  void sum_layers(const at::Tensor& blocks, std::span<const LayerBlocks> layers,
                  const at::Tensor& sums) const override {
    strata::sum_layers(doubles_of(blocks).data(), layers, doubles_of(sums).data());
  }

  void end_step(const at::Tensor& sums, double clip, StepScalars& scalars) const override {
    strata::end_step(doubles_of(sums), clip, scalars);
  }

  BegunUpdate begin_update(const kernels::UpdateConstants& constants, const StepScalars& scalars,
                           Device) const override {
    const UnchargedScope uncharged;
    BegunUpdate begun{&scalars, at::empty({sizeof(kernels::UpdateStep)}, host_options(at::kByte))};
    new (begun.constants.mutable_data_ptr()) kernels::UpdateStep(
        update_step(constants, update_number(scalars), scalars.learning_rate, scalars.factor));
    return begun;
  }

  void update(kernels::UpdateRule rule, const UpdateRange& range,
              const BegunUpdate& step) const override {
    if (step.scalars->skip != 0) return;
    update_on_threads(*static_cast<const kernels::UpdateStep*>(step.constants.const_data_ptr()),
                      update_arrays(range, kernels::num_slots(rule)), range.weights.numel());
  }

  void move_statistic(const StatisticRange& range, const StepScalars& scalars) const override {
    if (scalars.skip != 0) return;
    float* values = range.values.mutable_data_ptr<float>();
    const double* found = range.found.const_data_ptr<double>();
    for (std::int64_t e = 0; e < range.values.numel(); ++e)
      values[e] = moved_statistic(values[e], found[e], range.momentum);
  }
};

}  // namespace

const StepPrimitives& host_step_primitives() {
  static const HostStepPrimitives primitives;
  return primitives;
}

const StepPrimitives& step_primitives(c10::DeviceType type) {
  struct Named {
    DeviceKind kind;
    PrimitivesChoice choice;
    const StepPrimitives& (*find)();
  };
  constexpr Named kStepPrimitives[] = {
      {DeviceKind::kCpu, PrimitivesChoice::kOwn, host_step_primitives},
      {DeviceKind::kCpu, PrimitivesChoice::kAten, aten_step_primitives},
      {DeviceKind::kCuda, PrimitivesChoice::kOwn, cuda_step_primitives},
      {DeviceKind::kCuda, PrimitivesChoice::kAten, aten_step_primitives},
  };
  const DeviceKind kind = type == c10::DeviceType::CPU ? DeviceKind::kCpu : DeviceKind::kCuda;
  const PrimitivesChoice choice = chosen_primitives(kind);
  for (const Named& named : kStepPrimitives)
    if (named.kind == kind && named.choice == choice) return named.find();
  STRATA_CHECK(false, "optim.step_primitives");
  return host_step_primitives();
}

}  // namespace strata
