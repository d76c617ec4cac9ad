#include "strata/train/mesh_run_test.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "strata/base/enum_names.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/saver.h"
#include "strata/comm/ranks.h"
#include "strata/models/model.h"

namespace strata {

std::ostream& operator<<(std::ostream& out, const MeshCase& c) {
  out << name_of(c.model.kind) << (c.model.tie ? " tied" : "") << (c.model.skip ? " skip" : "")
      << " vocab " << c.model.vocab << ", " << c.mesh.text(" ") << ", zero " << c.zero
      << (c.shard_ranks ? " hybrid" : "") << (c.reduce_each ? " each" : "")
      << (c.sequence ? ", sequence parallel" : "");
  if (c.mesh[Axis::kContext] > 1) out << ", " << name_of(c.exchange);
  if (c.cp_block > 0) out << ", blocks of " << c.cp_block;
  out << ", " << name_of(c.schedule) << ", recompute " << c.recompute << ", " << c.mini_batch
      << " by " << c.micro_batch << ", smoothing " << c.label_smoothing << ", "
      << name_of(c.optimizer) << (c.momentum == 0 ? " without momentum" : "");
  if (c.precision != at::kFloat) out << ", " << c.precision;
  if (c.outer.is_on()) out << ", outer steps every " << c.outer.every;
  if (!c.bounds.empty()) out << ", cut";
  for (const int bound : c.bounds) out << ' ' << bound;
  if (c.tiers != LayerTiers{})
    out << ", weights on " << name_of(c.tiers.weights) << ", gradients on "
        << name_of(c.tiers.gradients) << (c.some_activations ? ", some" : ",") << " activations on "
        << name_of(c.tiers.activations) << ", window " << c.window
        << (c.updates_at_once ? ", updates at once" : "") << ", " << c.gradient_buffers
        << " gradient buffers" << (c.clip > 0 ? ", clipped" : "");
  return out;
}

int tested_stages(ScheduleKind schedule) {
  if (schedule == ScheduleKind::kInterleaved) return 2;
  return std::max(1, traits_of(schedule).stages_per_rank);
}

MeshCase small_mesh_case(Mesh mesh, int zero, bool tie) {
  return {.model = {.layers = 3,
                    .width = 32,
                    .heads = 4,
                    .vocab = 48,
                    .context = 16,
                    .dropout = 0.1,
                    .tie = tie},
          .mesh = mesh,
          .zero = zero,
          .schedule = ScheduleKind::k1f1b,
          .recompute = "mixed"};
}

MeshCase matrices_case(OptimizerKind optimizer, DecoderKind kind) {
  MeshCase c;
  c.model = {.kind = kind, .layers = 2, .width = 32, .heads = 4, .vocab = 48, .context = 16};
  if (kind == DecoderKind::kLlama) {
    c.model.kv_heads = 2;
    c.model.mlp_width = 64;
  }
  c.optimizer = optimizer;
  c.steps = 5;
  return c;
}

MeshCase deep_mesh_case() {
  MeshCase c = small_mesh_case({}, 0, /*tie=*/false);
  c.model.layers = 24;
  c.model.width = 64;
  c.model.context = 8;
  c.mini_batch = 2;
  c.recompute = "full";
  return c;
}

MeshCase random_tiers_case(std::mt19937& random, std::span<const LayerTiers> placements) {
  const auto draw = [&](auto... choices) {
    const std::common_type_t<decltype(choices)...> all[] = {choices...};
    return all[random() % sizeof...(choices)];
  };
  MeshCase c = small_mesh_case(
      {{Axis::kPipeline, draw(1, 2)}, {Axis::kData, draw(1, 2)}, {Axis::kTensor, draw(1, 2)}},
      draw(0, 1, 2, 3), draw(0, 1) == 1);
  c.schedule =
      draw(ScheduleKind::kGpipe, ScheduleKind::kVertical, ScheduleKind::k1f1b,
           ScheduleKind::kInterleaved, ScheduleKind::kZbH1, ScheduleKind::kZbH2, ScheduleKind::kZbv,
           ScheduleKind::kVHalf, ScheduleKind::kVMin, ScheduleKind::kDualPipeV);
  c.recompute = draw("none", "cheap", "full", "mixed", "attention");
  c.tiers = placements[random() % placements.size()];
  c.tiers.activations = draw(Tier::kDevice, Tier::kHost);
  c.window = draw(1, 2, 4, 100);
  c.micro_batch = draw(1, 2, 4);
  c.precision = draw(at::kFloat, at::kBFloat16);
  c.reduce_each = c.zero >= 2 && draw(0, 1) == 1;
  c.clip = draw(0.0, 0.5);
  c.updates_at_once = c.clip == 0 && draw(0, 1) == 1;
  c.gradient_buffers = draw(0, 1, 2);
  c.model.kind = draw(DecoderKind::kGpt, DecoderKind::kLlama);
  if (c.model.kind == DecoderKind::kLlama) c.model.dropout = 0;
  c.steps = 2;
  c.some_activations = draw(false, true);
  return c;
}

Sequential mesh_model(const MeshCase& c) {
  return make_model(
      c.model, DecoderOutput::kLoss,
      {.ranks = c.mesh[Axis::kTensor],
       .sequence = c.sequence,
       .context = {.ranks = c.mesh[Axis::kContext], .exchange = c.exchange, .block = c.cp_block}},
      c.precision);
}

MiniBatch mesh_batch(const MeshCase& c, int step) {
  at::Generator generator = at::detail::createCPUGenerator(step + 1);
  const std::int64_t length = c.model.context;
  const at::Tensor text =
      at::randint(c.model.vocab, {c.mini_batch, length + 1}, generator, at::kLong);
  MiniBatch batch{
      .inputs = {text.narrow(1, 0, length).contiguous(), text.narrow(1, 1, length).contiguous()},
      .samples = c.mini_batch};
  batch.inputs[1][1].narrow(0, 0, 5).fill_(kIgnoredTarget);
  batch.valid_tokens = c.mini_batch * length - 5;
  return batch;
}

RecomputeLevels tested_levels(const std::string& recompute, int num_layers) {
  RecomputeLevels levels = value_named<Recompute>(recompute).value_or(Recompute::kCheap);
  for (int layer = 1; recompute == "mixed" && layer < num_layers; layer += 2)
    levels.set(layer, layer % 4 == 1 ? Recompute::kAttention : Recompute::kProducts);
  return levels;
}

StepPlan mesh_plan(const MeshCase& c, const Sequential& model) {
  const int virtual_stages = tested_stages(c.schedule);
  const int stages = c.mesh[Axis::kPipeline] * virtual_stages;
  StepDecisions decisions{.schedule = c.schedule,
                          .mesh = c.mesh,
                          .virtual_stages = virtual_stages,
                          .levels = tested_levels(c.recompute, model.num_layers()),
                          .zero = {.stage = c.zero,
                                   .shard_ranks = c.shard_ranks,
                                   .reduce = c.reduce_each ? ReduceMode::kEach : ReduceMode::kOnce,
                                   .traffic = c.traffic},
                          .micro_batch = c.micro_batch,
                          .replicas_apart = c.outer.is_on()};
  if (c.tiers != LayerTiers{})
    decisions.tiers = {.layers = std::vector(model.num_layers(), c.tiers),
                       .window = c.window,
                       .updates_at_once = c.updates_at_once,
                       .gradient_buffers = c.gradient_buffers};
  for (std::size_t layer = 0; c.some_activations && layer < decisions.tiers.layers.size(); ++layer)
    if (layer % 3 != 1) decisions.tiers.layers[layer].activations = Tier::kDevice;
  for (std::size_t layer = 0; c.some_layers && layer < decisions.tiers.layers.size(); ++layer)
    if (layer % 3 != 1) decisions.tiers.layers[layer] = {};
  decisions.partition.bounds = c.bounds;
  for (int stage = 0; c.bounds.empty() && stage <= stages; ++stage)
    decisions.partition.bounds.push_back(model.num_layers() * stage / stages);
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const bool chosen = c.recompute == "full" || (c.recompute == "mixed" && layer % 2 == 0);
    if (chosen && model.layer(layer).recomputable()) decisions.recompute.add(layer);
  }
  return plan_steps(model, std::move(decisions));
}

