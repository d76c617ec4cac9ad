#include "strata/checkpoint/saver.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/example_states_test.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/loader.h"
#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/reader.h"
#include "strata/comm/ranks.h"
#include "strata/device/delayed_stream_test.h"
#include "strata/models/hugging_face.h"
#include "strata/optim/master_weights.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

const std::vector<ExampleMesh> kMeshes = {
    {{}, 0},
    {{{Axis::kData, 2}}, 1},
    {{{Axis::kData, 2}}, 3},
    {{{Axis::kTensor, 2}}, 0},
    {{{Axis::kTensor, 3}}, 0},
    {{{Axis::kPipeline, 2}}, 0},
    {{{Axis::kPipeline, 2}, {Axis::kData, 2}, {Axis::kTensor, 2}}, 2},
    {{{Axis::kPipeline, 3}, {Axis::kTensor, 2}}, 0},
    {{{Axis::kData, 4}}, 3},
    {{{Axis::kPipeline, 4}, {Axis::kData, 2}, {Axis::kTensor, 2}}, 3},
    {{{Axis::kPipeline, 2}, {Axis::kData, 3}}, 1},
    {{{Axis::kData, 2}, {Axis::kTensor, 3}}, 2},
    {{{Axis::kPipeline, 4}}, 0},
    {{{Axis::kData, 5}}, 3},
};

std::string text_of(const ExampleMesh& m) {
  return m.mesh.text() + ", zero " + std::to_string(m.zero);
}

class SavingTest : public ::testing::Test {
 protected:
  using RankTask = std::function<void(CheckpointSaver&, const ExampleRank&, Group&)>;

  static DecoderOptions model() {
    return {.layers = 2, .width = 12, .heads = 3, .vocab = 257, .context = 9};
  }
  CheckpointOptions options() const {
    return {.folder = root_, .model = model(), .tokenizer = "bytes", .recipe = "seed: 1\n"};
  }
  static TrainingPosition at_step(std::int64_t step) { return {step, 5 * step}; }

  void on_ranks(const ExampleMesh& mesh, const RankTask& task) const {
    run_thread_ranks({.ranks = mesh.mesh.size()}, [&](Group& group, MemoryAccount&) {
      const int stage = mesh.mesh.place(group.rank())[Axis::kPipeline],
                size = mesh.mesh.stage_size();
      std::vector<int> ranks;
      for (int i = 0; i < size; ++i) ranks.push_back(stage * size + i);
      CheckpointSaver saver(options(), group, group.subgroup(ranks, "stage"));
      task(saver, ExampleRank(model(), mesh, group.rank()), group);
    });
  }

  std::string save(const ExampleMesh& mesh, std::int64_t step) const {
    std::string folder;
    on_ranks(mesh, [&](CheckpointSaver& saver, const ExampleRank& rank, Group& group) {
      const ExampleStates states = rank.owned();
      saver.save(at_step(step), states.weights, states.slots);
      const std::string complete = saver.wait();
      EXPECT_EQ(saver.wait(), "");
      if (group.rank() == 0) folder = complete;
      EXPECT_EQ(complete.empty(), group.rank() > 0);
    });
    return folder;
  }

  void replace_by_file(Group& group) const {
    if (group.rank() == 0) {
      fs::remove_all(root_);
      std::ofstream(root_) << "no folder";
    }
    group.barrier();
  }

  // The error that `action` throws.
  template <typename E>
  static ErrorText error_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const E& error) {
      return error.text();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }

  // In a child process, which must not continue with other tests.
  [[noreturn]] void save_for_ever(std::int64_t first_step) const {
    at::set_num_threads(1);  // a forked child's first call is not safe in several threads at once
    try {
      on_ranks({{{Axis::kPipeline, 2}, {Axis::kData, 2}}, 1},
               [&](CheckpointSaver& saver, const ExampleRank& rank, Group&) {
                 const ExampleStates states = rank.owned();
                 for (std::int64_t step = first_step;; ++step)
                   saver.save(at_step(step), states.weights, states.slots);
               });
    } catch (const std::exception& error) {
      ::write(STDERR_FILENO, error.what(), std::strlen(error.what()));
    }
    ::_exit(1);
  }

  std::int64_t latest_step() const {
    const std::vector<std::string> all = list_checkpoints(root_);
    return all.empty() ? -1 : step_of_folder_name(fs::path(all.back()).filename()).value();
  }

  ScratchFolder folder_;
  std::string root_ = folder_.path("saved");
};

