#include "strata/task/graph/graph_data.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"

namespace strata {
namespace {

class GraphDataTest : public testing::Test {
 protected:
  // Bytes as an IDX file.
  std::string bytes(const std::string& name, const std::vector<int>& shape,
                    const std::vector<int>& numbers) {
    std::string text{'\0', '\0', 8, static_cast<char>(shape.size())};
    for (const int size : shape) text += std::string{0, 0, 0, static_cast<char>(size)};
    for (const int number : numbers) text += static_cast<char>(number);
    std::ofstream(folder_.path(name), std::ios::binary) << text;
    return folder_.path(name);
  }

  // One-dimensional .npy of fp32.
  std::string reals(const std::string& name, const std::vector<float>& numbers) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                         std::to_string(numbers.size()) + ",), }\n";
    std::string text = "\x93NUMPY" + std::string{1, 0, static_cast<char>(header.size()), 0};
    text += header;
    text.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
    std::ofstream(folder_.path(name), std::ios::binary) << text;
    return folder_.path(name);
  }

  // Ten images of 2 x 2, number i has the bytes 4 i to 4 i + 3; class i % 3.
  GraphDataFields images() {
    std::vector<int> pixels, classes;
    for (int i = 0; i < 40; ++i) pixels.push_back(i);
    for (int i = 0; i < 10; ++i) classes.push_back(i % 3);
    return {.inputs = {bytes("x", {10, 2, 2}, pixels)}, .targets = bytes("y", {10}, classes)};
  }

  std::string refusal(const GraphDataFields& fields, const GraphSamples& samples = kImages) {
    try {
      GraphData(fields, samples, kTrain).at(0);
    } catch (const UserError& error) {
      return error.text().what;
    }
    return "accepted";
  }

  static inline const GraphSamples kImages = {.specs = {{{1, 1, 2, 2}}, {{1}, at::kLong}},
                                              .loss = ExportedLoss::kCrossEntropy,
                                              .classes = 3};
  static inline const TrainOptions kTrain{.mini_batch = 3, .validation_samples = 0};
  ScratchFolder folder_;
};

TEST_F(GraphDataTest, ImagesTakeTheShapeOfTheModelAndAreScaled) {
  GraphDataFields fields = images();
  fields.validation_fraction = 0;
  fields.shuffle = false;
  fields.scale = 0.5;
  fields.shift = -1;
  const GraphData data(fields, kImages, kTrain);
  const MiniBatch batch = data.at(9);  // the last sample and, of the next epoch, two
  ASSERT_EQ(batch.inputs[0].sizes(), (std::vector<std::int64_t>{3, 1, 2, 2}));
  EXPECT_TRUE(at::equal(
      batch.inputs[0].flatten(),
      at::tensor({17.0F, 17.5F, 18.0F, 18.5F, -1.0F, -0.5F, 0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 2.5F})));
  EXPECT_TRUE(at::equal(batch.inputs[1], at::tensor({0, 0, 1}, at::kLong)));
  EXPECT_EQ(batch.valid_tokens, 3);
  EXPECT_FALSE(data.evaluates());
  EXPECT_EQ(data.unit(), "sample");
  EXPECT_TRUE(data.is_read_ahead());
}

TEST_F(GraphDataTest, TheLastSamplesValidateAndNoOther) {
  GraphDataFields fields = images();
  fields.validation_fraction = 0.4;
  const GraphData data(fields, kImages, kTrain);
  std::set<float> trained;
  for (const std::int64_t seen : {0, 3}) {
    const MiniBatch batch = data.at(seen);
    for (int i = 0; i < 3; ++i) trained.insert(batch.inputs[0][i][0][0][0].item<float>());
  }
  EXPECT_EQ(trained, (std::set<float>{0, 4, 8, 12, 16, 20})) << "an epoch is every sample once";
  const std::vector<MiniBatch> validation = data.validation();
  ASSERT_EQ(validation.size(), 2u);
  EXPECT_EQ(validation[0].samples, 3);
  EXPECT_EQ(validation[1].samples, 1);
  EXPECT_EQ(validation[1].inputs[0].flatten()[0].item<float>(), 36);
}

TEST_F(GraphDataTest, UnknownTargetsAreNotCounted) {
  GraphDataFields fields{.inputs = {reals("x", {1, 2, 3})},
                         .targets = reals("y", {1, NAN, 3}),
                         .validation_fraction = 0,
                         .shuffle = false};
  const MiniBatch batch = GraphData(fields, {.specs = {{{1, 1}}, {{1, 1}}}}, kTrain).at(0);
  EXPECT_EQ(batch.valid_tokens, 2);
  EXPECT_TRUE(std::isnan(batch.ignored_target));
}

TEST_F(GraphDataTest, ArraysThatDoNotFitAreRefused) {
  const GraphDataFields good = images();
  EXPECT_EQ(refusal(good), "accepted");
  GraphDataFields fields = good;
  fields.inputs.push_back(fields.inputs[0]);
  EXPECT_EQ(refusal(fields), "the model has another number of inputs");
  fields = good;
  fields.targets = "";
  EXPECT_EQ(refusal(fields), "no targets");
  fields.targets = bytes("short", {9}, std::vector<int>(9));
  EXPECT_EQ(refusal(fields), "the arrays have different numbers of samples");
  fields.targets = bytes("wrong", {10}, {0, 3, 3, 3, 3, 3, 3, 3, 3, 3});
  EXPECT_EQ(refusal(fields), "a target is none of the model's loss");
  fields.targets = reals("real", std::vector<float>(10));
  EXPECT_EQ(refusal(fields), "the array does not fit the model") << "classes are integers";
  EXPECT_EQ(refusal(good, {.specs = {{{1, 3, 3}}, {{1}, at::kLong}}, .classes = 3}),
            "the array does not fit the model");
  const GraphSamples logits{.specs = {{{1, 1}}, {{1, 1}}},
                            .loss = ExportedLoss::kBinaryCrossEntropy};
  fields = {.inputs = {reals("x1", {1, 2, 3})}, .targets = reals("y1", {0, 0.5, 255})};
  fields.validation_fraction = 0;
  EXPECT_EQ(refusal(fields, logits), "a target is none of the model's loss");
  fields.targets = reals("y2", {0, 0.5, NAN});
  EXPECT_EQ(refusal(fields, logits), "accepted");
  fields.scale = 2;
  EXPECT_EQ(refusal(fields, logits), "no array has integers for a real input");
  fields = good;
  fields.validation_inputs = good.inputs;
  EXPECT_EQ(refusal(fields), "no targets");
}

}  // namespace
}  // namespace strata
