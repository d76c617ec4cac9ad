// Tests training whose optimizer states, and optionally weights and gradients, live on a disk: the
// same bits as in memory, with little host memory beyond the staging buffers.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <random>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/comm/ranks.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/disk/faulty_block_io.h"
#include "strata/train/disk_commit.h"
#include "strata/train/mesh_run_test.h"

namespace strata {
namespace {

constexpr LayerTiers kAllOnDisk{Tier::kDisk, Tier::kHost, Tier::kDisk};
constexpr LayerTiers kStatesOnDisk{Tier::kHost, Tier::kHost, Tier::kDisk};
constexpr LayerTiers kZeroOffloadDisk{Tier::kDevice, Tier::kHost, Tier::kDisk};
constexpr LayerTiers kGradientsToo{Tier::kDisk, Tier::kDisk, Tier::kDisk};
constexpr LayerTiers kPlacements[] = {kAllOnDisk,
                                      kStatesOnDisk,
                                      kZeroOffloadDisk,
                                      kGradientsToo,
                                      {Tier::kHost, Tier::kDisk, Tier::kDisk},
                                      {Tier::kDevice, Tier::kDisk, Tier::kDisk}};

class TrainingOnDisk : public ::testing::Test {
 protected:
  // A new empty folder.
  std::string fresh() { return folder_.path("run" + std::to_string(++folders_)); }

  void expect_same_bits_as_in_memory(MeshCase c) {
    MeshCase in_memory = c;
    in_memory.tiers = {};
    c.disk = fresh();
    SCOPED_TRACE(c);
    expect_same_bits(train_on_mesh(c), train_on_mesh(in_memory));
  }

 private:
  DiskScratch folder_;
  int folders_ = 0;
};

TEST_F(TrainingOnDisk, EveryPlacementTrainsSameBits) {
  for (const LayerTiers tiers : kPlacements) {
    for (const at::ScalarType precision : {at::kFloat, at::kBFloat16}) {
      for (const bool tie : {true, false}) {
        MeshCase c = small_mesh_case({}, 0, tie);
        c.tiers = tiers;
        c.precision = precision;
        expect_same_bits_as_in_memory(c);
      }
    }
  }
}

TEST_F(TrainingOnDisk, EveryWindowAndAccumulationOrderTrainsSameBits) {
  for (const int window : {1, 2, 4, 100}) {
    for (const ScheduleKind schedule : {ScheduleKind::kGpipe, ScheduleKind::kVertical}) {
      MeshCase c = small_mesh_case();
      c.window = window;
      c.schedule = schedule;
      for (const LayerTiers tiers : {kAllOnDisk, kGradientsToo}) {
        c.tiers = tiers;
        expect_same_bits_as_in_memory(c);
      }
    }
  }
}

TEST_F(TrainingOnDisk, UpdatesAtOnceTrainSameBits) {
  for (const LayerTiers tiers : kPlacements) {
    MeshCase c = small_mesh_case({}, 0, false);
    c.clip = 0;
    c.tiers = tiers;
    c.updates_at_once = true;
    expect_same_bits_as_in_memory(c);
  }
}

TEST_F(TrainingOnDisk, EveryOptimizerTrainsSameBits) {
  for (const OptimizerKind optimizer : {OptimizerKind::kSgd, OptimizerKind::kAdagrad}) {
    for (const LayerTiers tiers : kPlacements) {
      MeshCase c = small_mesh_case();
      c.optimizer = optimizer;
      c.tiers = tiers;
      expect_same_bits_as_in_memory(c);
    }
  }
}

// Mesh, schedule, placement and window are random.
TEST_F(TrainingOnDisk, RandomMeshesTrainSameBits) {
  std::mt19937 random(19);
  for (int i = 0; i < 16; ++i) {
    MeshCase c = random_tiers_case(random, kPlacements);
    if (random() % 3 == 0) c.tiers.gradients = Tier::kDevice;
    expect_same_bits_as_in_memory(c);
    if (HasFailure()) return;
  }
}

// Reductions after each micro-batch add to what the disk has of the gradient.
TEST_F(TrainingOnDisk, GradientsTrainSameBitsUnderEveryZeroStage) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const bool each : {false, true}) {
      if (each && zero < 2) continue;
      for (const double clip : {0.0, 0.5}) {
        MeshCase c = small_mesh_case({{Axis::kPipeline, 2}, {Axis::kData, 2}}, zero);
        c.reduce_each = each;
        c.clip = clip;
        c.tiers = kGradientsToo;
        expect_same_bits_as_in_memory(c);
        if (HasFailure()) return;
      }
    }
  }
}

