// The plan of a served model against what its ranks allocate, and against budgets from all weights
// on the device down to none.
#include "strata/serve/serving_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <tuple>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/models/quantised_model.h"
#include "strata/serve/decoder.h"
#include "strata/serve/draft_model.h"
#include "strata/serve/example_weights_test.h"

namespace strata {
namespace {

constexpr std::int64_t kContext = 384, kPageTokens = 16, kPages = 96, kVocabulary = 500;

DecoderOptions model_of(DecoderKind kind) {
  DecoderOptions options{.kind = kind,
                         .layers = 6,
                         .width = 128,
                         .heads = 8,
                         .vocab = kVocabulary,
                         .context = kContext};
  if (kind == DecoderKind::kLlama) {
    options.kv_heads = 4;
    options.mlp_width = 256;
    options.qk_norm = true;
  }
  return options;
}

struct Case {
  DecoderKind kind = DecoderKind::kGpt;
  at::ScalarType precision = at::kFloat;
  Mesh mesh = {};
  std::int64_t pass_tokens = 128;
  std::int64_t pass_logits = 64;
  WeightType weights = WeightType::kPrecision;
};

Sequential network(const Case& c) {
  if (c.weights != WeightType::kPrecision)
    return make_served_model(model_of(c.kind), c.weights, {.ranks = c.mesh[Axis::kTensor]});
  return make_model(model_of(c.kind), DecoderOutput::kLogits, {.ranks = c.mesh[Axis::kTensor]},
                    c.precision);
}

ServingRequest request_of(const Case& c, const Sequential& model,
                          const MemoryOptions& memory = {}) {
  return {.model = model,
          .mesh = c.mesh,
          .room = {.page_tokens = kPageTokens, .pages = kPages},
          .context = kContext,
          .pass_tokens = c.pass_tokens,
          .pass_logits = c.pass_logits,
          .memory = memory,
          .smaller = {.device = "pass a smaller --cache"}};
}

// A pass of most tokens: a part of a prompt that ends at the longest context, then single tokens
// of long texts. The texts share pages, as only sizes matter.
Pass largest_pass(const Case& c, bool prompt) {
  std::vector<std::int32_t> pages;
  for (std::int32_t page = 0; page < kContext / kPageTokens; ++page) pages.push_back(page);
  const std::int64_t length = prompt ? std::min(c.pass_tokens, kContext) : 0;
  const std::int64_t singles = std::min(c.pass_tokens - length, c.pass_logits);
  Pass pass;
  std::int64_t logits = c.pass_logits - singles;
  if (length > 0)
    pass.push_back({.tokens = std::vector<std::int64_t>(static_cast<std::size_t>(length), 7),
                    .position = kContext - length,
                    .pages = pages,
                    .logits = std::min(logits, length)});
  for (std::int64_t i = 0; i < singles; ++i)
    pass.push_back(
        {.tokens = {i % kVocabulary}, .position = kContext - 1, .pages = pages, .logits = 1});
  return pass;
}

// The peak of each rank's device; `budget` 0: none.
std::vector<std::int64_t> measured_peaks(const Case& c, const Sequential& model,
                                         const ServingPlan& plan, const std::string& disk,
                                         std::int64_t budget = 0) {
  std::vector<std::int64_t> peaks(static_cast<std::size_t>(c.mesh.size()));
  run_thread_ranks(
      {.ranks = c.mesh.size(), .device_bytes = budget}, [&](Group& world, MemoryAccount& account) {
        Decoder decoder(model, plan.steps, {.page_tokens = kPageTokens, .pages = kPages}, world,
                        {.disk = disk});
        fill_with_examples(decoder);
        for (const bool prompt : {true, false, true}) decoder.forward(largest_pass(c, prompt));
        peaks[world.rank()] = account.peak_bytes();
      });
  return peaks;
}

// The type of the values, and that of the blocks' matrices if it is another one.
struct Types {
  at::ScalarType precision = at::kFloat;
  WeightType weights = WeightType::kPrecision;
};

class ServingPlanTest : public testing::TestWithParam<std::tuple<DecoderKind, Types, Mesh>> {};

TEST_P(ServingPlanTest, PredictsThePeakOfEachRank) {
  for (const std::int64_t pass_tokens : {16, 128, 500}) {
    const Case c{.kind = std::get<0>(GetParam()),
                 .precision = std::get<1>(GetParam()).precision,
                 .mesh = std::get<2>(GetParam()),
                 .pass_tokens = pass_tokens,
                 .pass_logits = std::min<std::int64_t>(pass_tokens, 64),
                 .weights = std::get<1>(GetParam()).weights};
    const Sequential model = network(c);
    for (const TierChoice weights : {TierChoice::kAuto, TierChoice::kHost}) {
      SCOPED_TRACE(testing::Message() << pass_tokens << " tokens, weights " << name_of(weights));
      const ServingPlan plan = plan_serving(request_of(c, model, {.weights = weights}));
      EXPECT_EQ(plan.layers_away > 0, weights == TierChoice::kHost);
      const std::vector<std::int64_t> peaks = measured_peaks(c, model, plan, "");
      const int tp = c.mesh[Axis::kTensor];
      for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
        const std::int64_t planned = plan.ledger[rank / tp].peak_bytes;
        EXPECT_LE(peaks[rank], planned) << "rank " << rank;
        EXPECT_GE(static_cast<double>(peaks[rank]), 0.55 * static_cast<double>(planned))
            << "rank " << rank << ": " << peaks[rank] << " of " << planned;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, ServingPlanTest,
    testing::Combine(testing::Values(DecoderKind::kGpt, DecoderKind::kLlama),
                     testing::Values(Types{}, Types{at::kBFloat16},
                                     Types{at::kFloat, WeightType::kInt8},
                                     Types{at::kFloat, WeightType::kInt4}),
                     testing::Values(Mesh{}, Mesh{{Axis::kTensor, 2}}, Mesh{{Axis::kPipeline, 2}},
                                     Mesh{{Axis::kPipeline, 2}, {Axis::kTensor, 2}})));

// With a large vocabulary the peak is at the logits.
TEST(ServingPlanBudgets, CountsTheLogitsOfAPass) {
  const Case c{.kind = DecoderKind::kGpt, .pass_tokens = 64, .pass_logits = 64};
  DecoderOptions options = model_of(c.kind);
  options.vocab = 20000;
  options.width = 32;
  options.heads = 2;
  const Sequential model = make_model(options, DecoderOutput::kLogits);
  const ServingPlan plan = plan_serving(request_of(c, model));
  EXPECT_LE(measured_peaks(c, model, plan, "")[0], peak_bytes(plan.ledger));
}

// Every budget between the least and the whole model: the plan fits it, and so do the ranks.
TEST(ServingPlanBudgets, FewerBytesMoveMoreLayersOffTheDevice) {
  const Case c{.kind = DecoderKind::kLlama};
  const Sequential model = network(c);
  const std::int64_t all = peak_bytes(plan_serving(request_of(c, model)).ledger);
  const std::int64_t least =
      peak_bytes(plan_serving(request_of(c, model, {.weights = TierChoice::kHost})).ledger);
  ASSERT_LT(least, all);
  int before = 0;
  for (int part = 0; part <= 8; ++part) {
    const std::int64_t budget = all - (all - least) * part / 8;
    const ServingPlan plan = plan_serving(request_of(c, model, {.device = {budget}}));
    EXPECT_LE(peak_bytes(plan.ledger), budget);
    EXPECT_GE(plan.layers_away, before);
    before = plan.layers_away;
    EXPECT_LE(measured_peaks(c, model, plan, "", budget)[0], budget);
  }
  EXPECT_EQ(before, model.num_layers());
}

// Budgets, copies and files count the bytes that the layout of the model has.
TEST(ServingPlanBudgets, WeightsInFewerBitsNeedAsManyBytes) {
  Case c{.kind = DecoderKind::kLlama};
  const Sequential fp32 = network(c);
  for (const auto& [type, bits_of_32_terms] :
       {std::pair(WeightType::kInt8, 8 * 32), std::pair(WeightType::kInt4, 4 * 32 + 2 * 16)}) {
    SCOPED_TRACE(name_of(type));
    c.weights = type;
    const std::int64_t row_bytes = type == WeightType::kInt8 ? 4 : 0;  // of the scale of a row
    const Sequential small = network(c);
    const auto host = [&](const Sequential& model) {
      return plan_serving(request_of(c, model, {.weights = TierChoice::kHost}));
    };
    const ServingPlan wide = host(fp32), narrow = host(small);
    std::int64_t saved = 0;
    for (int layer = 0; layer < small.num_layers(); ++layer)
      for (std::size_t i = 0; i < small.layout(layer).specs.size(); ++i)
        if (const QuantisedSource source = quantised_source(small.layer(layer), i)) {
          const std::int64_t out = source.spec->shape[0], in = source.spec->shape[1];
          saved += out * (4 * in - in / 32 * bits_of_32_terms / 8 - row_bytes);
        }
    EXPECT_GT(saved, 0);
    EXPECT_EQ(host_bytes(wide.ledger) - host_bytes(narrow.ledger), saved);
    EXPECT_EQ(wide.traffic[0].to_device - narrow.traffic[0].to_device, saved);
    const std::int64_t all = peak_bytes(plan_serving(request_of(c, small)).ledger);
    const std::int64_t least =
        peak_bytes(plan_serving(request_of(c, small, {.weights = TierChoice::kHost})).ledger);
    for (const std::int64_t budget : {all, (all + least) / 2, least})
      EXPECT_LE(measured_peaks(c, small, plan_serving(request_of(c, small, {.device = {budget}})),
                               "", budget)[0],
                budget);
  }
}

// With more rows than the kernels for few rows take, and wide matrices, the peak is at the values
// of a matrix.
TEST(ServingPlanBudgets, CountsTheValuesOfAMatrixInInt8) {
  const Case c{.pass_tokens = 66, .pass_logits = 1};
  DecoderOptions options = model_of(DecoderKind::kLlama);
  options.layers = 1;
  options.width = 256;
  options.mlp_width = 2048;
  options.vocab = 50;
  const Sequential model = make_served_model(options, WeightType::kInt8);
  const ServingPlan plan = plan_serving(request_of(c, model));
  const std::int64_t peak = measured_peaks(c, model, plan, "")[0];
  EXPECT_LE(peak, peak_bytes(plan.ledger));
  EXPECT_GE(static_cast<double>(peak), 0.7 * static_cast<double>(peak_bytes(plan.ledger)));
}

// The least budget for the served model and a draft model with half of its layers holds both.
TEST(ServingPlanBudgets, CountsADraftModel) {
  const Case c{.kind = DecoderKind::kLlama, .pass_tokens = 64, .pass_logits = 16};
  const Sequential model = network(c);
  DecoderOptions options = model_of(c.kind);
  options.layers /= 2;
  const Sequential small = make_model(options, DecoderOutput::kLogits);
  ServingRequest request = request_of(c, model);
  const std::int64_t alone = peak_bytes(plan_serving(request).ledger);
  request.draft_bytes = draft_bytes(small, request, request.pass_logits);
  const ServingPlan plan = plan_serving(request);
  const std::int64_t budget = peak_bytes(plan.ledger);
  EXPECT_EQ(budget, alone + request.draft_bytes);
  std::int64_t peak = 0;
  run_thread_ranks({.device_bytes = budget}, [&](Group& world, MemoryAccount& account) {
    Decoder decoder(model, plan.steps, request.room, world);
    fill_with_examples(decoder);
    DraftModel draft(small, request.room, world);
    fill_with_examples(draft.decoder());
    for (const bool prompt : {true, false, true}) {
      Batch batch{.pass = largest_pass(c, prompt)};
      for (const PassTokens& row : batch.pass)
        batch.rows.push_back(
            {.chooses = true, .guesses = std::min<std::int64_t>(2, std::ssize(row.tokens) - 1)});
      draft.guess(batch, [](auto, auto, auto) { return 1; });
      decoder.forward(batch.pass);
    }
    peak = account.peak_bytes();
  });
  EXPECT_LE(peak, budget);
  EXPECT_GE(static_cast<double>(peak), 0.55 * static_cast<double>(budget));
}

TEST(ServingPlanBudgets, LayersAwayAreSpreadOverAStage) {
  const Case c{.kind = DecoderKind::kLlama};
  const Sequential model = network(c);
  const std::int64_t all = peak_bytes(plan_serving(request_of(c, model)).ledger);
  const std::int64_t block = model.layout(1).own_numel * 4;
  // Two blocks pass through two slots: three blocks must go before one is free.
  const ServingPlan plan = plan_serving(request_of(c, model, {.device = {all - block}}));
  std::vector<int> away;
  for (int layer = 0; layer < model.num_layers(); ++layer)
    if (plan.steps.decisions().tiers[layer].fetches_weights()) away.push_back(layer);
  EXPECT_EQ(away, (std::vector<int>{2, 4, 6}));
  EXPECT_EQ(plan.traffic[0].to_device, 3 * block);
  EXPECT_NE(tiers_sentence(plan).find("weights of 3 of 8 layers off the device (3 on the host)"),
            std::string::npos)
      << tiers_sentence(plan);
}

TEST(ServingPlanBudgets, WhatTheHostCannotHoldGoesToTheDisk) {
  const Case c{.kind = DecoderKind::kGpt};
  const Sequential model = network(c);
  const DiskScratch folder;
  MemoryOptions memory{.weights = TierChoice::kAuto, .disk = {.path = folder.path("disk")}};
  memory.device = {
      peak_bytes(plan_serving(request_of(c, model, {.weights = TierChoice::kHost})).ledger)};
  const std::int64_t on_host = host_bytes(plan_serving(request_of(c, model, memory)).ledger);
  memory.host = {on_host - 1};
  const ServingPlan plan = plan_serving(request_of(c, model, memory));
  EXPECT_GT(plan.layers_on_disk, 0);
  EXPECT_LE(host_bytes(plan.ledger), memory.host.count);
  EXPECT_LE(measured_peaks(c, model, plan, folder.path("disk"))[0], memory.device.count);
}

TEST(ServingPlanBudgets, RefusesModelThatFitsNowhereAndNamesLeastBudget) {
  const Case c{.kind = DecoderKind::kGpt};
  const Sequential model = network(c);
  const auto refusal = [&](const MemoryOptions& memory) {
    try {
      plan_serving(request_of(c, model, memory));
    } catch (const UserError& error) {
      return error.text();
    }
    return ErrorText{};
  };
  const std::int64_t least =
      peak_bytes(plan_serving(request_of(c, model, {.weights = TierChoice::kHost})).ledger);
  const ErrorText device = refusal({.device = {least - 1}});
  EXPECT_EQ(device.where, "memory.device");
  EXPECT_NE(device.fix.find("memory.device=" + std::to_string(least)), std::string::npos)
      << device.fix;
  EXPECT_EQ(plan_serving(request_of(c, model, {.device = {least}})).layers_away,
            model.num_layers());
  EXPECT_NE(
      refusal({.device = {least}, .weights = TierChoice::kDevice}).fix.find("memory.weights=auto"),
      std::string::npos);
  EXPECT_EQ(refusal({.host = {1000}, .weights = TierChoice::kHost}).where, "memory.host");
}

}  // namespace
}  // namespace strata