TEST_F(SavingTest, LoadsCheckpointOfOneMeshUnderAnyOther) {
  for (const std::size_t from : {0, 2, 6, 9, 11}) {
    const std::string path = save(kMeshes[from], 3);
    ASSERT_EQ(path, root_ + "/step-00000003");
    CheckpointReader::open(path).verify_all();
    for (const ExampleMesh& mesh : kMeshes) {
      SCOPED_TRACE(text_of(kMeshes[from]) + " -> " + text_of(mesh));
      for (int rank = 0; rank < mesh.mesh.size(); ++rank) {
        const ExampleStates states = ExampleRank(model(), mesh, rank).held();
        EXPECT_EQ(load_states(path, model(), states.weights, states.slots), at_step(3));
        for (const auto* list : {&states.weights, &states.slots})
          for (const NamedState& state : *list)
            EXPECT_TRUE(ExampleRank::was_read(state)) << state.name << " of rank " << rank;
      }
    }
  }
}

TEST_F(SavingTest, WritesWholeTensorsWithHuggingFaceNames) {
  const CheckpointReader one = CheckpointReader::open(save(kMeshes[0], 1));
  const CheckpointReader many = CheckpointReader::open(save(kMeshes[9], 2));
  ASSERT_EQ(one.names(), many.names());
  for (const std::string& name : one.names())
    EXPECT_TRUE(at::equal(one.tensor(name), many.tensor(name))) << name;
  const at::Tensor qkv = many.tensor("transformer.h.1.attn.c_attn.weight");
  EXPECT_EQ(qkv.sizes(), (std::vector<std::int64_t>{12, 36}));  // the file has [in, out]
  EXPECT_EQ(qkv[5][7].item<float>(), example_value("block1.attention.qkv.weight", 7 * 12 + 5));
  EXPECT_EQ(many.tensor("block1.attention.qkv.weight.exp_avg").sizes(),
            (std::vector<std::int64_t>{36, 12}));
  EXPECT_FALSE(many.contains("lm_head.weight"));  // tied: only at its owner
  EXPECT_EQ(model_options_of(root_), model());
  EXPECT_EQ(many.manifest().samples_seen, 10);
  EXPECT_EQ(position_at(root_, model()), at_step(2));
}

TEST_F(SavingTest, CopiesStatesBeforeTheyChange) {
  on_ranks(kMeshes[6], [&](CheckpointSaver& saver, const ExampleRank& rank, Group&) {
    const ExampleStates states = rank.owned();
    saver.save(at_step(1), states.weights, states.slots);
    for (const auto* list : {&states.weights, &states.slots})
      for (const NamedState& state : *list)
        if (!state.runs.empty()) state.local.fill_(-1);
    saver.save(at_step(2), states.weights, states.slots);  // waits for the first
    saver.wait();
  });
  const ExampleStates states = ExampleRank(model(), kMeshes[0], 0).held();
  load_states(root_ + "/step-00000001", model(), states.weights, states.slots);
  for (const NamedState& state : states.slots) EXPECT_TRUE(ExampleRank::was_read(state));
  load_states(root_, model(), states.weights, states.slots);
  for (const NamedState& state : states.slots)
    EXPECT_TRUE(at::equal(state.local, at::full_like(state.local, -1)));
}