struct DiskRun {
  std::int64_t host_peak = 0;
  DiskResidency::Use use;
};

// One rank alone.
DiskRun run_of(const MeshCase& c, const std::function<void(TrainerOptions&)>& change = {}) {
  const Sequential model = mesh_model(c);
  const StepPlan plan = mesh_plan(c, model);
  TrainerOptions options = mesh_options(c);
  if (change) change(options);
  DiskRun run;
  run_thread_ranks({}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group, options);
    trainer.initialise();
    for (int step = 0; step < c.steps; ++step) trainer.step(mesh_batch(c, step), 1e-2);
    for (const int layer : trainer.layers()) {
      trainer.owned_weights(layer);
      trainer.owned_slots(layer);
    }
    run = {trainer.offload_use().host_peak_bytes, trainer.offload_use().disk};
  });
  return run;
}

MeshCase deep() {
  MeshCase c = deep_mesh_case();
  c.clip = 0;
  c.updates_at_once = true;
  c.gradient_buffers = 2;
  return c;
}

std::int64_t weights_of(const MeshCase& c) {
  const Sequential model = mesh_model(c);
  std::int64_t weights = 0;
  for (int layer = 0; layer < model.num_layers(); ++layer) weights += model.layout(layer).own_numel;
  return weights;
}

// For initial values, steps and reading all states: at most the staging buffers and two gradients.
// The states alone are more than four times that.
TEST_F(TrainingOnDisk, HostHoldsOnlyStagingBuffersAndGradients) {
  MeshCase c = deep();
  c.model.layers = 32;
  const std::int64_t weights = weights_of(c);
  MeshCase in_memory = c;
  in_memory.updates_at_once = false;
  in_memory.gradient_buffers = 0;
  c.tiers = kAllOnDisk;
  c.disk = fresh();
  expect_same_bits(train_on_mesh(c), train_on_mesh(in_memory));
  c.disk = fresh();
  const DiskRun run = run_of(c);
  EXPECT_GT(8 * weights, 4 * run.host_peak);
  const Sequential model = mesh_model(c);
  std::int64_t largest = 0;
  for (int layer = 0; layer < model.num_layers(); ++layer)
    largest = std::max(largest, model.layout(layer).own_numel);
  constexpr std::int64_t kBlocks = 13 * 4096;  // parts of staging buffers are whole blocks
  EXPECT_LE(run.host_peak, (3 * 12 + 2 * 4 + 2 * 4) * largest + kBlocks);
  const auto with = [&](std::int64_t bytes) {
    c.disk = fresh();
    run_of(c, [&](TrainerOptions& options) { options.host_bytes = bytes; });
  };
  EXPECT_NO_THROW(with(run.host_peak));
  EXPECT_THROW(with(run.host_peak - 64), SystemError);
}

