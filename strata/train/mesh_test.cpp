// Tests random combinations of all settings of a mesh against one rank and against each other.
#include <gtest/gtest.h>

#include <iostream>
#include <random>
#include <sstream>

#include "strata/models/attention_options.h"
#include "strata/train/mesh_run_test.h"

namespace strata {
namespace {

#ifdef STRATA_SANITIZED
constexpr int kCases = 12;
constexpr int kArticleSteps = 3;
#else
constexpr int kCases = 300;
constexpr int kArticleSteps = 50;
#endif
constexpr int kMaxRanks = 16;

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  template <typename T>
  T of(std::initializer_list<T> choices) {
    return *(choices.begin() + random_() % choices.size());
  }
  bool coin() { return random_() % 2 == 0; }

 private:
  std::mt19937 random_;
};

MeshCase draw_case(unsigned seed) {
  Draw draw(seed);
  MeshCase c;
  c.model = {.kind = draw.of({DecoderKind::kGpt, DecoderKind::kGpt, DecoderKind::kLlama}),
             .layers = 4,
             .width = 32,
             .heads = 4,
             .vocab = draw.of<std::int64_t>({48, 37, 50}),
             .context = 16,
             .dropout = draw.of({0.0, 0.1}),
             .tie = draw.coin(),
             .skip = draw.coin()};
  if (c.model.kind == DecoderKind::kLlama) {
    c.model.kv_heads = draw.of<std::int64_t>({2, 4});
    c.model.mlp_width = 64;
    c.model.dropout = 0;
    c.model.skip = false;
  }
  do {
    c.mesh = {{Axis::kPipeline, draw.of({1, 2, 3, 4})},
              {Axis::kData, draw.of({1, 2, 3, 4})},
              {Axis::kContext, draw.of({1, 1, 2, 4})},
              {Axis::kTensor, draw.of({1, 2, 4})}};
  } while (c.mesh.size() > kMaxRanks || (c.model.kv_heads == 2 && c.mesh[Axis::kTensor] == 4));
  c.schedule = draw.of({ScheduleKind::kGpipe, ScheduleKind::k1f1b, ScheduleKind::kInterleaved,
                        ScheduleKind::kZbH1, ScheduleKind::kZbH2, ScheduleKind::kZbv,
                        ScheduleKind::kVHalf, ScheduleKind::kVMin, ScheduleKind::kDualPipeV});
  if (c.mesh[Axis::kPipeline] > 3 && tested_stages(c.schedule) > 1)
    c.schedule = ScheduleKind::kZbH1;  // six layers
  c.zero = draw.of({0, 1, 2, 3});
  if (c.mesh.weight_ranks() % 4 == 0 && draw.coin()) c.shard_ranks = 2;
  c.reduce_each = c.zero >= 2 && draw.coin();
  const ContextSplit chunks{.ranks = c.mesh[Axis::kContext]};
  c.sequence = c.mesh[Axis::kTensor] > 1 &&
               c.model.context % chunks.unit(c.mesh[Axis::kTensor]) == 0 && draw.coin();
  const std::int64_t heads =
      (c.model.kv_heads > 0 ? c.model.kv_heads : c.model.heads) / c.mesh[Axis::kTensor];
  if (c.mesh[Axis::kContext] <= heads && draw.coin()) c.exchange = ContextExchange::kUlysses;
  const ContextSplit split{.ranks = c.mesh[Axis::kContext], .exchange = c.exchange, .block = 2};
  const int parts = c.sequence ? c.mesh[Axis::kTensor] : 1;
  if (split.in_blocks() && c.model.context % split.unit(parts) == 0 && draw.coin()) c.cp_block = 2;
  c.recompute = draw.of({"none", "cheap", "products", "attention", "full", "mixed"});
  c.mini_batch = draw.of({8, 11, 12});
  c.micro_batch = draw.of({2, 3});
  c.label_smoothing = draw.of({0.0, 0.1});
  c.optimizer = draw.of({OptimizerKind::kAdamW, OptimizerKind::kSgd});
  c.precision = draw.of({at::kFloat, at::kFloat, at::kFloat, at::kBFloat16, at::kHalf});
  const ContextSplit attending{
      .ranks = c.mesh[Axis::kContext], .exchange = c.exchange, .block = c.cp_block};
  if (!attending.in_blocks() && draw.coin())
    c.model.attention = {
        .kind = PatternKind::kSliding, .window = 5, .dense_every = draw.of<std::int64_t>({0, 3})};
  return c;
}

// The same replicas, tensor-parallel ranks and micro-batches in the simplest form; no other setting
// may change the result. Summing gradients once or after each micro-batch changes the order of a
// sum.
MeshCase plain_form(MeshCase c) {
  c.mesh[Axis::kPipeline] = 1;
  c.schedule = ScheduleKind::kGpipe;
  c.recompute = "none";
  c.shard_ranks = 0;
  c.zero = c.reduce_each ? 2 : 0;
  return c;
}

MeshCase one_rank_form(MeshCase c) {
  c = plain_form(c);
  c.mesh = {};
  c.zero = 0;
  c.reduce_each = c.sequence = false;
  c.exchange = ContextExchange::kRing;
  c.cp_block = 0;
  return c;
}

// Bound for losses (norms: ten times that) and weights. In 16 bit a single rank rounds by as much.
double relative_bound(const MeshCase& c) {
  return c.precision == at::kFloat ? 1e-5 : c.precision == at::kHalf ? 5e-4 : 3e-3;
}
double absolute_bound(const MeshCase& c) { return c.precision == at::kFloat ? 2e-5 : 1e-2; }

const MeshRecord& known(const MeshCase& c) {
  static std::map<std::string, MeshRecord> records;
  std::ostringstream key;
  key << c << " precision " << c.precision << " dropout " << c.model.dropout << " kv "
      << c.model.kv_heads << " pattern " << pattern_text(c.model.attention);
  const auto record = records.find(key.str());
  return record != records.end() ? record->second
                                 : records.emplace(key.str(), train_on_mesh(c)).first->second;
}

TEST(Mesh, RandomCombinationsLearnSameAsOneRank) {
  for (int seed = 0; seed < kCases; ++seed) {
    const MeshCase c = draw_case(static_cast<unsigned>(seed));
    std::ostringstream name;
    name << "seed " << seed << ": " << c;
    SCOPED_TRACE(name.str());
    const MeshRecord run = train_on_mesh(c);
    {
      SCOPED_TRACE("the plain form, bit for bit");
      expect_same_bits(run, known(plain_form(c)));
    }
    {
      SCOPED_TRACE("one rank");
      expect_close(run, known(one_rank_form(c)), relative_bound(c), absolute_bound(c));
    }
    if (HasFailure()) {
      std::cout << "failed: " << name.str() << '\n';
      break;
    }
  }
  std::cout << kCases << " combinations, seeds 0 to " << kCases - 1 << '\n';
}

// A mini-batch that leaves a replica with fewer samples than micro-batches, or with none.
TEST(Mesh, ReplicasMayOutnumberRemainingSamples) {
  for (const std::int64_t samples : {2, 3, 5}) {
    MeshCase c;
    c.model = {.layers = 2, .width = 32, .heads = 2, .vocab = 48, .context = 16, .dropout = 0.1};
    c.mesh = {{Axis::kData, 4}};
    c.zero = 3;
    c.mini_batch = samples;
    c.micro_batch = 1;
    expect_close(train_on_mesh(c), train_on_mesh(one_rank_form(c)), 1e-5, 2e-5);
  }
}

// 4 stages x 4 tensor-parallel ranks x 2 replicas: the shape of DeepSpeed's 3D parallelism
// (Microsoft, September 2020).
TEST(Mesh, ThirtyTwoRanksLearnSameAsOne) {
  MeshCase c;
  c.model = {.layers = 8, .width = 64, .heads = 4, .vocab = 96, .context = 32, .dropout = 0.1};
  c.mesh = {{Axis::kPipeline, 4}, {Axis::kData, 2}, {Axis::kTensor, 4}};
  c.zero = 1;
  c.sequence = true;
  c.schedule = ScheduleKind::k1f1b;
  c.mini_batch = 16;
  c.steps = kArticleSteps;
  expect_close(train_on_mesh(c), train_on_mesh(one_rank_form(c)), 1e-5, 1e-4);
}

}  // namespace
}  // namespace strata