// A device that works asynchronously: save() is called before the states are computed and returns,
// and later work changes them again.
TEST_F(SavingTest, CopiesDeviceStatesWithoutWaiting) {
  for (const int ranks : {1, 2}) {
    const std::int64_t step = 10 + ranks;
    run_thread_ranks({.ranks = ranks}, [&](Group& group, MemoryAccount& account) {
      const auto queue = std::make_shared<DelayedQueue>(group.rank());
      const std::int64_t rows = 12 / ranks, numel = (1 << 16) / ranks;
      const auto state_of = [&](const std::string& name, std::int64_t size) {
        NamedState state{.name = name, .shape = {size * ranks}, .local = {}, .runs = {}};
        state.local = queue->empty({size}, at::kFloat);
        state.runs = {{0, size * group.rank(), size}};
        return state;
      };
      const NamedState weight = state_of("head.norm.weight", rows);
      const NamedState slot = state_of("slot", numel);
      const auto fill = [&](float value) {
        for (const NamedState* state : {&weight, &slot})
          queue->give([x = state->local.data_ptr<float>(), size = state->local.numel(), value,
                       rank = group.rank()] {
            for (std::int64_t i = 0; i < size; ++i)
              x[i] = value + static_cast<float>(rank * size + i);
          });
      };
      CheckpointSaver saver(options(), group, group, Stream({}, queue));
      if (ranks == 1) queue->hold();  // other ranks of a stage wait for the copies
      fill(1000);
      account.reset_peak();
      saver.save(at_step(step), {weight}, {slot});
      EXPECT_LT(account.peak_bytes() - account.current_bytes(), 1 << 12);
      fill(-5);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (ranks == 1) EXPECT_EQ(saver.poll(), "");
      queue->release();
      saver.wait();
      queue->synchronize();
      EXPECT_EQ(slot.local[0].item<float>(), -5.0f + static_cast<float>(group.rank() * numel));
    });
    const CheckpointReader saved = CheckpointReader::open(list_checkpoints(root_).back());
    const at::Tensor slot = saved.tensor("slot");
    EXPECT_TRUE(at::equal(slot, at::arange(1000, 1000 + slot.numel(), at::kFloat)));
    EXPECT_EQ(saved.names().size(), 2u);
  }
}

// For bf16 weights their missing bits, too, and states that are on the host: the copy has the
// values at the call.
TEST_F(SavingTest, CopiesStatesToHostWithAllParts) {
  const auto queue = std::make_shared<DelayedQueue>();
  const MasterWeights split{at::empty({8}, at::kBFloat16), at::empty({8}, at::kShort)};
  const at::Tensor values = at::arange(8, at::kFloat).div(3);
  split.assign(values);
  const NamedState state{.name = "w",
                         .shape = {2, 4},
                         .local = split.weights,
                         .runs = {{0, 0, 8}},
                         .remainder = split.remainder};
  const HostStates copies =
      copy_to_host({state, {.name = "none", .shape = {3}}}, Stream({}, queue));
  copies.copied.wait();
  split.assign(at::zeros({8}));
  EXPECT_TRUE(at::equal(copies.states[0].tensor().view(-1), values));
  EXPECT_TRUE(copies.states[0].is_copy);
  EXPECT_FALSE(copies.states[1].local.defined());
  run_thread_ranks({.ranks = 1}, [&](Group& group, MemoryAccount&) {
    const at::Tensor whole = assemble(group, {copies.states[0]})[0];
    EXPECT_TRUE(at::equal(whole.view(-1), values));
    EXPECT_EQ(whole.dim(), 2);
  });
}

TEST_F(SavingTest, ReportsCompleteSaveOnce) {
  on_ranks({{}, 0}, [&](CheckpointSaver& saver, const ExampleRank& rank, Group&) {
    EXPECT_EQ(saver.poll(), "");
    EXPECT_EQ(saver.wait(), "");
    const ExampleStates states = rank.owned();
    saver.save(at_step(1), states.weights, states.slots);
    std::string complete;
    while (complete.empty()) complete = saver.poll();
    EXPECT_EQ(complete, root_ + "/step-00000001");
    EXPECT_EQ(saver.poll(), "");
    saver.save(at_step(2), states.weights, states.slots);
    saver.save(at_step(3), states.weights, states.slots);
    while (complete != root_ + "/step-00000003") complete = saver.poll();
  });
  EXPECT_EQ(list_checkpoints(root_).size(), 2u);  // train.keep_checkpoints
}