// All gradients wait for the norm, on the disk: the host has three staging buffers for them.
TEST_F(TrainingOnDisk, HostHoldsOnlyStagingBuffersOfClippedGradients) {
  MeshCase c = deep_mesh_case();
  c.model.layers = 32;
  MeshCase in_memory = c;
  c.tiers = kGradientsToo;
  c.disk = fresh();
  expect_same_bits(train_on_mesh(c), train_on_mesh(in_memory));
  const Sequential model = mesh_model(c);
  std::int64_t largest = 0;
  for (int layer = 0; layer < model.num_layers(); ++layer)
    largest = std::max(largest, model.layout(layer).own_numel);
  c.disk = fresh();
  const DiskRun run = run_of(c);
  EXPECT_GT(4 * weights_of(c), 2 * run.host_peak);
  constexpr std::int64_t kBlocks = 15 * 4096;  // parts of staging buffers are whole blocks
  EXPECT_LE(run.host_peak, (3 * 12 + 2 * 4 + 3 * 4) * largest + kBlocks);
  c.disk = fresh();
  EXPECT_THROW(run_of(c, [&](TrainerOptions& options) { options.host_bytes = run.host_peak - 64; }),
               SystemError);
}

// A step reads and writes states once, weights with them, and reads weights once more per fetch.
TEST_F(TrainingOnDisk, UnchangedDataIsNotWritten) {
  const auto moved = [&](const LayerTiers& tiers) {
    std::int64_t read[2], wrote[2];
    for (const int steps : {2, 3}) {
      MeshCase c = deep();
      c.tiers = tiers;
      c.updates_at_once = false;
      c.gradient_buffers = 0;
      c.window = 1;
      c.steps = steps;
      c.disk = fresh();
      const DiskRun run = run_of(c);
      read[steps - 2] = run.use.bytes_read;
      wrote[steps - 2] = run.use.bytes_written;
    }
    return std::pair(read[1] - read[0], wrote[1] - wrote[0]);
  };
  const double bytes = 4.0 * static_cast<double>(weights_of(deep()));
  const auto [all_read, all_wrote] = moved(kAllOnDisk);
  EXPECT_NEAR(static_cast<double>(all_wrote) / bytes, 3, 0.1);
  // for update, forward and backward
  EXPECT_NEAR(static_cast<double>(all_read) / bytes, 5, 0.1);
  const auto [states_read, states_wrote] = moved(kStatesOnDisk);
  EXPECT_NEAR(static_cast<double>(states_wrote) / bytes, 2, 0.1);
  EXPECT_NEAR(static_cast<double>(states_read) / bytes, 2, 0.1);
  const auto [too_read, too_wrote] = moved(kGradientsToo);  // each gradient once, both ways
  EXPECT_NEAR(static_cast<double>(too_wrote) / bytes, 4, 0.1);
  EXPECT_NEAR(static_cast<double>(too_read) / bytes, 6, 0.1);
  const auto [stay_read, stay_wrote] = moved(kZeroOffloadDisk);
  EXPECT_NEAR(static_cast<double>(stay_wrote) / bytes, 3, 0.1);
  EXPECT_NEAR(static_cast<double>(stay_read) / bytes, 3, 0.1);
}

// ---- Commits

MeshCase resumed_case(Mesh mesh, int zero, LayerTiers tiers, at::ScalarType precision) {
  MeshCase c = small_mesh_case(mesh, zero, /*tie=*/zero == 0);
  c.tiers = tiers;
  c.precision = precision;
  c.steps = 5;
  return c;
}

// Steps [begin, c.steps), committed every `every` steps; the record has the losses of these.
MeshRecord train_from(const MeshCase& c, int begin, int every = 1) {
  const Sequential model = mesh_model(c);
  const StepPlan plan = mesh_plan(c, model);
  TrainerOptions options = mesh_options(c);
  options.disk.resume = begin > 0;
  MeshRecord record;
  std::mutex mutex;
  run_thread_ranks({.ranks = c.mesh.size()}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group, options);
    if (begin == 0) {
      trainer.initialise();
    } else {
      EXPECT_EQ(trainer.resume(), (TrainingPosition{begin, begin * 10}));
    }
    EXPECT_EQ(trainer.steps_done(), begin);
    for (int step = begin; step < c.steps; ++step) {
      const StepOutcome& outcome = trainer.step(mesh_batch(c, step), 1e-2);
      if ((step + 1) % every == 0) trainer.commit({.position = {step + 1, (step + 1) * 10}});
      if (group.rank() > 0) continue;
      record.losses.push_back(outcome.loss);
      record.norms.push_back(outcome.gradient_norm);
    }
    trainer.await_commit();
    const std::lock_guard lock(mutex);
    for (const int layer : trainer.layers()) {
      assemble(trainer.owned_weights(layer), record.weights);
      assemble(trainer.owned_slots(layer), record.slots);
    }
  });
  return record;
}

