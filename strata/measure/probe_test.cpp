// Tests probes with a clock that only layers advance, so that noise is under the test's control.
#include "strata/measure/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/measure/probe_cache.h"
#include "strata/measure/step_miss.h"

namespace strata {
namespace {

constexpr double kQuick = 0.010, kSlow = 0.020;

// State that the layers of a probe share: the clock, and the slowdown of each forward.
struct FakeMachine {
  double now = 0;
  std::vector<char> order;  // names of the layers in the order of their forwards
  std::function<double(std::size_t forward)> slowdown = [](std::size_t) { return 1.0; };
};

class TimedLayer : public Layer {
 public:
  TimedLayer(FakeMachine& machine, char name, double seconds)
      : machine_(machine), name_(name), seconds_(seconds) {}
  std::string signature() const override { return std::string("timed ") + name_; }
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {inputs[0]};
  }
  LayerBytes bytes(std::span<const TensorSpec>, Recompute) const override { return {}; }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> inputs) const override {
    machine_.now += seconds_ * machine_.slowdown(machine_.order.size());
    machine_.order.push_back(name_);
    return {inputs[0].clone()};
  }
  double forward_flops(std::span<const TensorSpec>) const override { return 0; }

 private:
  FakeMachine& machine_;
  char name_;
  double seconds_;
};

// A quick layer, twice, and a slow one.
class Probe : public ::testing::Test {
 protected:
  Probe() : model_({"x"}) {
    const auto quick = std::make_shared<TimedLayer>(machine_, 'q', kQuick);
    model_.add("first", quick);
    model_.add("second", std::make_shared<TimedLayer>(machine_, 's', kSlow));
    model_.add("third", quick);
    options_.clock = [this] { return machine_.now; };
    options_.cache_file = folder_.path("probe.json");
  }

  CostTable probe() {
    CostTable costs = byte_costs(model_, request_);
    probe_seconds({{request_.recompute, &costs}}, model_, request_, options_);
    return costs;
  }

  ScratchFolder folder_;
  FakeMachine machine_;
  Sequential model_;
  CostRequest request_{.batch_inputs = {{{4, 8}, at::kFloat}}, .samples = 4, .micro_batch = 4};
  ProbeOptions options_;
};

TEST_F(Probe, RunsEachDistinctLayerOncePerRound) {
  const CostTable costs = probe();
  EXPECT_DOUBLE_EQ(costs.layers[0].forward_seconds, kQuick);
  EXPECT_DOUBLE_EQ(costs.layers[1].forward_seconds, kSlow);
  EXPECT_DOUBLE_EQ(costs.layers[2].forward_seconds, kQuick);
  ASSERT_GE(machine_.order.size(), 10u);
  for (std::size_t i = 0; i < machine_.order.size(); ++i)
    EXPECT_EQ(machine_.order[i], i % 2 == 0 ? machine_.order[0] : machine_.order[1]);
  EXPECT_NE(machine_.order[0], machine_.order[1]);
}

// A forward of the level n takes n times as long, so that the test can tell levels apart.
class LevelLayer final : public TimedLayer {
 public:
  using TimedLayer::TimedLayer;
  Recompute deepest_recompute() const override { return Recompute::kAttention; }
  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    std::vector<at::Tensor> outputs;
    for (int n = 0; n < static_cast<int>(context.recompute); ++n)
      outputs = TimedLayer::forward(context, weights, inputs);
    return outputs;
  }
};

class ProbeOfLevels : public Probe {
 protected:
  ProbeOfLevels() {
    model_.add("fourth", std::make_shared<LevelLayer>(machine_, 'l', kQuick));
    for (std::size_t t = 0; t < 3; ++t) {
      costs_[t] = byte_costs(model_, request_);
      tables_.push_back({kRecomputeLevels[t + 1], &costs_[t]});
    }
  }
  std::vector<std::vector<std::string>> probe_levels() {
    return probe_seconds(tables_, model_, request_, options_);
  }
  void expect_seconds() const {
    for (int t = 0; t < 3; ++t) {
      EXPECT_NEAR(costs_[t].layers[3].forward_seconds, (t + 1) * kQuick, 1e-12);
      EXPECT_NEAR(costs_[t].layers[0].forward_seconds, kQuick, 1e-12);
    }
  }

