#include "strata/serve/sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/base/philox.h"

namespace strata {

std::int64_t TokenSampler::choose(const at::Tensor& logits, std::uint32_t number) const {
  const float* z = logits.const_data_ptr<float>();
  const std::int64_t count = logits.numel();
  const float* top = std::max_element(z, z + count);
  if (temperature_ == 0) return top - z;
  std::vector<double> weights(count);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i)
    sum += weights[i] = std::exp((z[i] - *top) / temperature_);
  const PhiloxBlock block = philox({number, 0, 0, 2}, {static_cast<std::uint32_t>(seed_),
                                                       static_cast<std::uint32_t>(seed_ >> 32)});
  double left = (block[0] + 0.5) * 0x1p-32 * sum;
  for (std::int64_t i = 0; i < count; ++i)
    if ((left -= weights[i]) < 0) return i;
  return count - 1;
}

}  // namespace strata