// The last steps of a record.
MeshRecord tail(MeshRecord record, int from) {
  record.losses.erase(record.losses.begin(), record.losses.begin() + from);
  record.norms.erase(record.norms.begin(), record.norms.begin() + from);
  return record;
}

TEST_F(TrainingOnDisk, ResumesFromLastCommit) {
  for (const LayerTiers tiers : kPlacements) {
    for (const at::ScalarType precision : {at::kFloat, at::kBFloat16}) {
      for (const int zero : {0, 3}) {
        MeshCase c = resumed_case(zero == 0 ? Mesh{} : Mesh{{Axis::kPipeline, 2}, {Axis::kData, 2}},
                                  zero, tiers, precision);
        MeshCase in_memory = c;
        in_memory.tiers = {};
        const MeshRecord whole = train_on_mesh(in_memory);
        c.disk = fresh();
        SCOPED_TRACE(c);
        MeshCase half = c;
        half.steps = 3;
        train_from(half, 0, /*every=*/2);  // commits step 2, and loses the third
        expect_same_bits(train_from(c, 2), tail(whole, 2));
        if (HasFailure()) return;
      }
    }
  }
}

// Only weights are written, and those on the host only by the commit.
TEST_F(TrainingOnDisk, ResumesFromLastCommitWithOptimizerWithoutStates) {
  for (const LayerTiers tiers : kPlacements) {
    for (const at::ScalarType precision : {at::kFloat, at::kBFloat16}) {
      for (const double clip : {0.0, 0.5}) {
        MeshCase c = resumed_case({}, 0, tiers, precision);
        c.optimizer = OptimizerKind::kSgd;
        c.momentum = 0;
        c.clip = clip;
        c.updates_at_once = clip == 0;
        MeshCase in_memory = c;
        in_memory.tiers = {};
        in_memory.updates_at_once = false;
        const MeshRecord whole = train_on_mesh(in_memory);
        c.disk = fresh();
        SCOPED_TRACE(c);
        MeshCase half = c;
        half.steps = 3;
        train_from(half, 0, /*every=*/2);
        expect_same_bits(train_from(c, 2), tail(whole, 2));
        if (HasFailure()) return;
      }
    }
  }
}

// Simulates a crash after some ranks had committed and others had not.
TEST_F(TrainingOnDisk, RanksAheadRollBackToCommonCommit) {
  for (const LayerTiers tiers : kPlacements) {
    MeshCase c = resumed_case({{Axis::kPipeline, 2}, {Axis::kData, 2}}, 1, tiers, at::kBFloat16);
    MeshCase in_memory = c;
    in_memory.tiers = {};
    const MeshRecord whole = train_on_mesh(in_memory);
    c.disk = fresh();
    MeshCase half = c;
    half.steps = 3;
    train_from(half, 0);
    for (const int rank : {0, 3}) ChunkFile::open(rank_folder(c.disk, rank))->go_back();
    EXPECT_EQ(last_commit(c.disk).position.steps_done, 2);
    expect_same_bits(train_from(c, 2), tail(whole, 2));
    EXPECT_EQ(last_commit(c.disk).position.steps_done, 5);
  }
}