  CostTable costs_[3];
  std::vector<LevelTable> tables_;
};

TEST_F(ProbeOfLevels, MeasuresEveryLevelOfALayerInEveryRound) {
  const auto keys = probe_levels();
  expect_seconds();
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys[0][0], keys[2][0]);  // a layer without levels is measured once
  EXPECT_NE(keys[0][3], keys[1][3]);
  EXPECT_NE(keys[1][3], keys[2][3]);
  // Each round has the quick and the slow layer once and six forwards of the three levels.
  ASSERT_EQ(machine_.order.size() % 8, 0u);
  for (std::size_t round = 0; round < machine_.order.size(); round += 8) {
    const auto first = machine_.order.begin() + static_cast<std::ptrdiff_t>(round);
    EXPECT_EQ(std::count(first, first + 8, 'l'), 6);
  }
}

// Seconds of different days could not be compared.
TEST_F(ProbeOfLevels, MeasuresAllLevelsAgainIfOneIsUnknown) {
  probe();
  machine_.order.clear();
  probe_levels();
  expect_seconds();
  EXPECT_EQ(std::ranges::count(machine_.order, 'q'), 0);  // known
  EXPECT_EQ(std::ranges::count(machine_.order, 'l') % 6, 0);
  machine_.order.clear();
  probe_levels();
  EXPECT_TRUE(machine_.order.empty());
}

TEST_F(ProbeOfLevels, MeasuresLevelsTogetherHoweverLittleMemoryIsAllowed) {
  options_.most_bytes = 1;
  probe_levels();
  expect_seconds();
}

TEST_F(Probe, IgnoresBusyRounds) {
  // Three of the first five rounds take 1.8 times as long.
  machine_.slowdown = [](std::size_t forward) { return forward >= 4 && forward < 10 ? 1.8 : 1.0; };
  const CostTable costs = probe();
  EXPECT_NEAR(costs.layers[0].forward_seconds, kQuick, 1e-9);
  EXPECT_NEAR(costs.layers[1].forward_seconds, kSlow, 1e-9);
}

TEST_F(Probe, ContinuesWhileRoundsDisagree) {
  probe();
  const std::size_t quiet = machine_.order.size();
  std::filesystem::remove(options_.cache_file);
  machine_.order.clear();
  machine_.slowdown = [](std::size_t forward) { return forward / 2 % 2 == 0 ? 1.0 : 1.5; };
  probe();
  EXPECT_GT(machine_.order.size(), 2 * quiet);
  const auto entry =
      ProbeCache(options_.cache_file).find(probe_keys(model_, request_, options_)[1]);
  ASSERT_TRUE(entry);
  EXPECT_NEAR(entry->forward(), kSlow, 1e-9);
  EXPECT_NEAR((*entry)[LayerPart::kForward].spread, 0.5, 1e-9);
}

TEST_F(Probe, UsesCachedSecondsOfSameWorkOnly) {
  probe();
  machine_.order.clear();
  probe();
  EXPECT_TRUE(machine_.order.empty());

  const auto runs = [&](auto change) {
    machine_.order.clear();
    const CostRequest request = request_;
    const ProbeOptions options = options_;
    change();
    probe();
    request_ = request;
    options_ = options;
    return machine_.order.size();
  };
  EXPECT_GT(runs([&] { request_.precision = at::kBFloat16; }), 0u);
  EXPECT_GT(runs([&] { options_.threads_per_rank = 2; }), 0u);
  EXPECT_GT(runs([&] { request_.batch_inputs[0].shape = {4, 16}; }), 0u);
  EXPECT_GT(runs([&] { request_.recompute = Recompute::kNone; }), 0u);
  EXPECT_GT(runs([&] { options_.optimizer = OptimizerKind::kOneBitAdam; }), 0u);
  EXPECT_GT(runs([&] { options_.optimizer = OptimizerKind::kLamb; }), 0u);
  EXPECT_GT(runs([&] {
              options_.optimizer = OptimizerKind::kOneBitAdam;
              request_.sends_signs = true;
            }),
            0u);
  EXPECT_GT(runs([&] {
              options_.optimizer = OptimizerKind::kOneBitLamb;
              request_.sends_signs = true;
            }),
            0u);
  EXPECT_EQ(runs([] {}), 0u);
}