TEST_F(SavingTest, DoesNotChargeRanksForCopies) {
  run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount& account) {
    NamedState state{.name = "head.norm.weight", .shape = {12}, .local = {}, .runs = {}};
    NamedState slot{.name = "slot", .shape = {1 << 20}, .local = {}, .runs = {}};
    state.local = at::ones({6});
    state.runs = {{0, 6 * group.rank(), 6}};
    slot.local = at::ones({1 << 19});
    slot.runs = {{0, group.rank() << 19, 1 << 19}};
    CheckpointSaver saver(options(), group, group);
    group.barrier();
    account.reset_peak();
    saver.save(at_step(1), {state}, {slot});
    EXPECT_LT(account.peak_bytes() - account.current_bytes(), 1 << 16);
    saver.wait();
  });
}

TEST_F(SavingTest, ReportsFailureToEveryRankAtNextSave) {
  std::mutex mutex;
  std::multiset<std::string> messages;
  on_ranks(kMeshes[6], [&](CheckpointSaver& saver, const ExampleRank& rank, Group& group) {
    const ExampleStates states = rank.owned();
    replace_by_file(group);
    saver.save(at_step(1), states.weights, states.slots);  // fails in the background
    const ErrorText text =
        error_of<UserError>([&] { saver.save(at_step(2), states.weights, states.slots); });
    const std::lock_guard lock(mutex);
    messages.insert(text.where + text.what + text.got);
  });
  EXPECT_EQ(messages.size(), 8u);
  EXPECT_EQ(messages.count(*messages.begin()), 8u);
  EXPECT_NE(messages.begin()->find(root_), std::string::npos);
}

TEST_F(SavingTest, ContinuesAfterFailure) {
  on_ranks(kMeshes[1], [&](CheckpointSaver& saver, const ExampleRank& rank, Group& group) {
    const ExampleStates states = rank.owned();
    replace_by_file(group);
    saver.save(at_step(1), states.weights, states.slots);
    error_of<UserError>([&] { saver.wait(); });
    if (group.rank() == 0) fs::remove(root_);
    group.barrier();
    saver.save(at_step(2), states.weights, states.slots);
    EXPECT_EQ(saver.wait().empty(), group.rank() > 0);
  });
  EXPECT_EQ(position_at(root_, model()), at_step(2));
}

TEST_F(SavingTest, RejectsUnwritableFolderBeforeTraining) {
  std::ofstream(root_) << "no folder";
  std::atomic<int> refused = 0;
  run_thread_ranks({.ranks = 3}, [&](Group& group, MemoryAccount&) {
    const ErrorText text = error_of<UserError>(
        [&] { CheckpointSaver(options(), group, group.subgroup({group.rank()}, "stage")); });
    if (text.where == root_) ++refused;
  });
  EXPECT_EQ(refused, 3);
}

TEST_F(SavingTest, RejectsFolderOfAnotherRun) {
  const CheckpointLock other(root_);
  run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
    const ErrorText text = error_of<UserError>(
        [&] { CheckpointSaver(options(), group, group.subgroup({group.rank()}, "stage")); });
    EXPECT_EQ(text.what, "another run saves its checkpoints here");
    EXPECT_NE(text.got.find("process "), std::string::npos);
  });
}

