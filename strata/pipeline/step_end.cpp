// All decisions about an update stay on the device: it computes sums, norm, factor and skip in
// stream order, and the host reads one block afterwards.
#include "strata/pipeline/step_end.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstddef>
#include <cstring>

#include "strata/base/errors.h"
#include "strata/comm/collectives.h"
#include "strata/device/account.h"
#include "strata/device/pinned.h"
#include "strata/optim/step_primitives.h"

namespace strata {
namespace {

constexpr auto kBlockBytes = static_cast<std::int64_t>(sizeof(StepScalars));
constexpr auto kBegunBytes = static_cast<std::int64_t>(kStepBegunBytes);

}  // namespace

StepEnd::StepEnd(MeshGroups& groups, int num_layers, double clip)
    : groups_(groups),
      clip_(clip),
      device_(groups.world.device()),
      stream_(Stream::compute(device_)) {
  const UnchargedScope uncharged;  // numbers of the step, not tensors of a model
  const std::int64_t numbers = std::int64_t{num_layers} * groups[Axis::kTensor].size() + 1;
  sums_ = at::zeros({numbers}, device_.options(at::kDouble));
  if (device_.kind == DeviceKind::kCpu) return;
  block_ = at::zeros({kBlockBytes}, device_.options(at::kByte));
  for (Begun& begun : begun_) begun.bytes = pinned_bytes(kBegunBytes, device_, nullptr);
  carry({});
}

StepEnd::~StepEnd() {
  try {
    // the device may still access memory that is freed here
    if (block_.defined()) stream_.synchronize();
  } catch (...) {  // a failed device does not
  }
}

StepScalars& StepEnd::scalars() {
  return block_.defined() ? *static_cast<StepScalars*>(block_.mutable_data_ptr()) : known_;
}

const StepScalars* StepEnd::on_device() { return block_.defined() ? &scalars() : nullptr; }

const StepScalars& StepEnd::read() const {
  if (block_.defined()) {
    const at::Tensor bytes = block_.cpu();
    std::memcpy(&known_, bytes.const_data_ptr(), sizeof known_);
  }
  return known_;
}

void StepEnd::take_out_scale(at::Tensor gradient) const {
  constexpr auto kPlace =
      static_cast<std::int64_t>(offsetof(StepScalars, loss_scale) / sizeof(double));
  if (block_.defined()) {
    gradient.div_(block_.view(at::kDouble).select(0, kPlace));
  } else if (known_.loss_scale != 1) {
    gradient.div_(known_.loss_scale);
  }
}

void StepEnd::carry(const LossScale& scale) {
  strata::carry(scale, known_);
  known_.factor = 1 / known_.loss_scale;
  known_.skip = 0;
  if (!block_.defined()) return;
  at::Tensor bytes = at::empty({kBlockBytes}, host_options(at::kByte));
  std::memcpy(bytes.mutable_data_ptr(), &known_, sizeof known_);
  block_.copy_(bytes);
}

void StepEnd::begin(const StepScalars& step) {
  std::memcpy(&known_, &step, kStepBegunBytes);
  if (!block_.defined()) {
    known_.loss = known_.squares = known_.norm = 0;
    // Layers that are updated before the norm is known are not clipped.
    known_.factor = 1 / known_.loss_scale;
    known_.skip = 0;
    return;
  }
  Begun& begun = begun_[static_cast<std::size_t>(next_begun_)];
  next_begun_ = (next_begun_ + 1) % kUnderWay;
  begun.copied.wait();  // of two steps ago: the bytes may be overwritten
  std::memcpy(begun.bytes.mutable_data_ptr(), &step, kStepBegunBytes);
  block_.narrow(0, 0, kBegunBytes).copy_(begun.bytes, /*non_blocking=*/true);
  begun.copied = stream_.record();
}

at::Tensor StepEnd::blocks(std::int64_t count) {
  const UnchargedScope uncharged;
  if (!blocks_.defined() || blocks_.numel() != count)
    blocks_ = at::zeros({count}, device_.options(at::kDouble));
  return blocks_;
}

// One message per rank for tensors on the host, as for numbers.
void StepEnd::add_over(Group& group, const at::Tensor& sums) const {
  if (group.size() == 1) return;
  const UnchargedScope uncharged;  // copies that other ranks read
  if (!sums.is_cpu()) {
    at::Tensor all = sums;
    return all_reduce_sum(group, all);
  }
  group.all_reduce({sums.mutable_data_ptr<double>(), static_cast<std::size_t>(sums.numel())});
}

void StepEnd::end(const at::Tensor& blocks, std::vector<LayerBlocks> layers,
                  const at::Tensor& loss) {
  add_over(groups_.weights, blocks);
  end_with(blocks, std::move(layers), loss, groups_.weights.rank() == 0);
}

void StepEnd::end_apart(const at::Tensor& blocks, std::vector<LayerBlocks> layers,
                        const at::Tensor& loss) {
  add_over(groups_.shard, blocks);
  end_with(blocks, std::move(layers), loss, groups_.shard.rank() == 0);
}

void StepEnd::end_with(const at::Tensor& blocks, std::vector<LayerBlocks> layers,
                       const at::Tensor& loss, bool counts_layers) {
  const StepPrimitives& primitives = step_primitives(sums_.device().type());
  // One entry per layer and tensor-parallel rank, written by one rank only (adding zeros is exact)
  // or by one rank of each shard group, followed by the loss.
  sums_.zero_();
  if (counts_layers) {
    for (LayerBlocks& layer : layers)
      layer.target = layer.target * groups_[Axis::kTensor].size() + groups_[Axis::kTensor].rank();
    primitives.sum_layers(blocks, layers, sums_);
  }
  if (groups_[Axis::kTensor].rank() == 0) sums_.narrow(0, sums_.numel() - 1, 1).copy_(loss);
  add_over(groups_.world, sums_);
  primitives.end_step(sums_, clip_, scalars());
}

void StepEnd::post(std::int64_t valid_tokens) {
  Posted posted{.found = known_, .bytes = {}, .arrived = {}, .valid_tokens = valid_tokens};
  if (block_.defined()) {
    if (free_.empty()) free_.push_back(pinned_bytes(kBlockBytes, device_, nullptr));
    posted.bytes = std::move(free_.back());
    free_.pop_back();
    posted.bytes.copy_(block_, /*non_blocking=*/true);
    posted.arrived = stream_.record();
  }
  posted_.push_back(std::move(posted));
}

StepOutcome StepEnd::take() {
  STRATA_CHECK(!posted_.empty(), "pipeline.step_outcome");
  Posted posted = std::move(posted_.front());
  posted_.pop_front();
  posted.arrived.wait();
  if (posted.bytes.defined()) {
    std::memcpy(&posted.found, posted.bytes.const_data_ptr(), sizeof posted.found);
    free_.push_back(std::move(posted.bytes));
  }
  return {.loss = posted.found.loss / static_cast<double>(posted.valid_tokens),
          .gradient_norm = posted.found.norm,
          .skipped = posted.found.skip != 0};
}

}  // namespace strata