// A product of 4 MiB of weights.
class WideLayer final : public Layer {
 public:
  std::vector<WeightSpec> weights() const override {
    return {{.name = "w", .shape = {1024, 1024}}};
  }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {inputs[0]};
  }
  LayerBytes bytes(std::span<const TensorSpec>, Recompute) const override {
    return {.saved = 6 << 20, .backward_transient = 2 << 20};
  }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> inputs) const override {
    ADD_FAILURE() << "it ran";
    return {inputs[0].clone()};
  }
};

TEST_F(Probe, RejectsWorkThatExceedsMemoryBeforeMeasuring) {
  model_.add("wide", std::make_shared<WideLayer>());
  // Weights, gradients, AdamW's two states, and what backward holds in addition, on each rank.
  const std::int64_t needed = (4 * 4 + 8) << 20;
  options_.ranks = 2;
  options_.free_bytes = [&](Device) { return 2 * needed; };  // and a few inputs
  try {
    probe();
    ADD_FAILURE() << "nothing was refused";
  } catch (const SystemError& error) {
    EXPECT_NE(error.text().where.find("wide"), std::string::npos) << error.what();
    EXPECT_NE(error.text().got.find("2 ranks of 24"), std::string::npos) << error.what();
    EXPECT_NE(error.text().fix.find("--estimate"), std::string::npos);
    EXPECT_NE(error.text().fix.find("--machine"), std::string::npos);
  }
  EXPECT_TRUE(machine_.order.empty());  // the other layers did not run either
}

TEST_F(Probe, ReportsLongMeasurements) {
  std::vector<std::string> reported;
  options_.report = [&](const std::string& layers) { reported.push_back(layers); };
  CostTable costs = byte_costs(model_, request_);
  costs.layers[1].backward_seconds = 0.15;
  probe_seconds({{request_.recompute, &costs}}, model_, request_, options_);
  EXPECT_TRUE(reported.empty());
  std::filesystem::remove(options_.cache_file);
  costs.layers[1].backward_seconds = 0.25;  // five times
  probe_seconds({{request_.recompute, &costs}}, model_, request_, options_);
  EXPECT_EQ(reported, std::vector<std::string>{"first, second"});
}

// A device whose clock only layers and copies advance, independently of the host's clock.
class FakeQueue final : public StreamQueue {
 public:
  explicit FakeQueue(FakeMachine& machine) : machine_(machine) {}
  Completion record(EventTime time) override {
    known_ = known_ && time == EventTime::kKnown;
    return Completion(std::make_shared<Mark>(machine_.now));
  }
  void wait(const Completion&) override {}
  void synchronize() override {}
  void copy(void*, const void*, std::size_t bytes) override {
    machine_.now += kCopySeconds;
    copied_bytes += bytes;
  }
  void* native() override { return nullptr; }

  static constexpr double kCopySeconds = 7;  // far more than a layer takes
  std::size_t copied_bytes = 0;
  bool known() const { return known_; }

 private:
  class Mark final : public DeviceEvent {
   public:
    explicit Mark(double seconds) : seconds_(seconds) {}
    bool ready() const override { return true; }
    void wait() const override {}
    double seconds_since(const DeviceEvent& earlier) const override {
      return seconds_ - dynamic_cast<const Mark&>(earlier).seconds_;
    }

   private:
    double seconds_;
  };
  FakeMachine& machine_;
  bool known_ = true;
};

TEST_F(Probe, TimesDeviceByItsEventsAfterOtherWork) {
  const auto queue = std::make_shared<FakeQueue>(machine_);
  options_.stream = [&](Device device) { return Stream(device, queue); };
  options_.clock = [] { return 0.0; };  // the host's clock, unrelated to the device
  const CostTable costs = probe();
  EXPECT_NEAR(costs.layers[0].forward_seconds, kQuick, 1e-9);
  EXPECT_NEAR(costs.layers[1].forward_seconds, kSlow, 1e-9);
  EXPECT_NEAR(costs.layers[1].update_seconds, 0, 1e-9);
  EXPECT_TRUE(queue->known());
  // Before each of the three parts of a layer's run: more than an L2 cache of 50 MB.
  EXPECT_GT(queue->copied_bytes, machine_.order.size() * 3 * (std::size_t{50} << 20));
}