// Simulates a crash within the first commit: there is no step to resume from, and none is lost.
TEST_F(TrainingOnDisk, InterruptedFirstCommitDoesNotCount) {
  MeshCase c = resumed_case({{Axis::kPipeline, 2}}, 0, kAllOnDisk, at::kFloat);
  c.disk = fresh();
  c.steps = 1;
  const MeshRecord once = train_from(c, 0);
  EXPECT_TRUE(holds_commits(c.disk));
  std::filesystem::remove_all(c.disk + "/rank-00000");
  EXPECT_FALSE(holds_commits(c.disk));
  MeshCase other = c;
  other.mesh = {{Axis::kPipeline, 3}};
  EXPECT_EQ(error_of([&] { train_from(other, 0); }).text().what,
            "the folder holds a step of an earlier run");
  std::filesystem::remove_all(c.disk + "/rank-00000");
  expect_same_bits(train_from(c, 0), once);
  EXPECT_TRUE(holds_commits(c.disk));
  // A second commit is not a first one.
  c.steps = 2;
  train_from(c, 1);
  std::filesystem::remove_all(c.disk + "/rank-00000");
  EXPECT_TRUE(holds_commits(c.disk));
  EXPECT_EQ(error_of([&] { train_from(c, 0); }).text().what,
            "the folder holds a step of an earlier run");
}

// Two machines, each with the folder of its own rank only. After a rollback the commit is not a
// first one, which the other rank might lack.
TEST_F(TrainingOnDisk, RankKnowsAfterRollbackThatAllHaveCommitted) {
  MeshCase c = resumed_case({{Axis::kPipeline, 2}}, 0, kAllOnDisk, at::kFloat);
  c.disk = fresh();
  c.steps = 2;
  const MeshRecord whole = train_from(c, 0);
  ChunkFile::open(rank_folder(c.disk, 1))->go_back();
  MeshCase none = c;
  none.steps = 1;
  train_from(none, 1);  // rank 0 rolls back, and a crash precedes the next commit
  EXPECT_EQ(ChunkFile::commits(rank_folder(c.disk, 0)).size(), 1);
  std::filesystem::rename(rank_folder(c.disk, 1), c.disk + "/elsewhere");
  EXPECT_TRUE(holds_commits(c.disk));
  EXPECT_FALSE(is_first_commit(rank_folder(c.disk, 0), 2));
  std::filesystem::rename(c.disk + "/elsewhere", rank_folder(c.disk, 1));
  expect_same_bits(train_from(c, 1), tail(whole, 1));
}

TEST_F(TrainingOnDisk, RejectsFoldersWithoutCommonStep) {
  MeshCase c = resumed_case({{Axis::kPipeline, 2}}, 0, kAllOnDisk, at::kFloat);
  c.disk = fresh();
  c.steps = 2;
  train_from(c, 0);
  std::filesystem::rename(c.disk + "/rank-00001", c.disk + "/kept");
  const std::string other = std::exchange(c.disk, fresh());
  c.steps = 4;
  train_from(c, 0);
  std::filesystem::remove_all(c.disk + "/rank-00001");
  std::filesystem::rename(other + "/kept", c.disk + "/rank-00001");
  EXPECT_NE(error_of([&] { train_from(c, 2); }).text().what.find("no common step"),
            std::string::npos);
}

TEST_F(TrainingOnDisk, RejectsDifferentMeshModelOrPlacement) {
  MeshCase c = resumed_case({{Axis::kPipeline, 2}}, 0, kAllOnDisk, at::kFloat);
  c.disk = fresh();
  c.steps = 1;
  train_from(c, 0);
  const auto refused = [&](const std::function<void(MeshCase&)>& change) {
    MeshCase other = c;
    other.steps = 2;
    change(other);
    return error_of([&] { train_from(other, 1); }).text().what;
  };
  const std::string another = "the folder holds the state of another mesh, model or placement";
  EXPECT_EQ(refused([](MeshCase& m) { m.tiers = kStatesOnDisk; }), another);
  EXPECT_EQ(refused([](MeshCase& m) { m.optimizer = OptimizerKind::kAdagrad; }), another);
  EXPECT_EQ(refused([](MeshCase& m) { m.precision = at::kBFloat16; }), another);
  EXPECT_EQ(refused([](MeshCase& m) { m.model.layers = 4; }), another);
  EXPECT_EQ(refused([](MeshCase& m) { m.mesh = {{Axis::kData, 2}}; }), another);
  EXPECT_EQ(refused([](MeshCase& m) { m.mesh = {{Axis::kPipeline, 3}}; }),
            "this rank has committed nothing here");
  EXPECT_EQ(error_of([&] { train_from(c, 0); }).text().what,
            "the folder holds a step of an earlier run");
}

