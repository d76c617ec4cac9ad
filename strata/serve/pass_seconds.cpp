#include "strata/serve/pass_seconds.h"

#include <algorithm>
#include <utility>

#include "strata/base/measurement.h"
#include "strata/nn/graph/initialise.h"

namespace strata {
namespace {

constexpr int kFewBlocks = 1, kMoreBlocks = 3;
constexpr int kRounds = 9;
constexpr std::size_t kCacheBytes = std::size_t{256} << 20;  // more than a processor's caches
constexpr double kMostSeconds = 1;                           // of a shape
constexpr std::int64_t kMeasuredPageTokens = 64;

std::int64_t pages_of(const PassShape& shape) {
  return (shape.position + shape.tokens + kMeasuredPageTokens - 1) / kMeasuredPageTokens;
}

// Pages of a text follow each other.
Pass pass_of(const PassShape& shape) {
  Pass pass;
  for (std::int64_t i = 0; i < shape.sequences; ++i) {
    PassTokens text{.tokens = std::vector<std::int64_t>(static_cast<std::size_t>(shape.tokens)),
                    .position = shape.position,
                    .logits = 1};
    for (std::int64_t page = 0; page < pages_of(shape); ++page)
      text.pages.push_back(static_cast<std::int32_t>(i * pages_of(shape) + page));
    pass.push_back(std::move(text));
  }
  return pass;
}

void draw(const NamedState& weight) {
  constexpr double kDeviation = 0.02;
  initialise(weight.local,
             {.name = weight.name,
              .shape = {weight.local.numel()},
              .init = {Init::Kind::kNormal, kDeviation}},
             "", 1);
}

// In a whole model every block's weights come from memory, because the others were used since.
void empty_caches(std::vector<char>& bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += 64) ++bytes[i];
}

// The same on all ranks: their mean, so that all count the same rounds.
double seconds_of(Decoder& decoder, Group& world, const Pass& pass) {
  std::vector<char> other(kCacheBytes / static_cast<std::size_t>(world.size()));
  decoder.forward(pass);  // first use: buffers, threads
  std::vector<double> rounds;
  double all = 0, last = 0;
  while (std::ssize(rounds) < kRounds && all + last < kMostSeconds) {
    empty_caches(other);
    world.barrier();
    const double begin = now_seconds();
    decoder.forward(pass);
    last = now_seconds() - begin;
    world.all_reduce({&last, 1});
    last /= world.size();
    rounds.push_back(last);
    all += last;
  }
  std::ranges::sort(rounds);
  return rounds[rounds.size() / 4];
}

std::vector<double> measured(ServedModel served, int blocks, const std::vector<PassShape>& shapes) {
  served.model.layers = blocks;
  const Mesh mesh{{Axis::kTensor, served.ranks.mesh[Axis::kTensor]}};
  const Sequential model = network_of(served);
  std::int64_t pages = 1;
  for (const PassShape& shape : shapes) pages = std::max(pages, shape.sequences * pages_of(shape));
  const PageRoom room{.page_tokens = kMeasuredPageTokens, .pages = pages};
  std::vector<double> seconds(shapes.size());
  const auto run = [&](Group& world, MemoryAccount&) {
    Decoder decoder(model, mesh, room, world);
    decoder.fill([](const std::vector<NamedState>& weights) {
      for (const NamedState& weight : weights) draw(weight);
    });
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const double mean = seconds_of(decoder, world, pass_of(shapes[i]));
      if (world.rank() == 0) seconds[i] = mean;
    }
  };
  run_thread_ranks({.ranks = mesh.size(),
                    .threads_per_rank = served.ranks.threads_per_rank,
                    .device = served.ranks.device},
                   run);
  return seconds;
}

}  // namespace

std::vector<PassSeconds> measure_passes(const ServedModel& served,
                                        const std::vector<PassShape>& shapes) {
  const std::vector<double> few = measured(served, kFewBlocks, shapes);
  const std::vector<double> more = measured(served, kMoreBlocks, shapes);
  std::vector<PassSeconds> all;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const double block = std::max(0.0, (more[i] - few[i]) / (kMoreBlocks - kFewBlocks));
    all.push_back({.block = block, .ends = std::max(0.0, few[i] - kFewBlocks * block)});
  }
  return all;
}

}  // namespace strata
