/// Trains a small model on any mesh and gathers the results, for tests that compare meshes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "strata/models/decoder_options.h"
#include "strata/train/trainer.h"

namespace strata {

/// One way to train one small model.
struct MeshCase {
  DecoderOptions model;
  Mesh mesh;
  int zero = 0;
  int shard_ranks = 0;
  bool reduce_each = false;
  Traffic traffic = {};
  bool sequence = false;
  ContextExchange exchange = ContextExchange::kRing;
  std::int64_t cp_block = 0;
  ScheduleKind schedule = ScheduleKind::kGpipe;
  std::string recompute = "none";  ///< none | cheap | products | attention | full | mixed
  std::int64_t mini_batch = 8;
  std::int64_t micro_batch = 2;
  double label_smoothing = 0;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double momentum = 0.9;  ///< of SGD; 0: SGD has no states
  OuterOptions outer = {};
  at::ScalarType precision = at::kFloat;
  double clip = 0.5;
  LayerTiers tiers = {};          ///< of every layer
  bool some_activations = false;  ///< only every third layer uses `tiers.activations`
  bool some_layers = false;       ///< only every third layer uses `tiers`
  int window = 2;
  bool updates_at_once = false;  ///< needs clip 0
  int gradient_buffers = 0;      ///< of layers updated at once
  int steps = 3;
  std::string disk = {};         ///< folder, if any state lives on a disk
  std::vector<int> bounds = {};  ///< of stages; empty: even
};

std::ostream& operator<<(std::ostream& out, const MeshCase& c);

/// For "mixed" every second layer runs again as a whole, and the others have deep levels by turns.
RecomputeLevels tested_levels(const std::string& recompute, int num_layers);

/// The stages of a rank in tests of a schedule.
int tested_stages(ScheduleKind schedule);

/// Small blocks with dropout under 1F1B, some of them computed twice.
MeshCase small_mesh_case(Mesh mesh = {}, int zero = 0, bool tie = true);

/// Two blocks that an optimizer which distinguishes matrices trains for five steps. Llama's have no
/// biases and fewer heads of keys.
MeshCase matrices_case(OptimizerKind optimizer, DecoderKind kind = DecoderKind::kGpt);

/// Many recomputed layers, each small compared with all.
MeshCase deep_mesh_case();

/// A random mesh, schedule, window and way of updating, with one of the placements.
MeshCase random_tiers_case(std::mt19937& random, std::span<const LayerTiers> placements);

struct MeshRecord {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, at::Tensor> weights;  ///< whole
  std::map<std::string, at::Tensor> slots;    ///< the same, of the optimizer
  std::int64_t replayed = 0;                  ///< replayed segments of all ranks
};

using ChangeOptions = std::function<void(TrainerOptions&)>;

/// Calls a function on every rank, a thread of this process, with its initialised trainer. `change`
/// may modify the options last.
void on_mesh_ranks(const MeshCase& c, const std::function<void(Trainer& trainer, Group& group)>& f,
                   const ChangeOptions& change = {});

MeshRecord train_on_mesh(const MeshCase& c, const ChangeOptions& change = {});

/// Trains until step `steps`, with a save every `save_every`; begins with the checkpoint `from`, if
/// any.
MeshRecord train_and_save(const MeshCase& c, const std::string& folder, int steps, int save_every,
                          const std::string& from = "", const ChangeOptions& change = {});

/// The model and the plan that every rank uses.
Sequential mesh_model(const MeshCase& c);
MiniBatch mesh_batch(const MeshCase& c, int step);
StepPlan mesh_plan(const MeshCase& c, const Sequential& model);
TrainerOptions mesh_options(const MeshCase& c);

/// The checkpoint of a step in such a folder.
std::string checkpoint_at(const std::string& folder, int step);

/// The same numbers, bit for bit.
void expect_same_bits(const MeshRecord& run, const MeshRecord& reference);

/// The last steps of `whole`, bit for bit.
void expect_resumed(MeshRecord resumed, const MeshRecord& whole);

/// Trains on two and three stages under several schedules with recomputation, and on one stage.
void expect_same_bits_for_any_cut(const MeshCase& one, const ChangeOptions& change = {});

/// Trains the replicas of `plain`, which has no ZeRO, with ZeRO 1 on two stages, 2 and 3.
void expect_same_bits_in_every_zero_stage(const MeshCase& plain);

/// Losses and norms within `relative`, weights within `absolute`.
void expect_close(const MeshRecord& run, const MeshRecord& reference, double relative,
                  double absolute);

}  // namespace strata
