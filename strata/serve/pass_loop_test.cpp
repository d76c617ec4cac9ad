// Serves requests of small models on meshes of thread ranks. An answer may not depend on what else
// the server does: it equals, bit for bit, the answer to the same request alone.
#include "strata/serve/pass_loop.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

#include "strata/comm/ranks.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/models/quantised_model.h"
#include "strata/serve/draft_model.h"
#include "strata/serve/example_weights_test.h"
#include "strata/serve/scored_tokens_test.h"

namespace strata {
namespace {

constexpr std::int64_t kWords = 60;

DecoderOptions small_model(DecoderKind kind) {
  DecoderOptions options{
      .kind = kind, .layers = 2, .width = 64, .heads = 4, .vocab = kWords, .context = 96};
  if (kind == DecoderKind::kLlama) {
    options.kv_heads = 2;
    options.mlp_width = 128;
    options.qk_norm = true;
  }
  return options;
}

struct Reply {
  std::vector<ScoredToken> prompt, tokens;
  std::optional<Finish> finish;
};

struct Serving {
  std::vector<Reply> replies;
  ServiceStatus status;
};

struct Setting {
  DecoderKind kind;
  Mesh mesh;
  WeightType weights;
};

// Serves the requests together, and returns when all have ended. With `drafts`, a model of the same
// kind guesses, whose weights have this deviation.
Serving serve(const Setting& setting, const RequestLoopOptions& loop_options,
              const std::vector<SequenceRequest>& requests, double draft_deviation = 0.28) {
  const Mesh& mesh = setting.mesh;
  const Sequential model =
      make_served_model(small_model(setting.kind), setting.weights, {.ranks = mesh[Axis::kTensor]});
  Serving serving{.replies = std::vector<Reply>(requests.size())};
  RequestLoop loop(loop_options);
  std::size_t open = requests.size();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Reply& reply = serving.replies[i];
    loop.submit(requests[i],
                {.on_prompt = [&](std::vector<ScoredToken> scores) { reply.prompt = scores; },
                 .on_token = [&](const ScoredToken& token) { reply.tokens.push_back(token); },
                 .on_finish =
                     [&](const Finish& finish) {
                       reply.finish = finish;
                       if (--open == 0) loop.stop();
                     }});
  }
  const PageRoom room{.page_tokens = loop_options.limits.page_tokens,
                      .pages = loop_options.limits.pages,
                      .host_pages = loop_options.limits.host_pages,
                      .disk_pages = loop_options.limits.disk_pages};
  const DiskScratch disk;
  const std::string folder = disk.path("pages");
  run_thread_ranks({.ranks = mesh.size()}, [&](Group& world, MemoryAccount&) {
    Decoder decoder(model, decoder_steps(model, mesh), room, world, {.disk = folder});
    fill_with_examples(decoder);
    if (!loop_options.drafts || !decoder.decides()) return run_passes(decoder, world, loop);
    const Sequential small = make_served_model(small_model(setting.kind), WeightType::kPrecision);
    DraftModel draft(small, room, world, {.disk = folder + "/draft"});
    fill_with_examples(draft.decoder(), draft_deviation);
    run_passes(decoder, world, loop, {},
               [&](Batch& batch, const ChooseGuess& choose) { draft.guess(batch, choose); });
  });
  serving.status = loop.status();
  return serving;
}

RequestLoopOptions roomy() {
  return {.limits = {.pages = 64,
                     .page_tokens = 8,
                     .context = 96,
                     .sequences = 16,
                     .pass_tokens = 256,
                     .pass_logits = 256,
                     .waiting = 100,
                     .reuse_pages = false},
          .vocabulary = kWords};
}

// Keeps pages of texts on the host and the disk, because the device has few.
RequestLoopOptions with_lower_tiers() {
  RequestLoopOptions options = roomy();
  options.limits.pages = 9;
  options.limits.host_pages = 5;
  options.limits.disk_pages = 60;
  options.limits.reuse_pages = true;
  return options;
}

std::vector<SequenceRequest> mixed_requests() {
  std::vector<SequenceRequest> requests;
  for (std::int64_t i = 0; i < 10; ++i) {
    SequenceRequest request{.max_tokens = i % 4 == 3 ? 0 : 4 + i};
    // Half of the prompts have a common beginning of more than two pages.
    for (std::int64_t t = 0; t < 20 + i * 3; ++t)
      request.prompt.push_back((i % 2 == 0 && t < 18 ? t * 5 : t * t + 7 * i) % kWords);
    request.sampling = {.temperature = i % 3 == 0 ? 0.0 : 0.9,
                        .top_p = 0.95,
                        .frequency_penalty = i % 2 * 0.3,
                        .seed = static_cast<std::uint64_t>(i)};
    request.likeliest = 2;
    request.score_prompt = i % 4 >= 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

class PassLoop : public testing::TestWithParam<std::tuple<DecoderKind, Mesh, WeightType>> {};

TEST_P(PassLoop, AnswersEachRequestAsAlone) {
  const auto [kind, mesh, weights] = GetParam();
  const Setting served{kind, mesh, weights};
  const std::vector<SequenceRequest> requests = mixed_requests();
  std::vector<Reply> alone;
  for (const SequenceRequest& request : requests)
    alone.push_back(serve(served, roomy(), {request}).replies[0]);
  RequestLoopOptions chunked = roomy(), crowded = roomy(), reused = roomy(), guessed = roomy(),
                     drafted = roomy();
  chunked.limits.pass_tokens = chunked.limits.pass_logits = 16;
  crowded.limits.pages = 12;
  reused.limits.reuse_pages = true;
  reused.limits.sequences = 2;
  guessed.guesses = drafted.guesses = 3;
  drafted.drafts = true;
  int setting = 0;
  for (const RequestLoopOptions& loop : {roomy(), chunked, crowded, reused, guessed, drafted}) {
    SCOPED_TRACE("setting " + std::to_string(setting++));
    const Serving together = serve(served, loop, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      expect_equal(together.replies[i].prompt, alone[i].prompt);
      expect_equal(together.replies[i].tokens, alone[i].tokens);
      EXPECT_EQ(together.replies[i].finish->reason, FinishReason::kLength);
    }
    // Each setting does what it is for.
    EXPECT_EQ(together.status.preemptions > 0, loop.limits.pages == 12);
    EXPECT_EQ(together.status.cached_prompt_tokens > 0, loop.limits.reuse_pages);
    EXPECT_EQ(together.status.guessed_tokens > 0, loop.guesses > 0);
    if (loop.drafts) {
      EXPECT_GT(together.status.accepted_guesses, 0);
      EXPECT_LT(together.status.accepted_guesses, together.status.guessed_tokens);
    }
  }
}

// Each request comes twice; its pages have left the device before it comes again.
TEST_P(PassLoop, AnswersFromPagesThatWereOnTheHostOrTheDisk) {
  const auto [kind, mesh, weights] = GetParam();
  const std::vector<SequenceRequest> requests = mixed_requests();
  std::vector<SequenceRequest> twice = requests;
  twice.insert(twice.end(), requests.begin(), requests.end());
  const Serving expected = serve({kind, mesh, weights}, roomy(), requests);
  const Serving served = serve({kind, mesh, weights}, with_lower_tiers(), twice);
  for (std::size_t i = 0; i < twice.size(); ++i) {
    SCOPED_TRACE(i);
    const Reply& alone = expected.replies[i % requests.size()];
    expect_equal(served.replies[i].prompt, alone.prompt);
    expect_equal(served.replies[i].tokens, alone.tokens);
  }
  EXPECT_GT(served.status.loaded_pages, 10);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, PassLoop,
    testing::Combine(testing::Values(DecoderKind::kGpt, DecoderKind::kLlama),
                     testing::Values(Mesh{}, Mesh{{Axis::kTensor, 2}}, Mesh{{Axis::kPipeline, 2}},
                                     Mesh{{Axis::kPipeline, 2}, {Axis::kTensor, 2}}),
                     testing::Values(WeightType::kPrecision, WeightType::kInt8,
                                     WeightType::kInt4)));

// The draft model has the served model's weights, so a guess is wrong only if the draft model reads
// wrong keys and values, or draws otherwise.
TEST(PassLoop, AcceptsEveryGuessOfAnEqualDraftModel) {
  for (const DecoderKind kind : {DecoderKind::kGpt, DecoderKind::kLlama}) {
    RequestLoopOptions chunked = roomy(), reused = roomy();
    chunked.limits.pass_tokens = chunked.limits.pass_logits = 18;
    reused.limits.reuse_pages = true;
    reused.limits.sequences = 2;
    int setting = 0;
    for (RequestLoopOptions loop : {roomy(), chunked, reused, with_lower_tiers()}) {
      SCOPED_TRACE("setting " + std::to_string(setting++));
      loop.drafts = true;
      loop.guesses = 3;
      std::vector<SequenceRequest> requests = mixed_requests();
      std::ranges::copy(mixed_requests(), std::back_inserter(requests));
      const Serving serving = serve({kind, Mesh{}, WeightType::kPrecision}, loop, requests,
                                    /*draft_deviation=*/0.3);
      EXPECT_GT(serving.status.guessed_tokens, 10);
      EXPECT_EQ(serving.status.accepted_guesses, serving.status.guessed_tokens);
      EXPECT_EQ(serving.status.loaded_pages > 10, loop.limits.disk_pages > 0);
      EXPECT_EQ(serving.status.cached_prompt_tokens > 0, loop.limits.reuse_pages);
    }
  }
}

TEST(PassLoop, WaitsForRequestsWithoutLosingRanks) {
  const Sequential model = make_model(small_model(DecoderKind::kGpt), DecoderOutput::kLogits, {});
  RequestLoop loop(roomy());
  std::thread client([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    loop.submit(mixed_requests()[0], {.on_finish = [&](const Finish&) { loop.stop(); }});
  });
  run_thread_ranks({.ranks = 2}, [&](Group& world, MemoryAccount&) {
    Decoder decoder(model, {{Axis::kPipeline, 2}}, {.page_tokens = 8, .pages = 64}, world);
    fill_with_examples(decoder);
    run_passes(decoder, world, loop);
  });
  client.join();
  EXPECT_EQ(loop.status().generated_tokens, 4);
}

}  // namespace
}  // namespace strata