TEST_F(Probe, KeepsEntriesOfOtherProcessorsAndLibraries) {
  const std::vector<std::string> keys = probe_keys(model_, request_, options_);
  probe();
  const ProcessorIdentity here = ProcessorIdentity::of_this_machine();
  EXPECT_TRUE(ProbeCache(options_.cache_file, here).find(keys[0]));
  for (const auto member : {&ProcessorIdentity::model, &ProcessorIdentity::instruction_set,
                            &ProcessorIdentity::libtorch}) {
    ProcessorIdentity other = here;
    other.*member += "x";
    ProbeCache cache(options_.cache_file, other);
    EXPECT_FALSE(cache.find(keys[0]));
    cache.insert(keys[0], {});
    cache.save();
  }
  EXPECT_DOUBLE_EQ(ProbeCache(options_.cache_file, here).find(keys[0])->forward(), kQuick);
}

LayerSeconds forward_of(double seconds, double spread) {
  LayerSeconds layer;
  layer[LayerPart::kForward] = {seconds, spread, 20};
  return layer;
}

TEST_F(Probe, IsCorrectedByMeasurementsOfTraining) {
  machine_.slowdown = [](std::size_t) { return 1.8; };  // busy during the whole probe
  const CostTable busy = probe();
  EXPECT_NEAR(busy.layers[1].forward_seconds, 1.8 * kSlow, 1e-9);
  const std::vector<std::string> keys = probe_keys(model_, request_, options_);
  correct_cache(
      options_.cache_file, keys,
      {forward_of(0.9 * kQuick, 0.1), forward_of(kSlow, 0.1), forward_of(1.1 * kQuick, 0.1)});
  machine_.order.clear();
  const CostTable corrected = probe();
  EXPECT_TRUE(machine_.order.empty());
  EXPECT_NEAR(corrected.layers[1].forward_seconds, kSlow, 1e-9);
  EXPECT_NEAR(corrected.layers[0].forward_seconds, kQuick, 1e-9);  // the mean of two
  EXPECT_EQ(corrected.layers[1].backward_seconds, busy.layers[1].backward_seconds);
}

TEST_F(Probe, RemeasuresDisturbedEntryAndKeepsFasterParts) {
  const std::string key = probe_keys(model_, request_, options_)[1];
  machine_.slowdown = [](std::size_t forward) { return forward % 3 == 0 ? 4.0 : 5.5; };
  probe();
  ASSERT_TRUE(ProbeCache(options_.cache_file).is_disturbed(key));
  EXPECT_GT(ProbeCache(options_.cache_file).find(key)->forward(), 3.9 * kSlow);

  machine_.slowdown = [](std::size_t) { return 1.0; };
  const CostTable costs = probe();
  EXPECT_NEAR(costs.layers[1].forward_seconds, kSlow, 1e-9);
  EXPECT_FALSE(ProbeCache(options_.cache_file).is_disturbed(key));

  machine_.order.clear();
  probe();
  EXPECT_TRUE(machine_.order.empty());

  ProbeCache cache(options_.cache_file);
  LayerSeconds slower = *cache.find(key);
  for (Timing& part : slower.parts) part.seconds *= 2;
  cache.measured_again(key, slower);
  EXPECT_NEAR(cache.find(key)->forward(), kSlow, 1e-9);
}

TEST_F(Probe, IsKeptIfTrainingWasDisturbed) {
  probe();
  const std::vector<std::string> keys = probe_keys(model_, request_, options_);
  const auto after = [&](double seconds, double spread) {
    correct_cache(options_.cache_file, {keys[1]}, {forward_of(seconds, spread)});
    return ProbeCache(options_.cache_file).find(keys[1])->forward();
  };
  EXPECT_DOUBLE_EQ(after(2 * kSlow, 0.9), kSlow);
  EXPECT_DOUBLE_EQ(after(1.2 * kSlow, 0.1), 1.2 * kSlow);  // slower, with a small spread
  EXPECT_DOUBLE_EQ(after(kSlow, 0.9), kSlow);              // faster is never a disturbance
  correct_cache(options_.cache_file, {"an unprobed layer"}, {forward_of(1, 0)});
  EXPECT_FALSE(ProbeCache(options_.cache_file).find("an unprobed layer"));
}

