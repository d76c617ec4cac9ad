#include "strata/checkpoint/file_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/safetensors.h"

namespace strata {
namespace {

constexpr std::int64_t kColumns = 37;
constexpr float kUntouched = -7;

// A weight of three parts with unequal numbers of rows.
std::vector<FileTensor> parts_of(bool transposed) {
  std::vector<FileTensor> parts;
  std::int64_t row = 0;
  for (const auto& [name, rows] :
       std::vector<std::pair<std::string, std::int64_t>>{{"q", 40}, {"k", 1}, {"v", 23}}) {
    parts.push_back({name, transposed ? std::vector{kColumns, rows} : std::vector{rows, kColumns},
                     row, rows, kColumns, transposed});
    row += rows;
  }
  return parts;
}

// Pieces of the whole of random size, with gaps in both.
std::vector<Run> random_runs(std::mt19937& random, std::int64_t numel) {
  std::vector<Run> runs;
  std::int64_t local = 0, global = 0;
  std::uniform_int_distribution<std::int64_t> length(1, 200), gap(0, 60);
  while (true) {
    local += gap(random);
    global += gap(random);
    const std::int64_t count = std::min(length(random), numel - global);
    if (count <= 0) return runs;
    runs.push_back({local, global, count});
    local += count;
    global += count;
  }
}

class FileTensorsTest : public ::testing::Test {
 protected:
  // Writes the whole tensor in parts and reads random runs of it.
  void round_trip(at::ScalarType file_dtype, at::ScalarType local_dtype, bool transposed) {
    const std::vector<FileTensor> parts = parts_of(transposed);
    const at::Tensor whole = at::randint(-99, 99, {64, kColumns}).to(file_dtype);
    std::vector<NamedTensor> written;
    for (const FileTensor& part : parts) written.push_back({part.name, part_of(whole, part)});
    write_safetensors(path_, written);
    const SafetensorsFile file = SafetensorsFile::open(path_);
    const at::Tensor flat = whole.to(local_dtype).flatten();
    std::mt19937 random(3);
    for (int i = 0; i < 20; ++i) {
      NamedState state{.name = "qkv", .shape = {64, kColumns}, .local = {}, .runs = {}};
      state.runs = random_runs(random, whole.numel());
      state.local = at::full({5 * whole.numel()}, kUntouched, local_dtype);
      at::Tensor expected = state.local.clone();
      for (const strata::Run& run : state.runs)
        expected.narrow(0, run.local, run.numel).copy_(flat.narrow(0, run.global, run.numel));
      for (const FileTensor& part : parts) copy_runs(file, part, state);
      EXPECT_TRUE(at::equal(state.local, expected));
    }
  }

  ScratchFolder folder_;
  std::string path_ = folder_.path("a.safetensors");
};

TEST_F(FileTensorsTest, ReadsRunsOfStackedTensors) {
  round_trip(at::kFloat, at::kFloat, false);
  round_trip(at::kLong, at::kLong, false);
  round_trip(at::kShort, at::kShort, false);
}

TEST_F(FileTensorsTest, ReadsRunsOfTransposedTensors) {
  round_trip(at::kFloat, at::kFloat, true);
  round_trip(at::kDouble, at::kDouble, true);
}

TEST_F(FileTensorsTest, WidensSixteenBitFloats) {
  for (const bool transposed : {false, true}) {
    round_trip(at::kBFloat16, at::kFloat, transposed);
    round_trip(at::kHalf, at::kFloat, transposed);
  }
}

// More bytes than one read returns.
TEST_F(FileTensorsTest, ReadsLargeTensorsInBlocks) {
  const at::Tensor whole = at::randn({1500, 700});
  write_safetensors(
      path_, std::vector<NamedTensor>{
                 {"t", whole.t().contiguous()}, {"s", whole}, {"b", whole.to(at::kBFloat16)}});
  const SafetensorsFile file = SafetensorsFile::open(path_);
  NamedState state{.name = "x", .shape = {1500, 700}, .local = {}, .runs = {{0, 0, 1500 * 700}}};
  for (const FileTensor& part : {FileTensor{"t", {700, 1500}, 0, 1500, 700, true},
                                 FileTensor{"s", {1500, 700}, 0, 1500, 700, false},
                                 FileTensor{"b", {1500, 700}, 0, 1500, 700, false}}) {
    state.local = at::zeros({1500 * 700});
    copy_runs(file, part, state);
    const at::Tensor expected = part.name == "b" ? whole.to(at::kBFloat16).to(at::kFloat) : whole;
    EXPECT_TRUE(at::equal(state.local, expected.flatten())) << part.name;
  }
  // Many short runs, as a tensor-parallel rank has them.
  state.local = at::zeros({1500 * 350});
  state.runs.clear();
  for (std::int64_t row = 0; row < 1500; ++row)
    state.runs.push_back({row * 350, row * 700 + 350, 350});
  for (const FileTensor& part : {FileTensor{"t", {700, 1500}, 0, 1500, 700, true},
                                 FileTensor{"s", {1500, 700}, 0, 1500, 700, false}}) {
    state.local.zero_();
    copy_runs(file, part, state);
    EXPECT_TRUE(at::equal(state.local.view({1500, 350}), whole.narrow(1, 350, 350))) << part.name;
  }
}

TEST_F(FileTensorsTest, ReadsScalars) {
  write_safetensors(path_, std::vector<NamedTensor>{{"scale", at::full({}, 65536.0)}});
  const NamedState state{
      .name = "scale", .shape = {}, .local = at::zeros({1}), .runs = {{0, 0, 1}}};
  copy_runs(SafetensorsFile::open(path_), file_tensors({}, state)[0], state);
  EXPECT_EQ(state.local.item<float>(), 65536.0f);
}

TEST_F(FileTensorsTest, RejectsNarrowing) {
  write_safetensors(path_, std::vector<NamedTensor>{{"x", at::ones({4}, at::kDouble)}});
  const NamedState state{.name = "x", .shape = {4}, .local = at::zeros({4}), .runs = {{0, 0, 4}}};
  try {
    copy_runs(SafetensorsFile::open(path_), file_tensors({}, state)[0], state);
    FAIL() << "lost bits";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().what, "'x' has another shape or dtype");
    EXPECT_EQ(error.text().where, path_);
  }
}

}  // namespace
}  // namespace strata
