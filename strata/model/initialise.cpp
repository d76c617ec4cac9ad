#include "strata/model/initialise.h"

#include <cmath>
#include <numbers>

#include "strata/base/philox.h"
#include "strata/model/ops/parallel.h"

namespace strata {
namespace {

// FNV-1a; std::hash differs between standard libraries.
std::uint64_t hash_name(const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001B3ull;
  return hash;
}

double uniform(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }

void fill_normal(const at::Tensor& weight, double stddev, std::uint64_t key) {
  float* data = weight.data_ptr<float>();
  const std::array<std::uint32_t, 2> words = {static_cast<std::uint32_t>(key),
                                              static_cast<std::uint32_t>(key >> 32)};
  parallel_elements(weight.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += 4) {
      const auto block = static_cast<std::uint64_t>(i / 4);
      const PhiloxBlock drawn =
          philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 1},
                 words);
      for (std::int64_t e = i; e < std::min(i + 4, end); ++e) {
        const std::size_t pair = (e - i) / 2 * 2;
        const double radius = stddev * std::sqrt(-2.0 * std::log(uniform(drawn[pair])));
        const double angle = 2.0 * std::numbers::pi * uniform(drawn[pair + 1]);
        data[e] = static_cast<float>(radius * ((e - i) % 2 ? std::sin(angle) : std::cos(angle)));
      }
    }
  });
}

}  // namespace

void initialise(const at::Tensor& weight, const WeightSpec& spec, const std::string& layer_name,
                std::uint64_t seed) {
  switch (spec.init.kind) {
    case Init::Kind::kZeros:
      weight.zero_();
      return;
    case Init::Kind::kOnes:
      weight.fill_(1.0);
      return;
    case Init::Kind::kNormal:
      break;
  }
  const std::string name = spec.tie.empty() ? layer_name + "." + spec.name : "tie." + spec.tie;
  fill_normal(weight, spec.init.stddev, mix_key(seed, hash_name(name)));
}

}  // namespace strata
