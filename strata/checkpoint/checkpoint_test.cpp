#include "strata/checkpoint/reader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/writer.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  static std::vector<NamedTensor> weights(int shard, double value) {
    return {{"block" + std::to_string(shard) + ".weight", at::full({64, 3}, value)},
            {"block" + std::to_string(shard) + ".bias", at::full({64}, value)}};
  }
  static std::vector<NamedTensor> states(int shard, double value) {
    return {{"block" + std::to_string(shard) + ".weight.exp_avg", at::full({64, 3}, -value)}};
  }

  static CheckpointFiles files(int shards) { return {.model = shards, .optimizer = shards}; }
  static std::vector<WrittenFile> write(const CheckpointWriter& writer, int shard, double value) {
    return {writer.write_model(shard, weights(shard, value)),
            writer.write_optimizer(shard, states(shard, value))};
  }

  // The whole tensor, copied.
  static NamedState state(const std::string& name, std::vector<std::int64_t> shape,
                          at::ScalarType dtype = at::kFloat) {
    NamedState state{.name = name, .shape = std::move(shape), .local = {}, .runs = {}};
    state.local = at::zeros({state.numel()}, dtype);
    state.runs = {{0, 0, state.numel()}};
    return state;
  }
  static at::Tensor read(const CheckpointReader& reader, const NamedState& state) {
    reader.read_runs(state, file_tensors({}, state));
    return state.tensor();
  }

  // Every tensor holds the step's number, or its negative.
  std::string save(std::int64_t step, int num_shards = 1, double value = -1) const {
    if (value < 0) value = static_cast<double>(step);
    const CheckpointWriter writer(root_, step, files(num_shards));
    writer.prepare();
    std::vector<WrittenFile> written;
    for (int shard = 0; shard < num_shards; ++shard)
      for (const WrittenFile& file : write(writer, shard, value)) written.push_back(file);
    return writer.commit({.samples_seen = 32 * step, .recipe = "seed: 1\n"}, written,
                         "{\"n_layer\": 2}");
  }

  // In a child process, which must not continue with other tests.
  [[noreturn]] void save_for_ever() const {
    try {
      for (int step = 1;; step = step % 5 + 1) {
        save(step, 2);
        prune_checkpoints(root_, 2);
      }
    } catch (const std::exception& error) {
      ::write(STDERR_FILENO, error.what(), std::strlen(error.what()));
      ::_exit(1);
    }
  }

  // The error's text, which must contain `name`.
  static std::string refusal(const std::string& name, const std::function<void()>& action) {
    try {
      action();
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      EXPECT_FALSE(error.text().fix.empty());
      return error.text().what;
    }
    return "nothing refused";
  }
  static std::string open_refusal(const std::string& path, const std::string& name) {
    return refusal(name, [&] { CheckpointReader::open(path).verify_all(); });
  }

  ScratchFolder folder_;
  std::string root_ = folder_.path("runs/a");
};

TEST_F(CheckpointTest, ReadsBackFileOfOneRank) {
  const std::string path = save(400);
  EXPECT_EQ(path, root_ + "/step-00000400");
  const CheckpointReader reader = CheckpointReader::open(path);
  EXPECT_EQ(reader.manifest().step, 400);
  EXPECT_EQ(reader.manifest().samples_seen, 12800);
  EXPECT_EQ(reader.manifest().recipe, "seed: 1\n");
  EXPECT_EQ(reader.names(),
            (std::vector<std::string>{"block0.bias", "block0.weight", "block0.weight.exp_avg"}));
  EXPECT_TRUE(at::equal(read(reader, state("block0.weight", {64, 3})), at::full({64, 3}, 400.0)));
  EXPECT_TRUE(at::equal(reader.tensor("block0.weight.exp_avg"), at::full({64, 3}, -400.0)));
  EXPECT_TRUE(fs::exists(path + "/model.safetensors"));
  EXPECT_TRUE(fs::exists(path + "/config.json"));
  EXPECT_FALSE(fs::exists(path + "/model.safetensors.index.json"));
}