TrainerOptions mesh_options(const MeshCase& c) {
  return {.machine = {.seed = 5, .clip = c.clip, .label_smoothing = c.label_smoothing},
          .precision = c.precision,
          // AdamW first divides by the roots of tiny second moments; a large epsilon keeps rounding
          // errors from growing to whole learning rates.
          .optimizer = {.kind = c.optimizer, .epsilon = 1e-3, .momentum = c.momentum},
          .outer = c.outer,
          .disk = {.path = c.disk}};
}

void on_mesh_ranks(const MeshCase& c, const std::function<void(Trainer& trainer, Group& group)>& f,
                   const ChangeOptions& change) {
  const Sequential model = mesh_model(c);
  const StepPlan plan = mesh_plan(c, model);
  TrainerOptions options = mesh_options(c);
  if (change) change(options);
  run_thread_ranks({.ranks = c.mesh.size()}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group, options);
    trainer.initialise();
    f(trainer, group);
  });
}

namespace {

// The records of all ranks; each calls step() and finish().
class Recorder {
 public:
  void step(Trainer& trainer, const Group& group, const MiniBatch& batch) {
    const StepOutcome& outcome = trainer.step(batch, 1e-2);
    if (group.rank() > 0) return;
    record.losses.push_back(outcome.loss);
    record.norms.push_back(outcome.gradient_norm);
  }

