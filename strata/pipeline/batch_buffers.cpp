#include "strata/pipeline/batch_buffers.h"

#include <ATen/ops/empty.h>

#include "strata/device/pinned.h"

namespace strata {

BatchBuffers::~BatchBuffers() {
  try {
    // it may still read memory that is freed here
    if (device_.kind != DeviceKind::kCpu) stream_.synchronize();
  } catch (...) {  // a failed device reads nothing
  }
}

void BatchBuffers::fill(Buffer& buffer, const at::Tensor& input) {
  if (device_.kind == DeviceKind::kCpu || !input.is_cpu()) {
    buffer.tensor.copy_(input);
    return;
  }
  if (input.numel() == 0) return;
  Staging& staging = buffer.staging[static_cast<std::size_t>(buffer.next)];
  buffer.next = 1 - buffer.next;
  if (!staging.bytes.defined())
    staging.bytes = pinned_bytes(static_cast<std::int64_t>(input.nbytes()), device_, nullptr)
                        .view(input.scalar_type())
                        .view(input.sizes());
  staging.copied.wait();
  staging.bytes.copy_(input);
  buffer.tensor.copy_(staging.bytes, /*non_blocking=*/true);
  staging.copied = stream_.record();
}

MiniBatch BatchBuffers::place(MiniBatch batch) {
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    at::Tensor& input = batch.inputs[i];
    const auto [entry, is_new] =
        buffers_.try_emplace(Key{static_cast<int>(i), input.scalar_type(), input.sizes().vec()});
    Buffer& buffer = entry->second;
    if (is_new) buffer.tensor = at::empty(input.sizes(), device_.options(input.scalar_type()));
    fill(buffer, input);
    input = buffer.tensor;
  }
  return batch;
}

}  // namespace strata
