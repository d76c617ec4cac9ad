// The values of a weight in 8 bits may not depend on how ranks divide it or on how it is read.
#include "strata/checkpoint/int8_rows.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "strata/device/device.h"
#include "strata/models/int8_model.h"
#include "strata/nn/kernels/int8_columns.h"

namespace strata {
namespace {

constexpr std::int64_t kRows = 12, kColumns = 10;
const std::string kMatrix = "block1.mlp.up.weight";

at::Tensor whole_weight() {
  // Scales differ from row to row, and each row's largest element lies elsewhere.
  const at::Tensor weight = at::randn({kRows, kColumns}, host_options(at::kFloat));
  for (std::int64_t row = 0; row < kRows; ++row)
    weight[row][row * 7 % kColumns] = static_cast<float>(row + 4);
  return weight;
}

at::Tensor rounded_by_formula(const at::Tensor& weight) {
  const at::Tensor values = weight.clone();
  std::vector<std::int8_t> q(static_cast<std::size_t>(weight.size(1)));
  float* at = values.data_ptr<float>();
  for (std::int64_t row = 0; row < weight.size(0); ++row, at += weight.size(1)) {
    const float scale = kernels::quantise_row(at, weight.size(1), q.data());
    for (std::int64_t i = 0; i < weight.size(1); ++i) at[i] = scale * static_cast<float>(q[i]);
  }
  return values;
}

ReadStates reads(const at::Tensor& weight, std::int64_t* elements = nullptr) {
  return [=](const std::vector<NamedState>& states) {
    for (const NamedState& state : states)
      for (const Run& run : state.runs) {
        if (elements) *elements += run.numel;
        state.local.narrow(0, run.local, run.numel)
            .copy_(weight.view({-1}).narrow(0, run.global, run.numel));
      }
  };
}

// Row by row, then its columns: a part of a tensor-parallel rank, or an arbitrary range.
std::vector<std::vector<Run>> divisions() {
  std::vector<std::vector<Run>> all = {{{0, 0, kRows * kColumns}}, {{0, 13, 41}}, {}};
  for (const int axis : {0, 1})
    for (int rank = 0; rank < 2; ++rank)
      all.push_back(slice_runs({.name = "w",
                                .shape = {kRows, kColumns},
                                .split = {.axis = axis, .sections = {}, .unit = 1}},
                               rank, 2));
  all.push_back(slice_runs(
      {.name = "w", .shape = {kRows, kColumns}, .split = {.axis = 0, .sections = {4, 8}}}, 1, 2));
  return all;
}

TEST(Int8RowReader, RoundsByTheScalesOfWholeRows) {
  const at::Tensor weight = whole_weight(), expected = rounded_by_formula(weight).view({-1});
  ASSERT_FALSE(expected.equal(weight.view({-1})));
  for (const std::vector<strata::Run>& runs : divisions()) {
    std::int64_t numel = 0;
    for (const strata::Run& run : runs) numel = std::max(numel, run.local + run.numel);
    const at::Tensor local = at::full({numel}, 77, host_options(at::kFloat));
    read_rounded_to_int8(
        {{.name = kMatrix, .shape = {kRows, kColumns}, .local = local, .runs = runs}},
        reads(weight));
    for (const strata::Run& run : runs)
      EXPECT_TRUE(
          local.narrow(0, run.local, run.numel).equal(expected.narrow(0, run.global, run.numel)))
          << run.global << " + " << run.numel;
  }
}

TEST(Int8RowReader, ReadsOnlyRowsOfThePart) {
  std::int64_t elements = 0;
  read_int8_rows({.name = kMatrix, .shape = {kRows, kColumns}, .runs = {{0, 23, 2}, {2, 57, 5}}},
                 reads(whole_weight(), &elements), [](const Int8Piece&) {});
  EXPECT_EQ(elements, 3 * kColumns);  // rows 2, 5 and 6
}

// More rows than a block holds.
TEST(Int8RowReader, ReadsLargeWeightsInBlocks) {
  const std::int64_t rows = 700, columns = 3001;
  const at::Tensor weight = at::randn({rows, columns}, host_options(at::kFloat));
  const at::Tensor local = at::zeros({rows * columns}, host_options(at::kFloat));
  int blocks = 0;
  read_rounded_to_int8({{.name = kMatrix,
                         .shape = {rows, columns},
                         .local = local,
                         .runs = {{0, 0, rows * columns}}}},
                       [&](const std::vector<NamedState>& states) {
                         ++blocks;
                         EXPECT_LE(states[0].local.numel(), std::int64_t{1} << 20);
                         reads(weight)(states);
                       });
  EXPECT_EQ(blocks, 3);
  EXPECT_TRUE(local.equal(rounded_by_formula(weight).view({-1})));
}

TEST(Int8RowReader, LeavesOtherWeightsAlone) {
  const at::Tensor weight = whole_weight().view({-1});
  for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<std::int64_t>>>{
           {"embed.tokens.weight", {kRows, kColumns}},
           {"head.weight", {kRows, kColumns}},
           {"block0.norm1.weight", {kRows * kColumns}}}) {
    const at::Tensor local = at::zeros({kRows * kColumns}, host_options(at::kFloat));
    read_rounded_to_int8(
        {{.name = name, .shape = shape, .local = local, .runs = {{0, 0, kRows * kColumns}}}},
        reads(weight));
    EXPECT_TRUE(local.equal(weight)) << name;
  }
}

// The weights that servers keep in 8 bits are those that evaluation rounds, and no others.
TEST(Int8Model, KeepsTheMatricesOfBlocksInInt8) {
  for (const DecoderKind kind : {DecoderKind::kGpt, DecoderKind::kLlama})
    for (const bool tie : {true, false}) {
      DecoderOptions options{
          .kind = kind, .layers = 2, .width = 64, .heads = 4, .vocab = 50, .context = 32};
      options.tie = tie;
      for (const int ranks : {1, 2}) {
        const Sequential fp32 =
            make_served_model(options, WeightType::kPrecision, {.ranks = ranks});
        const Sequential int8 = make_served_model(options, WeightType::kInt8, {.ranks = ranks});
        int in_int8 = 0;
        for (int layer = 0; layer < int8.num_layers(); ++layer)
          for (std::size_t i = 0; i < int8.layout(layer).specs.size(); ++i) {
            const WeightSpec& spec = fp32.layout(layer).specs[i];
            const std::int64_t numel = fp32.layout(layer).placements[i].numel;
            EXPECT_EQ(int8_source(fp32.layer(layer), i), nullptr);
            const WeightSpec* source = int8_source(int8.layer(layer), i);
            EXPECT_EQ(source != nullptr, is_in_int8(int8.name(layer) + "." + spec.name, spec.shape))
                << spec.name;
            const std::int64_t words = int8.layout(layer).placements[i].numel;
            if (!source) {
              EXPECT_EQ(words, numel) << spec.name;
              continue;
            }
            ++in_int8;
            EXPECT_EQ(source->shape, spec.shape);
            const std::int64_t rows = fp32.layout(layer).placements[i].shape[0];
            EXPECT_EQ(words * 4, numel + 4 * rows) << spec.name;
          }
        EXPECT_EQ(in_int8, 2 * 4);
      }
    }
}

}  // namespace
}  // namespace strata