TEST_F(SavingTest, RejectsDifferentModelWithBothShapes) {
  const std::string path = save(kMeshes[0], 1);
  const auto refusal = [&](const DecoderOptions& other) {
    return error_of<UserError>([&] { load_states(path, other, {}, {}); });
  };
  DecoderOptions other = model();
  other.layers = 1;  // a smaller one: every weight of it is there
  EXPECT_NE(refusal(other).what.find("'block1."), std::string::npos) << refusal(other).what;
  EXPECT_EQ(refusal(other).expected, "no such weight in the recipe's model");
  EXPECT_NE(refusal(other).got.find("] in the checkpoint"), std::string::npos);
  EXPECT_NE(refusal(other).fix.find("model.layers=2"), std::string::npos);
  other = model();
  other.vocab = 300;
  EXPECT_EQ(refusal(other).what, "the checkpoint is of another model: 'embed.tokens.weight'");
  EXPECT_EQ(refusal(other).expected, "[300, 12] in the recipe's model");
  EXPECT_EQ(refusal(other).got, "[257, 12] in the checkpoint");
  EXPECT_EQ(refusal(other).where, path);
  other = model();
  other.heads = 4;
  EXPECT_EQ(refusal(other).what,
            "the checkpoint is of another model, with weights of the same shapes");
  EXPECT_NE(refusal(other).got.find("model.heads=3"), std::string::npos);
  EXPECT_NE(error_of<UserError>([&] { load_weights(path, other, {}); }).fix.find("model.heads=3"),
            std::string::npos);
  other = model();
  other.dropout = 0.5;
  EXPECT_EQ(load_states(path, other, {}, {}), at_step(1));
}

// As written before manifests described their model.
TEST_F(SavingTest, LoadsCheckpointsWithoutModelInManifest) {
  const std::string path = save(kMeshes[0], 1);
  Manifest manifest = CheckpointReader::open(path).manifest();
  ASSERT_EQ(manifest.model, completed(model()));
  manifest.model.reset();
  manifest.tokenizer.clear();
  std::ofstream(path + "/manifest.json") << write_manifest(manifest);
  EXPECT_EQ(model_options_of(path), model());
  const ExampleStates states = ExampleRank(model(), kMeshes[3], 1).held();
  EXPECT_EQ(load_states(path, model(), states.weights, states.slots), at_step(1));
  for (const NamedState& state : states.weights) EXPECT_TRUE(ExampleRank::was_read(state));
}

TEST_F(SavingTest, KeepsNamesOfOtherNetworks) {
  const std::string fields = R"({"kind":"dlrm","bottom":[64,16],"t":{"b":1,"a":2},"numeric":3})";
  std::string path;
  run_thread_ranks({.ranks = 1}, [&](Group& group, MemoryAccount&) {
    CheckpointSaver saver({.folder = root_,
                           .model = CheckpointModel(fields),
                           .texts = {{"preprocessing.json", "{\"a\": 1}"}}},
                          group, group);
    const ExampleStates states = ExampleRank(model(), kMeshes[0], 0).owned();
    saver.save(at_step(1), states.weights, states.slots);
    path = saver.wait();
  });
  const CheckpointReader reader = CheckpointReader::open(path);
  reader.verify_all();
  EXPECT_TRUE(reader.contains("block1.attention.qkv.weight"));
  EXPECT_FALSE(reader.model().decoder);
  EXPECT_EQ(reader.text("preprocessing.json"), "{\"a\": 1}");
  EXPECT_EQ(reader.text("other.json"), "");
  const ExampleStates states = ExampleRank(model(), kMeshes[3], 1).held();
  EXPECT_EQ(load_states(path, CheckpointModel(fields), states.weights, states.slots), at_step(1));
  for (const NamedState& state : states.weights) EXPECT_TRUE(ExampleRank::was_read(state));
  const ErrorText other = error_of<UserError>([&] {
    load_states(
        path, CheckpointModel(R"({"bottom":[64,16],"kind":"dlrm","numeric":4,"t":{"b":1,"a":2}})"),
        {}, {});
  });
  EXPECT_EQ(other.expected, "numeric: 4 in the recipe's model");
  EXPECT_EQ(other.got, "numeric: 3 in the checkpoint");
  EXPECT_NE(other.fix.find("model.numeric"), std::string::npos);
  EXPECT_EQ(error_of<UserError>([&] { load_states(path, model(), {}, {}); }).where, path);
  EXPECT_EQ(error_of<UserError>([&] { model_options_of(path); }).what,
            "the checkpoint holds no model of text");
}