TEST(TimingOf, UsesLowerQuartileAndSpread) {
  const Timing timing = timing_of({5, 1, 2, 3, 4, 100, 6, 7, 8});
  EXPECT_EQ(timing.seconds, 3);
  EXPECT_DOUBLE_EQ(timing.spread, (7 - 3) / 3.0);
  EXPECT_EQ(timing.samples, 9);
  EXPECT_EQ(timing_of({}).samples, 0);
}

TEST(LayerTimes, KeepsLastMeasurementsAndSumsPartsOfUpdate) {
  LayerTimes times;
  for (int i = 0; i < 300; ++i) times.add(3, LayerPart::kForward, i < 256 ? 1.0 : 2.0);
  EXPECT_EQ(times.of(3)[LayerPart::kForward].samples, 256);
  for (int i = 0; i < 212; ++i) times.add(3, LayerPart::kForward, 2.0);
  EXPECT_EQ(times.of(3).forward(), 2.0);
  times.add_update(3, 0.25);
  times.add_update(3, 0.5);
  times.end_step();
  times.end_step();
  EXPECT_EQ(times.of(3)[LayerPart::kUpdate].samples, 1);
  EXPECT_EQ(times.of(3).update(), 0.75);
  EXPECT_EQ(times.of(4)[LayerPart::kForward].samples, 0);
}

// Two stages of two layers; four micro-batches.
class Miss : public ::testing::Test {
 protected:
  Miss() {
    for (int l = 0; l < 4; ++l) {
      request_.dataflow.num_layers = l + 1;
      Value value{.name = "x" + std::to_string(l), .producer = l, .consumers = {}};
      if (l < 3) value.consumers = {l + 1};
      request_.dataflow.values.push_back(value);
      request_.costs[Recompute::kCheap].layers.push_back({.name = "layer" + std::to_string(l),
                                                          .forward_seconds = 0.010,
                                                          .backward_seconds = 0.020,
                                                          .update_seconds = 0.001});
      request_.costs[Recompute::kCheap].values.push_back({.bytes = 1024});
    }
    request_.costs[Recompute::kNone] = request_.costs[Recompute::kCheap];
    request_.micro_batches = 4;
    request_.mesh.axes[Axis::kPipeline] = 2;
    request_.memory.recompute = RecomputeMode::kCheap;
    plan_ = make_plan(request_);
  }

  std::string text(double stretch, double measured_over_predicted) {
    LayerSeconds layer;
    layer[LayerPart::kForward] = {0.010 * stretch, 0, 20};
    layer[LayerPart::kBackward] = {0.020 * stretch, 0, 20};
    layer[LayerPart::kUpdate] = {0.001 * stretch, 0, 20};
    miss_ = step_miss(plan_, std::vector<LayerSeconds>(4, layer),
                      measured_over_predicted * plan_.simulation.step_seconds);
    return text_of(miss_);
  }

  PlanRequest request_;
  Plan plan_;
  StepMiss miss_;
};

TEST_F(Miss, IsFromProbeIfLayerTimesDiffer) {
  const std::string words = text(0.5, 0.52);
  EXPECT_NE(words.find("because of the probe"), std::string::npos) << words;
  EXPECT_NEAR(miss_.probe_seconds(), -0.5 * plan_.simulation.step_seconds, 1e-6);
  EXPECT_NEAR(miss_.machine_seconds(), 0.02 * plan_.simulation.step_seconds, 1e-6);
  EXPECT_NE(text(2, 2.1).find("because of the probe"), std::string::npos);
}

TEST_F(Miss, IsFromMachineIfLayerTimesAgree) {
  const std::string words = text(1, 1.5);
  EXPECT_NE(words.find("because of the machine"), std::string::npos) << words;
  EXPECT_NEAR(miss_.probe_seconds(), 0, 1e-9);
  // Layers that were faster than probed do not explain a slower step.
  EXPECT_NE(text(0.9, 1.5).find("because of the machine"), std::string::npos);
}

TEST_F(Miss, IsNoneIfPredictionHolds) {
  EXPECT_NE(text(1, 1.03).find(", within 5 % of the prediction: "), std::string::npos);
  EXPECT_EQ(text_of(StepMiss{}), "");
}

TEST_F(Miss, KeepsPlansSecondsOfUnmeasuredParts) {
  miss_ = step_miss(plan_, {}, 1);
  EXPECT_NEAR(miss_.probe_seconds(), 0, 1e-12);
}

}  // namespace
}  // namespace strata