TEST_F(CheckpointTest, JoinsShardsWrittenConcurrently) {
  constexpr int kShards = 4;
  const CheckpointWriter writer(root_, 7, files(kShards));
  writer.prepare();
  std::vector<std::thread> ranks;
  std::vector<std::string> reported(kShards);  // what each rank sends to the committing rank
  for (int rank = 0; rank < kShards; ++rank) {
    ranks.emplace_back([&, rank] {
      reported[rank] = encode(write(CheckpointWriter(root_, 7, files(kShards)), rank, rank));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  std::vector<WrittenFile> written;
  for (const std::string& text : reported)
    for (const WrittenFile& file : decode_written_files(text)) written.push_back(file);
  const std::string path = writer.commit({}, written);

  const CheckpointReader reader = CheckpointReader::open(path);
  EXPECT_EQ(reader.names().size(), 3u * kShards);
  for (int shard = 0; shard < kShards; ++shard) {
    const std::string name = "block" + std::to_string(shard) + ".weight";
    EXPECT_TRUE(at::equal(reader.tensor(name), at::full({64, 3}, 1.0 * shard)));
  }
  const auto index = nlohmann::json::parse(std::ifstream(path + "/model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"]["block2.bias"], "model-00003-of-00004.safetensors");
  EXPECT_EQ(index["weight_map"].size(), 2u * kShards);  // states are not weights
  EXPECT_EQ(index["metadata"]["total_size"], kShards * (64 * 3 + 64) * 4);
}

TEST_F(CheckpointTest, HoldsOnlyFilesOfManifest) {
  const std::string path = save(1, 2);
  std::set<std::string> listed{"manifest.json"}, found;
  const Manifest manifest = CheckpointReader::open(path).manifest();
  for (const ManifestFile& file : manifest.files) {
    listed.insert(file.name);
    EXPECT_EQ(file.digest.bytes, static_cast<std::int64_t>(fs::file_size(path + "/" + file.name)));
  }
  for (const auto& entry : fs::directory_iterator(path)) found.insert(entry.path().filename());
  EXPECT_EQ(found, listed);
}

TEST_F(CheckpointTest, OpensLatestOfFolder) {
  save(9);
  save(100);
  save(20);
  EXPECT_EQ(CheckpointReader::open(root_).manifest().step, 100);
  EXPECT_EQ(CheckpointReader::open(root_ + "/").manifest().step, 100);
  EXPECT_EQ(CheckpointReader::open(root_ + "/step-00000009/").manifest().step, 9);
  EXPECT_EQ(list_checkpoints(root_).size(), 3u);
}

TEST_F(CheckpointTest, ReplacesCheckpointOfSameStep) {
  save(5, 2, 1.0);
  save(5, 1, 2.0);
  const CheckpointReader reader = CheckpointReader::open(root_);
  EXPECT_TRUE(at::equal(reader.tensor("block0.bias"), at::full({64}, 2.0)));
  EXPECT_FALSE(reader.contains("block1.bias"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), {}), 1);
}

TEST_F(CheckpointTest, KeepsNewest) {
  for (const int step : {1, 2, 3, 4}) save(step);
  prune_checkpoints(root_, 0);
  EXPECT_EQ(list_checkpoints(root_).size(), 4u);
  prune_checkpoints(root_, 2);
  EXPECT_EQ(list_checkpoints(root_),
            (std::vector<std::string>{root_ + "/step-00000003", root_ + "/step-00000004"}));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), {}), 2);
}

