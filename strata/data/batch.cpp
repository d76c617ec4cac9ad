#include "strata/data/batch.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {

std::vector<MicroBatch> split(const MiniBatch& batch, std::int64_t micro_batch_samples) {
  STRATA_CHECK(micro_batch_samples > 0, "data.split");
  std::vector<MicroBatch> micro_batches;
  for (std::int64_t first = 0; first < batch.samples; first += micro_batch_samples) {
    const std::int64_t samples = std::min(micro_batch_samples, batch.samples - first);
    MicroBatch micro_batch{.first_sample = first};
    for (const at::Tensor& input : batch.inputs) {
      micro_batch.inputs.push_back(input.narrow(0, first, samples));
    }
    micro_batches.push_back(std::move(micro_batch));
  }
  return micro_batches;
}

}  // namespace strata
