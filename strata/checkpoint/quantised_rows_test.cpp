// The values of a weight in 8 or 4 bits may not depend on how ranks divide it or on how it is read.
#include "strata/checkpoint/quantised_rows.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "strata/device/device.h"
#include "strata/models/quantised_model.h"
#include "strata/nn/primitives/quantised_weight.h"

namespace strata {
namespace {

constexpr std::int64_t kRows = 12, kColumns = 50;
const std::string kMatrix = "block1.mlp.up.weight";

at::Tensor whole_weight() {
  // Scales differ from row to row, and each row's largest element lies elsewhere.
  const at::Tensor weight = at::randn({kRows, kColumns}, host_options(at::kFloat));
  for (std::int64_t row = 0; row < kRows; ++row)
    weight[row][row * 7 % kColumns] = static_cast<float>(row + 4);
  return weight;
}

using kernels::QuantisedType;
constexpr QuantisedType kQuantisedTypes[] = {QuantisedType::kInt8, QuantisedType::kInt4};

at::Tensor rounded_by_formula(QuantisedType type, const at::Tensor& weight) {
  const at::Tensor values = weight.clone();
  kernels::QuantisedRow rounded(type, weight.size(1));
  float* at = values.data_ptr<float>();
  for (std::int64_t row = 0; row < weight.size(0); ++row, at += weight.size(1)) {
    rounded.round(at);
    for (std::int64_t i = 0; i < weight.size(1); ++i) at[i] = rounded.value(i);
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

TEST(QuantisedRowReader, RoundsByTheScalesOfWholeRows) {
  const at::Tensor weight = whole_weight();
  for (const QuantisedType type : kQuantisedTypes) {
    const at::Tensor expected = rounded_by_formula(type, weight).view({-1});
    ASSERT_FALSE(expected.equal(weight.view({-1})));
    for (const std::vector<strata::Run>& runs : divisions()) {
      std::int64_t numel = 0;
      for (const strata::Run& run : runs) numel = std::max(numel, run.local + run.numel);
      const at::Tensor local = at::full({numel}, 77, host_options(at::kFloat));
      read_rounded(type,
                   {{.name = kMatrix, .shape = {kRows, kColumns}, .local = local, .runs = runs}},
                   reads(weight));
      for (const strata::Run& run : runs)
        EXPECT_TRUE(
            local.narrow(0, run.local, run.numel).equal(expected.narrow(0, run.global, run.numel)))
            << run.global << " + " << run.numel;
    }
  }
}

TEST(QuantisedRowReader, ReadsOnlyRowsOfThePart) {
  std::int64_t elements = 0;
  read_quantised_rows(
      QuantisedType::kInt8,
      {.name = kMatrix, .shape = {kRows, kColumns}, .runs = {{0, 123, 2}, {2, 297, 5}}},
      reads(whole_weight(), &elements), [](const QuantisedPiece&) {});
  EXPECT_EQ(elements, 3 * kColumns);  // rows 2, 5 and 6
}

// More rows than a block holds.
TEST(QuantisedRowReader, ReadsLargeWeightsInBlocks) {
  const std::int64_t rows = 700, columns = 3001;
  const at::Tensor weight = at::randn({rows, columns}, host_options(at::kFloat));
  const at::Tensor local = at::zeros({rows * columns}, host_options(at::kFloat));
  int blocks = 0;
  read_rounded(QuantisedType::kInt8,
               {{.name = kMatrix,
                 .shape = {rows, columns},
                 .local = local,
                 .runs = {{0, 0, rows * columns}}}},
               [&](const std::vector<NamedState>& states) {
                 ++blocks;
                 EXPECT_LE(states[0].local.numel(), std::int64_t{1} << 20);
                 reads(weight)(states);
               });
  EXPECT_EQ(blocks, 3);
  EXPECT_TRUE(local.equal(rounded_by_formula(QuantisedType::kInt8, weight).view({-1})));
}

TEST(QuantisedRowReader, LeavesOtherWeightsAlone) {
  const at::Tensor weight = whole_weight().view({-1});
  for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<std::int64_t>>>{
           {"embed.tokens.weight", {kRows, kColumns}},
           {"head.weight", {kRows, kColumns}},
           {"block0.norm1.weight", {kRows * kColumns}}}) {
    const at::Tensor local = at::zeros({kRows * kColumns}, host_options(at::kFloat));
    read_rounded(
        QuantisedType::kInt8,
        {{.name = name, .shape = shape, .local = local, .runs = {{0, 0, kRows * kColumns}}}},
        reads(weight));
    EXPECT_TRUE(local.equal(weight)) << name;
  }
}

// The weights that servers keep in fewer bits are those that evaluation rounds, and no others.
TEST(QuantisedModel, KeepsTheMatricesOfBlocksInFewerBits) {
  for (const WeightType type : {WeightType::kInt8, WeightType::kInt4})
    for (const DecoderKind kind : {DecoderKind::kGpt, DecoderKind::kLlama})
      for (const bool tie : {true, false}) {
        DecoderOptions options{
            .kind = kind, .layers = 2, .width = 64, .heads = 4, .vocab = 50, .context = 32};
        options.tie = tie;
        if (kind == DecoderKind::kLlama) options.mlp_width = 192;
        for (const int ranks : {1, 2}) {
          const Sequential fp32 =
              make_served_model(options, WeightType::kPrecision, {.ranks = ranks});
          const Sequential small = make_served_model(options, type, {.ranks = ranks});
          int quantised = 0;
          for (int layer = 0; layer < small.num_layers(); ++layer)
            for (std::size_t i = 0; i < small.layout(layer).specs.size(); ++i) {
              const WeightSpec& spec = fp32.layout(layer).specs[i];
              const WeightPlacement& place = fp32.layout(layer).placements[i];
              EXPECT_FALSE(quantised_source(fp32.layer(layer), i));
              const QuantisedSource source = quantised_source(small.layer(layer), i);
              EXPECT_EQ(static_cast<bool>(source),
                        keeps_fewer_bits(small.name(layer) + "." + spec.name, spec.shape))
                  << spec.name;
              const std::int64_t words = small.layout(layer).placements[i].numel;
              if (!source) {
                EXPECT_EQ(words, place.numel) << spec.name;
                continue;
              }
              ++quantised;
              EXPECT_EQ(source.spec->shape, spec.shape);
              EXPECT_EQ(source.type, rounding_of(type));
              const std::int64_t scales =
                  type == WeightType::kInt8 ? place.shape[0] * 4 : place.numel / 32 * 4;
              EXPECT_EQ(words * 4, place.numel / (type == WeightType::kInt8 ? 1 : 2) + scales);
            }
          EXPECT_EQ(quantised, 2 * 4);
        }
      }
}

}  // namespace
}  // namespace strata