TEST_F(SavingTest, NamesStateNotOwnedExactlyOnce) {
  for (const std::int64_t overlap : {-1, 1}) {
    const ErrorText text = error_of<InternalError>([&] {
      run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
        NamedState state{.name = "lonely", .shape = {10}, .local = at::ones({6}), .runs = {}};
        state.runs = {{0, 0, 5}};
        if (group.rank() == 1)
          state.runs = {{0, 5 - overlap, 5 + std::min<std::int64_t>(overlap, 0)}};
        if (group.rank() == 1 && overlap > 0) state.runs[0].numel = 6;
        assemble(group, {state});
      });
    });
    EXPECT_NE(text.where.find("lonely"), std::string::npos);
  }
}

TEST_F(SavingTest, NamesMissingStates) {
  const std::string path = save(kMeshes[0], 1);
  NamedState slot{.name = "embed.tokens.weight.momentum", .shape = {2}, .local = at::zeros({2})};
  slot.runs = {{0, 0, 2}};
  const ErrorText text = error_of<UserError>([&] { load_states(path, model(), {}, {slot}); });
  EXPECT_EQ(text.what, "the checkpoint holds no tensor of this name");
  EXPECT_EQ(text.expected, "embed.tokens.weight.momentum");
}

TEST_F(SavingTest, SurvivesKillDuringBackgroundSave) {
  std::mt19937 random(7);
  for (int kill = 0; kill < 12; ++kill) {
    const std::int64_t before = latest_step();
    const pid_t saver = ::fork();
    ASSERT_GE(saver, 0);
    if (saver == 0) save_for_ever(before + 1);
    int status = 0;
    while (latest_step() == before) {  // until one more is complete
      ASSERT_EQ(::waitpid(saver, &status, WNOHANG), 0) << "the saver was not killed";
      ::usleep(1'000);
    }
    ::usleep(std::uniform_int_distribution<int>(0, 30'000)(random));
    ::kill(saver, SIGKILL);
    ASSERT_EQ(::waitpid(saver, &status, 0), saver);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the saver was not killed";
    ASSERT_GT(latest_step(), before);
    for (const std::string& path : list_checkpoints(root_)) {
      CheckpointReader::open(path).verify_all();
      const ExampleStates states = ExampleRank(model(), kMeshes[3], 1).held();
      load_states(path, model(), states.weights, states.slots);
      for (const NamedState& state : states.weights) EXPECT_TRUE(ExampleRank::was_read(state));
    }
  }
}

// Another program's folder: only weights, 16 bits each, with names without "transformer.".
class PretrainedTest : public SavingTest {
 protected:
  void SetUp() override {
    const CheckpointReader saved = CheckpointReader::open(save(kMeshes[0], 1));
    std::ofstream(path_ + "/config.json") << saved.config_json();
    std::vector<NamedTensor> first, second;
    for (const std::string& name : saved.names()) {
      if (!name.starts_with("transformer.")) continue;
      const at::Tensor half = saved.tensor(name).remainder(250).to(at::kBFloat16);
      (name.find(".h.1.") == std::string::npos ? first : second)
          .push_back({name.substr(name.find('.') + 1), half});
    }
    write_safetensors(path_ + "/model-00001-of-00002.safetensors", first);
    write_safetensors(path_ + "/model-00002-of-00002.safetensors", second);
    std::string map;
    for (const auto& [file, tensors] :
         {std::pair("model-00001-of-00002", &first), std::pair("model-00002-of-00002", &second)})
      for (const NamedTensor& t : *tensors)
        map += (map.empty() ? "\"" : ", \"") + t.name + "\": \"" + file + ".safetensors\"";
    std::ofstream(path_ + "/model.safetensors.index.json") << "{\"weight_map\": {" + map + "}}";
  }

  std::vector<NamedState> held() const {
    return ExampleRank(model(), kMeshes[0], 0).held().weights;
  }

  ScratchFolder pretrained_;
  std::string path_ = pretrained_.path();
};

TEST_F(PretrainedTest, LoadsWeightsUnderAnyMesh) {
  EXPECT_EQ(model_options_of(path_), model());
  for (const ExampleMesh& mesh : {kMeshes[0], kMeshes[3], kMeshes[9]}) {
    for (int rank = 0; rank < mesh.mesh.size(); ++rank) {
      const ExampleStates states = ExampleRank(model(), mesh, rank).held();
      load_weights(path_, model(), states.weights);
      for (const NamedState& state : states.weights)
        for (const strata::Run& run : state.runs)
          EXPECT_EQ(state.local[run.local].item<float>(),
                    std::fmod(example_value(state.name, run.global), 250.0f))
              << state.name;
    }
  }
}

TEST_F(PretrainedTest, NamesMissingFileOrTensor) {
  const std::string second = path_ + "/model-00002-of-00002.safetensors";
  const auto refusal = [&] {
    return error_of<UserError>([&] { load_weights(path_, model(), held()); });
  };
  fs::rename(second, second + ".away");
  EXPECT_EQ(refusal().where, second);
  write_safetensors(second, std::vector<NamedTensor>{{"h.1.ln_1.bias", at::zeros({12})}});
  EXPECT_EQ(refusal().expected.find("transformer.h.1."), 0u);
  std::ofstream(path_ + "/model.safetensors.index.json") << "{}";
  EXPECT_EQ(refusal().where, path_ + "/model.safetensors.index.json");
  fs::remove(path_ + "/model.safetensors.index.json");
  EXPECT_EQ(refusal().where, path_ + "/model.safetensors");
}

// What one replica has stays on its ranks; what all have is divided among all.
// The state of one of `replicas`, which each have their own.
NamedState state_of_replica(const std::string& name, int replica, int replicas) {
  return {.name = name + "." + std::to_string(replica),
          .shape = {64},
          .local = {},
          .runs = {},
          .replicas = replicas,
          .replica = replica};
}

TEST(Assembly, RanksOfAReplicaAssembleItsStatesAndShareCommonOnes) {
  constexpr int kReplicas = 2, kRanks = 4;
  std::vector<NamedState> states;
  for (int i = 0; i < 6; ++i) {
    states.push_back(
        {.name = "common" + std::to_string(i), .shape = {64}, .local = {}, .runs = {}});
    for (int replica = 0; replica < kReplicas; ++replica)
      states.push_back(state_of_replica("own" + std::to_string(i), replica, kReplicas));
  }
  const std::vector<int> writers = assemblers(states, kRanks);
  std::vector<int> counts(kRanks);
  for (std::size_t i = 0; i < states.size(); ++i) {
    ++counts[static_cast<std::size_t>(writers[i])];
    if (states[i].replicas > 0) EXPECT_EQ(writers[i] / 2, states[i].replica) << states[i].name;
  }
  for (const int count : counts) EXPECT_NEAR(count, 18 / 4.0, 1);
}

TEST(Assembly, StateOfAReplicaIsNotSent) {
  constexpr int kReplicas = 2;
  run_thread_ranks({.ranks = kReplicas}, [&](Group& group, MemoryAccount&) {
    std::vector<NamedState> own = {state_of_replica("own", 0, kReplicas),
                                   state_of_replica("own", 1, kReplicas)};
    own[static_cast<std::size_t>(group.rank())].local = at::full({64}, group.rank() + 1.0f);
    own[static_cast<std::size_t>(group.rank())].runs = {{0, 0, 64}};
    const std::vector<at::Tensor> assembled = assemble(group, own);
    EXPECT_EQ(assembled[static_cast<std::size_t>(group.rank())].sum().item<float>(),
              64 * (group.rank() + 1));
    EXPECT_FALSE(assembled[static_cast<std::size_t>(1 - group.rank())].defined());
    EXPECT_LT(group.sent_bytes(), 64);  // numbers of runs alone
  });
}

}  // namespace
}  // namespace strata
