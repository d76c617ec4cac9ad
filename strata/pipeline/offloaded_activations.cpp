#include "strata/pipeline/offloaded_activations.h"

#include <ATen/ops/empty.h>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/device/account.h"
#include "strata/device/device.h"
#include "strata/device/pinned.h"

namespace strata {

OffloadedActivations::~OffloadedActivations() {
  try {
    clear();
  } catch (const std::exception&) {
    // A thread that waited for a copy gets the error.
  }
}

// The smallest free buffer that is large enough: the last micro-batch may be shorter than the
// others.
at::Tensor OffloadedActivations::host_buffer(const at::Tensor& input) {
  auto best = free_.end();
  for (auto free = free_.begin(); free != free_.end(); ++free) {
    if (free->scalar_type() != input.scalar_type() || free->numel() < input.numel()) continue;
    if (best == free_.end() || free->numel() < best->numel()) best = free;
  }
  if (best != free_.end()) {
    at::Tensor found = std::move(*best);
    free_.erase(best);
    return found;
  }
  if (compute_.queue() && input.numel() > 0) {
    const auto bytes = static_cast<std::int64_t>(input.nbytes());
    return pinned_bytes(bytes, compute_.device(), host_).view(input.scalar_type());
  }
  const AccountScope account(host_, DeviceKind::kCpu);
  return at::empty({input.numel()}, host_options(input.scalar_type()));
}

double OffloadedActivations::wait(const Completion& event) {
  const double begin = now_seconds();
  compute_.wait(event);  // a device's stream waits; on a CPU the rank does
  waited_seconds_ += now_seconds() - begin;
  return begin;
}

void OffloadedActivations::end_offload() {
  if (!leaving_) return;
  Run& run = *std::exchange(leaving_, nullptr);
  wait(run.moved);
  for (std::size_t i = 0; i < run.inputs.size(); ++i)
    if (run.host[i].defined()) run.inputs[i] = at::Tensor();
}

void OffloadedActivations::offload(int layer, int micro_batch, std::vector<at::Tensor> inputs) {
  end_offload();
  const auto [entry, is_new] = runs_.try_emplace({layer, micro_batch});
  STRATA_CHECK(is_new, "pipeline.offload");
  Run& run = entry->second;
  run.host.resize(inputs.size());
  for (at::Tensor& input : inputs) {
    run.shapes.push_back(input.sizes().vec());
    if (input.is_floating_point()) input = input.detach().contiguous();
  }
  // After the work that produced them, and after the copy from the buffer's previous content:
  // take() waits for that.
  const Completion made = compute_.record();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_floating_point()) continue;
    run.host[i] = host_buffer(inputs[i]);
    run.moved =
        link_.to_host(run.host[i].narrow(0, 0, inputs[i].numel()), inputs[i], {made}, layer);
  }
  run.inputs = std::move(inputs);
  leaving_ = &run;
}

void OffloadedActivations::fetch(int layer, int micro_batch) {
  end_offload();
  Run& run = runs_.at({layer, micro_batch});
  for (std::size_t i = 0; i < run.inputs.size(); ++i)
    if (run.host[i].defined())
      run.inputs[i] =
          at::empty(run.shapes[i], compute_.device().options(run.host[i].scalar_type()));
  // After the memory's previous user, and after their own offload, which has been awaited.
  const Completion free = compute_.record();
  for (std::size_t i = 0; i < run.inputs.size(); ++i) {
    if (!run.host[i].defined()) continue;
    run.moved = link_.to_device(run.inputs[i], run.host[i].narrow(0, 0, run.inputs[i].numel()),
                                {free}, layer);
  }
}

std::vector<at::Tensor> OffloadedActivations::take(int layer, int micro_batch) {
  const auto entry = runs_.find({layer, micro_batch});
  STRATA_CHECK(entry != runs_.end(), "pipeline.take_activations");
  const double began = wait(entry->second.moved);
  if (trace_) trace_->add_wait(Op::kFetchActivations, layer, began);
  for (at::Tensor& host : entry->second.host)
    if (host.defined()) free_.push_back(std::move(host));
  std::vector<at::Tensor> inputs = std::move(entry->second.inputs);
  runs_.erase(entry);
  return inputs;
}

void OffloadedActivations::clear() {
  // A CPU's copies keep their source alive.
  if (compute_.queue())
    for (const auto& [place, run] : runs_) compute_.wait(run.moved);
  leaving_ = nullptr;
  runs_.clear();
}

}  // namespace strata