  // States on a disk are in memory layer by layer, and no rank waits for another with the lock.
  void finish(Trainer& trainer) {
    for (const int layer : trainer.layers()) {
      const std::vector<NamedState> weights = trainer.owned_weights(layer);
      const std::vector<NamedState> slots = trainer.owned_slots(layer);
      const std::lock_guard lock(mutex_);
      assemble(weights, record.weights);
      assemble(slots, record.slots);
    }
    const std::lock_guard lock(mutex_);
    record.replayed += trainer.recorded_use().replayed;
  }

  MeshRecord record;

 private:
  std::mutex mutex_;
};

}  // namespace

MeshRecord train_on_mesh(const MeshCase& c, const ChangeOptions& change) {
  Recorder recorder;
  on_mesh_ranks(
      c,
      [&](Trainer& trainer, Group& group) {
        for (int step = 0; step < c.steps; ++step)
          recorder.step(trainer, group, mesh_batch(c, step));
        recorder.finish(trainer);
      },
      change);
  return recorder.record;
}

MeshRecord train_and_save(const MeshCase& c, const std::string& folder, int steps, int save_every,
                          const std::string& from, const ChangeOptions& change) {
  Recorder recorder;
  on_mesh_ranks(
      c,
      [&](Trainer& trainer, Group& group) {
        if (!from.empty()) load_trainer(trainer, c.model, from);
        CheckpointSaver saver({.folder = folder, .keep = 0, .model = c.model}, group,
                              group.subgroup(c.mesh.stage_ranks(group.rank()), "stage"));
        while (trainer.steps_done() < steps) {
          recorder.step(trainer, group, mesh_batch(c, static_cast<int>(trainer.steps_done())));
          if (trainer.steps_done() % save_every == 0)
            saver.save({trainer.steps_done(), 0}, trainer.owned_weights(), trainer.owned_slots());
        }
        saver.wait();
        recorder.finish(trainer);
      },
      change);
  return recorder.record;
}

std::string checkpoint_at(const std::string& folder, int step) {
  return folder + "/" + checkpoint_folder_name(step);
}

void expect_same_bits(const MeshRecord& run, const MeshRecord& reference) {
  EXPECT_EQ(run.losses, reference.losses);
  EXPECT_EQ(run.norms, reference.norms);
  ASSERT_EQ(run.weights.size(), reference.weights.size());
  for (const auto& [name, weight] : reference.weights)
    EXPECT_TRUE(at::equal(run.weights.at(name), weight)) << name;
  ASSERT_EQ(run.slots.size(), reference.slots.size());
  for (const auto& [name, slot] : reference.slots)
    EXPECT_TRUE(at::equal(run.slots.at(name), slot)) << name;
}

void expect_resumed(MeshRecord resumed, const MeshRecord& whole) {
  const auto prepend = [&](std::vector<double>& to, const std::vector<double>& from) {
    ASSERT_LE(to.size(), from.size());
    to.insert(to.begin(), from.begin(), from.end() - std::ssize(to));
  };
  EXPECT_FALSE(resumed.losses.empty());
  prepend(resumed.losses, whole.losses);
  prepend(resumed.norms, whole.norms);
  expect_same_bits(resumed, whole);
}

void expect_same_bits_for_any_cut(const MeshCase& one, const ChangeOptions& change) {
  const MeshRecord alone = train_on_mesh(one, change);
  for (const auto& [pp, schedule, recompute] : {std::tuple(2, ScheduleKind::kGpipe, "full"),
                                                {3, ScheduleKind::k1f1b, "cheap"},
                                                {2, ScheduleKind::kInterleaved, "mixed"},
                                                {3, ScheduleKind::kZbH2, "mixed"},
                                                {2, ScheduleKind::kZbv, "cheap"}}) {
    MeshCase c = one;
    c.mesh[Axis::kPipeline] = pp;
    c.schedule = schedule;
    c.recompute = recompute;
    SCOPED_TRACE(testing::Message() << c);
    expect_same_bits(train_on_mesh(c, change), alone);
  }
}

void expect_same_bits_in_every_zero_stage(const MeshCase& plain) {
  const MeshRecord expected = train_on_mesh(plain);
  for (const int zero : {1, 2, 3}) {
    MeshCase c = plain;
    c.zero = zero;
    c.mesh[Axis::kPipeline] = zero == 1 ? 2 : 1;
    SCOPED_TRACE(testing::Message() << c);
    expect_same_bits(train_on_mesh(c), expected);
  }
}

void expect_close(const MeshRecord& run, const MeshRecord& reference, double relative,
                  double absolute) {
  ASSERT_EQ(run.losses.size(), reference.losses.size());
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i], reference.losses[i], relative * reference.losses[i]);
    EXPECT_NEAR(run.norms[i], reference.norms[i], 10 * relative * reference.norms[i]);
  }
  ASSERT_EQ(run.weights.size(), reference.weights.size());
  for (const auto& [name, weight] : reference.weights) {
    const double difference = (run.weights.at(name) - weight).abs().max().item<double>();
    EXPECT_LE(difference, absolute) << name;
  }
}

}  // namespace strata
