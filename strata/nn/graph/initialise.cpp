// An element's counter is its index in the whole weight, so any slice draws the same numbers. They
// are computed in double: math libraries differ in the last bits, which rarely affect a float.
#include "strata/nn/graph/initialise.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "strata/base/philox.h"
#include "strata/device/parallel.h"
#include "strata/nn/graph/layout.h"

namespace strata {
namespace {

// FNV-1a; std::hash differs between standard libraries.
std::uint64_t hash_name(const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001B3ull;
  return hash;
}

double uniform(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }

constexpr std::int64_t kDrawn = 4;  // numbers per Philox block

double normal_number(const PhiloxBlock& drawn, std::size_t place, double stddev) {
  const std::size_t pair = place / 2 * 2;
  const double radius = stddev * std::sqrt(-2.0 * std::log(uniform(drawn[pair])));
  const double angle = 2.0 * std::numbers::pi * uniform(drawn[pair + 1]);
  return radius * (place % 2 ? std::sin(angle) : std::cos(angle));
}

double uniform_number(const PhiloxBlock& drawn, std::size_t place, double scale) {
  return scale * (2 * uniform(drawn[place]) - 1);
}

// Fills elements [begin, begin + numel) of the whole weight; `number` takes a block and an index in
// it.
template <typename Number>
void fill(float* data, std::int64_t begin, std::int64_t numel, std::uint64_t key, Number number) {
  const std::array<std::uint32_t, 2> words = {static_cast<std::uint32_t>(key),
                                              static_cast<std::uint32_t>(key >> 32)};
  parallel_elements(numel, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t i = begin + from; i < begin + to;) {
      const auto block = static_cast<std::uint64_t>(i / kDrawn);
      const PhiloxBlock drawn =
          philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 1},
                 words);
      const std::int64_t end = std::min((i / kDrawn + 1) * kDrawn, begin + to);
      for (; i < end; ++i)
        data[i - begin] = static_cast<float>(number(drawn, static_cast<std::size_t>(i % kDrawn)));
    }
  });
}

}  // namespace

void initialise(const at::Tensor& weight, const WeightSpec& spec, const std::string& layer_name,
                std::uint64_t seed, int rank, int ranks, std::int64_t begin) {
  weight.zero_();
  std::vector<Run> runs = clip_runs(slice_runs(spec, rank, ranks), begin, begin + weight.numel());
  for (Run& run : runs) run.local -= begin;
  float* data = weight.data_ptr<float>();
  switch (spec.init.kind) {
    case Init::Kind::kZeros:
      return;
    case Init::Kind::kOnes:
      for (const Run& run : runs) std::fill_n(data + run.local, run.numel, 1.0f);
      return;
    case Init::Kind::kNormal:
    case Init::Kind::kUniform:
      break;
  }
  const std::string name = spec.tie.empty() ? layer_name + "." + spec.name : "tie." + spec.tie;
  const auto number = spec.init.kind == Init::Kind::kNormal ? normal_number : uniform_number;
  for (const Run& run : runs)
    fill(data + run.local, run.global, run.numel, mix_key(seed, hash_name(name)),
         [&](const PhiloxBlock& drawn, std::size_t place) {
           return number(drawn, place, spec.init.scale);
         });
}

}  // namespace strata