TEST_F(TrainingOnDisk, RejectsTooSmallDiskBudgetBeforeWriting) {
  MeshCase c = small_mesh_case();
  c.tiers = kAllOnDisk;
  c.disk = fresh();
  const auto with = [&](std::int64_t bytes) {
    return [=](TrainerOptions& options) { options.disk.bytes = bytes; };
  };
  const ErrorText text = error_of([&] { run_of(c, with(1000)); }).text();
  EXPECT_NE(text.what.find("budget of the disk"), std::string::npos) << text.what;
  EXPECT_FALSE(std::filesystem::exists(c.disk));
  const std::int64_t needed =
      parse_bytes(text.fix.substr(std::string("set memory.disk.bytes=").size())).count;
  EXPECT_THROW(run_of(c, with(needed - 1)), UserError);
  EXPECT_NO_THROW(run_of(c, with(needed)));
}

// ---- Faults

struct Fault {
  BlockOp op;
  BlockFault fault;
  const char* says;  // "": no error expected
};

constexpr int kOfGradients = 7;  // of a file with a request for each of 5 layers and step

// What `faulty` makes for files whose path has this part, and whole block I/O for others.
BlockIoFactory of_file(std::string part, BlockIoFactory faulty) {
  return [part = std::move(part), faulty = std::move(faulty)](const BlockIoSetup& setup) {
    const std::string link = "/proc/self/fd/" + std::to_string(setup.descriptor);
    const std::string path = std::filesystem::read_symlink(link);
    return path.find(part) == std::string::npos ? make_block_io(setup) : faulty(setup);
  };
}

TEST_F(TrainingOnDisk, DiskFaultEndsRunOrChangesNoBit) {
  const Fault faults[] = {
      {BlockOp::kRead, {.error = EIO}, "Input/output error"},
      {BlockOp::kWrite, {.error = EIO}, "Input/output error"},
      {BlockOp::kWrite, {.error = ENOSPC}, "No space left"},
      {BlockOp::kRead, {.flip = 12345}, "checksum"},
      {BlockOp::kWrite, {.flip = 54321}, "checksum"},
      {BlockOp::kRead, {.at_most = 4096}, ""},
      {BlockOp::kWrite, {.at_most = 4096}, ""},
      {BlockOp::kWrite, {.error = EINTR}, ""},
  };
  MeshCase c = small_mesh_case({}, 0, false);
  const MeshRecord expected = train_on_mesh(c);
  for (const Fault& fault : faults) {
    for (const int at : {3, 30, kOfGradients}) {
      SCOPED_TRACE(std::string(fault.says) + ", request " + std::to_string(at));
      std::atomic<int> count = 0;
      c.disk = fresh();
      c.tiers = at == kOfGradients ? kGradientsToo : kAllOnDisk;
      const auto broken = [&](TrainerOptions& options) {
        options.disk.file.block_io =
            of_file(at == kOfGradients ? "/gradients/" : "",
                    faulty_block_io(make_block_io, [&](const BlockRequest& request) {
                      if (request.op != fault.op || count++ != at) return BlockFault{};
                      BlockFault now = fault.fault;
                      if (now.flip) *now.flip %= request.bytes.size() * 8;
                      return now;
                    }));
      };
      if (fault.says[0] == '\0') {
        expect_same_bits(train_on_mesh(c, broken), expected);
        EXPECT_GT(count, at);
        continue;
      }
      try {
        train_on_mesh(c, broken);
        ADD_FAILURE() << "no error was reported";
      } catch (const SystemError& error) {
        EXPECT_NE(std::string(error.what()).find(fault.says), std::string::npos) << error.what();
        EXPECT_NE(error.text().where.find("chunks.data"), std::string::npos) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace strata