TEST_F(CheckpointTest, IgnoresUnfinishedSaveAndNextSaveRemovesIt) {
  save(1);
  const CheckpointWriter interrupted(root_, 2, files(2));
  interrupted.prepare();
  write(interrupted, 0, 2);
  const std::string partial = root_ + "/step-00000002.partial";
  ASSERT_TRUE(fs::exists(partial));
  EXPECT_EQ(CheckpointReader::open(root_).manifest().step, 1);
  EXPECT_EQ(open_refusal(partial, "step-00000002.partial"), "this save was not finished");
  save(3);
  EXPECT_FALSE(fs::exists(partial));
}

TEST_F(CheckpointTest, RejectsCommitWithoutAllFiles) {
  const CheckpointWriter writer(root_, 2, {.model = 2, .optimizer = 1});
  writer.prepare();
  std::vector<WrittenFile> written = write(writer, 0, 2);
  EXPECT_THROW(writer.commit({}, written), InternalError);
  written.push_back(writer.write_model(1, weights(0, 2)));  // names of file 0
  EXPECT_THROW(writer.commit({}, written), InternalError);
  EXPECT_TRUE(list_checkpoints(root_).empty());
}

TEST_F(CheckpointTest, ErrorNamesFolderWithoutCompleteCheckpoint) {
  EXPECT_EQ(open_refusal(root_, root_), "there is no complete checkpoint here");
  fs::remove(save(1) + "/manifest.json");
  EXPECT_EQ(open_refusal(root_, root_), "there is no complete checkpoint here");
}

TEST_F(CheckpointTest, NamesMissingTruncatedOrDamagedFile) {
  const std::string path = save(1, 2);
  const Manifest manifest = CheckpointReader::open(path).manifest();
  for (const auto& [name, digest] : manifest.files) {
    const std::string file = path + "/" + name, backup = folder_.path("backup");
    const auto size = fs::file_size(file);
    const auto restore = [&] { fs::copy_file(backup, file, fs::copy_options::overwrite_existing); };
    fs::copy_file(file, backup, fs::copy_options::overwrite_existing);

    for (const std::uintmax_t position : {std::uintmax_t{0}, size / 2, size - 1}) {
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(position);
      const char byte = static_cast<char>(stream.get() ^ 4);
      stream.seekp(position);
      stream.put(byte);
      stream.close();
      EXPECT_EQ(open_refusal(path, name),
                "a file of the checkpoint is damaged: its checksum is another");
      restore();
    }
    for (const std::uintmax_t length : {std::uintmax_t{0}, size - 1}) {
      fs::resize_file(file, length);
      EXPECT_EQ(open_refusal(path, name), "a file of the checkpoint is truncated");
      restore();
    }
    std::ofstream(file, std::ios::app) << 'x';
    EXPECT_EQ(open_refusal(path, name), "a file of the checkpoint has grown");
    fs::remove(file);
    EXPECT_EQ(open_refusal(path, name), "a file of the checkpoint is missing");
    restore();
  }
  EXPECT_EQ(CheckpointReader::open(path).manifest().step, 1);
}

TEST_F(CheckpointTest, NamesTensorThatDoesNotFit) {
  const CheckpointReader reader = CheckpointReader::open(save(1));
  const auto refused = [&](const NamedState& state) {
    return refusal(state.name, [&] { read(reader, state); });
  };
  const std::string other = "'block0.weight' has another shape or dtype";
  EXPECT_EQ(refused(state("block0.weight", {3, 64})), other);
  const NamedState wide = state("block0.weight", {64, 3}, at::kDouble);
  EXPECT_EQ(refused(wide), other);
  EXPECT_EQ(refused(state("block9.weight", {64, 3})),
            "the checkpoint holds no tensor of this name");
  EXPECT_TRUE(at::equal(wide.local, at::zeros({64 * 3}, at::kDouble)));
}

TEST_F(CheckpointTest, ReadsIntactPartsOfDamagedFile) {
  constexpr std::int64_t kRows = 3 * kChunkBytes / 4096;  // rows of 4 KiB
  const CheckpointWriter writer(root_, 1, {.model = 1});
  writer.prepare();
  const at::Tensor whole = at::arange(kRows * 1024, at::kFloat).view({kRows, 1024});
  const WrittenFile written = writer.write_model(0, std::vector<NamedTensor>{{"weight", whole}});
  const std::string path = writer.commit({}, {written});
  std::fstream stream(path + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(2 * kChunkBytes + 77);
  stream.put('!');
  stream.close();

  const CheckpointReader reader = CheckpointReader::open(path);
  NamedState rows{.name = "weight", .shape = {kRows, 1024}, .local = at::zeros({4096}), .runs = {}};
  rows.runs = {{0, 5000, 3000}, {3500, 20000, 596}};
  reader.read_runs(rows, file_tensors({}, rows));
  EXPECT_TRUE(at::equal(rows.local.narrow(0, 0, 3000), whole.flatten().narrow(0, 5000, 3000)));
  EXPECT_TRUE(at::equal(rows.local.narrow(0, 3500, 596), whole.flatten().narrow(0, 20000, 596)));
  EXPECT_TRUE(at::equal(rows.local.narrow(0, 3000, 500), at::zeros({500})));

  rows.runs = {{0, 2 * kChunkBytes / 4 + 100, 10}};
  const std::string damaged = "a file of the checkpoint is damaged: its checksum is another";
  EXPECT_EQ(refusal("model.safetensors", [&] { reader.read_runs(rows, file_tensors({}, rows)); }),
            damaged);
  EXPECT_EQ(refusal("model.safetensors", [&] { reader.verify_all(); }), damaged);
}

// Changes the manifest and recomputes its checksum.
void rewrite_manifest(const std::string& path, const std::function<void(Manifest&)>& change) {
  Manifest manifest = CheckpointReader::open(path).manifest();
  change(manifest);
  std::ofstream(path + "/manifest.json") << write_manifest(manifest);
}

TEST_F(CheckpointTest, RejectsNamesOutsideFolder) {
  const std::string secret = folder_.path("secret.safetensors");
  write_safetensors(secret, weights(0, 1));
  for (const std::string& name :
       {std::string("../../../secret.safetensors"), secret, std::string(".."), std::string(""),
        std::string("a/b"), std::string(300, 'x')}) {
    const std::string path = save(1);
    rewrite_manifest(path, [&](Manifest& manifest) { manifest.files[0].name = name; });
    EXPECT_EQ(open_refusal(path, "manifest.json"), "files[0].name cannot be used") << name;
  }
  const std::string path = save(1), file = path + "/model.safetensors";
  fs::rename(file, secret);
  fs::create_symlink(secret, file);
  EXPECT_EQ(open_refusal(path, file), "a symbolic link stands where a file must");
  fs::remove(file);
  fs::create_symlink("model.safetensors", file);  // a loop
  EXPECT_EQ(open_refusal(path, file), "a symbolic link stands where a file must");
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_EQ(open_refusal(path, file), "this is not a file");
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(open_refusal(path, file), "this is not a file");
}

TEST_F(CheckpointTest, RejectsMalformedOrHugeManifest) {
  const std::string path = save(1), manifest = path + "/manifest.json";
  std::ofstream(manifest) << std::string(100'000, '{');
  EXPECT_EQ(open_refusal(path, manifest), "the JSON is nested too deeply");
  fs::remove(manifest);
  ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);
  EXPECT_EQ(open_refusal(path, manifest), "this is not a file");
  fs::remove(manifest);
  fs::create_symlink("manifest.json", manifest);
  EXPECT_EQ(open_refusal(path, manifest), "the file cannot be opened");
}

TEST_F(CheckpointTest, VerifiesTokenizerOfManifest) {
  const CheckpointWriter writer(root_, 1, {});
  writer.prepare();
  const WrittenFile written = writer.write_model(0, weights(0, 1));
  const std::string path = writer.commit({.tokenizer = "elsewhere"}, {written}, "{}",
                                         {{"tokenizer.json", "{\"a\": 1}"}});
  EXPECT_EQ(CheckpointReader::open(path).tokenizer(), path);
  const auto tokenizer_refusal = [&](const std::string& name) {
    return refusal(name, [&] { CheckpointReader::open(path).tokenizer(); });
  };
  std::ofstream(path + "/tokenizer_config.json") << "{}";
  EXPECT_EQ(tokenizer_refusal("tokenizer_config.json"),
            "a file that the manifest doesn't list would change the tokenizer");
  fs::remove(path + "/tokenizer_config.json");
  std::ofstream(path + "/tokenizer.json") << "{\"a\": 2}";
  EXPECT_EQ(tokenizer_refusal("tokenizer.json"),
            "a file of the checkpoint is damaged: its checksum is another");
}

TEST_F(CheckpointTest, RejectsIndexOutsideFolder) {
  const std::string path = folder_.path("theirs");
  fs::create_directory(path);
  std::ofstream(path + "/config.json") << "{}";
  std::ofstream(path + "/model.safetensors.index.json")
      << R"({"weight_map": {"x": "../model.safetensors"}})";
  EXPECT_EQ(open_refusal(path, "index.json"), "weight_map.x cannot be used");
}

TEST_F(CheckpointTest, RejectsSecondRunInFolder) {
  std::optional<CheckpointLock> first(std::in_place, root_);
  try {
    const CheckpointLock second(root_);
    FAIL() << "two runs save to one folder";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, root_);
    EXPECT_NE(error.text().got.find("process " + std::to_string(::getpid())), std::string::npos)
        << error.text().got;
    EXPECT_NE(error.text().got.find("host "), std::string::npos);
    EXPECT_NE(error.text().got.find(" UTC"), std::string::npos);
  }
  first.reset();
  EXPECT_NO_THROW(CheckpointLock{root_});
}

TEST_F(CheckpointTest, ReleasesLockOfKilledProcess) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t holder = ::fork();
  ASSERT_GE(holder, 0);
  if (holder == 0) {
    const CheckpointLock lock(root_);
    ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THROW(CheckpointLock{root_}, UserError);
  ::kill(holder, SIGKILL);
  ASSERT_EQ(::waitpid(holder, nullptr, 0), holder);
  EXPECT_NO_THROW(CheckpointLock{root_});
}

TEST_F(CheckpointTest, ReportsWriteErrors) {
  std::ofstream(folder_.path("file")) << "no folder";
  const CheckpointWriter writer(folder_.path("file"), 1, {});
  EXPECT_THROW(writer.prepare(), UserError);
  EXPECT_THROW(CheckpointWriter(root_, 1, {}).write_model(0, weights(0, 1)), UserError);
}

// A process that saves repeatedly, replacing and pruning checkpoints, is killed at random moments.
TEST_F(CheckpointTest, SurvivesKilledSaverAtAnyMoment) {
  save(1, 2);
  std::mt19937 random(5);
  for (int kill = 0; kill < 40; ++kill) {
    const pid_t saver = ::fork();
    ASSERT_GE(saver, 0);
    if (saver == 0) save_for_ever();
    ::usleep(std::uniform_int_distribution<int>(0, 30'000)(random));
    ::kill(saver, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(saver, &status, 0), saver);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the saver was not killed";

    ASSERT_FALSE(list_checkpoints(root_).empty());
    for (const std::string& path : list_checkpoints(root_)) {
      const CheckpointReader reader = CheckpointReader::open(path);
      const double step = static_cast<double>(reader.manifest().step);
      for (const std::string shard : {"0", "1"}) {
        EXPECT_TRUE(at::equal(reader.tensor("block" + shard + ".weight"), at::full({64, 3}, step)));
        EXPECT_TRUE(at::equal(reader.tensor("block" + shard + ".weight.exp_avg"),
                              at::full({64, 3}, -step)));
      }
    }
  }
}

}  // namespace
}  // namespace strata
