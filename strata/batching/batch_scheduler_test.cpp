#include "strata/batching/batch_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "strata/base/errors.h"
#include "strata/batching/batch_server_test.h"

namespace strata {
namespace {

struct RandomCase {
  std::string name;
  BatchLimits limits = small_limits();
  bool guesses = false;
  bool changes_weights = false;
};

// Sequences come, end by themselves, stop, or are cancelled, at random.
ServiceStatus serve_at_random(const RandomCase& what, std::uint64_t seed) {
  SCOPED_TRACE(what.name + ", seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::uint64_t limit) {
    return static_cast<std::int64_t>(random() % limit);
  };
  Server server(what.limits);
  if (what.guesses)
    server.guesses = [&](const Server::Client& client) {
      Ids right = HashModel::answer(0, client.prompt, std::ssize(client.answer) + below(5));
      right.erase(right.begin(), right.begin() + std::min(right.size(), client.answer.size()));
      if (!right.empty() && below(2) == 0) right[below(right.size())] ^= 1;
      return right;
    };
  for (int step = 0; step < 600 && !testing::Test::HasFailure(); ++step) {
    while (below(3) == 0) {
      Ids prompt(1 + below(30));
      for (std::int64_t& token : prompt) token = below(10) == 0 ? below(3) : 0;
      const std::uint64_t id =
          server.add(prompt, below(18), below(4) == 0, static_cast<std::uint64_t>(below(2)));
      if (id != 0 && below(3) == 0) server.clients.at(id).stop_after = 1 + below(5);
    }
    if (!server.clients.empty() && below(12) == 0)
      server.cancel(std::next(server.clients.begin(), below(server.clients.size()))->first);
    server.pass();
    if (what.changes_weights && below(25) == 0) server.set_weights(random());
  }
  server.run_to_end(2000);
  return server.scheduler.status();
}

TEST(BatchScheduler, GivesEverySequenceItsAnswerInRandomOperations) {
  std::vector<RandomCase> cases(11);
  cases[0].name = "small";
  cases[1].name = "few pages";
  cases[1].limits.pages = 12;
  cases[2].name = "without reuse";
  cases[2].limits.reuse_pages = false;
  cases[3].name = "guesses";
  cases[3].guesses = true;
  cases[4].name = "guesses, few pages";
  cases[4].guesses = true;
  cases[4].limits.pages = 12;
  cases[5].name = "narrow passes";
  cases[5].limits.pass_tokens = cases[5].limits.pass_logits = 4;
  cases[6].name = "changing weights";
  cases[6].changes_weights = true;
  cases[6].guesses = true;
  cases[7].name = "few logits";
  cases[7].limits.pass_logits = 4;
  cases[7].guesses = true;
  cases[8].name = "few pages, and some on the host";
  cases[8].limits.pages = 12;
  cases[8].limits.host_pages = 9;
  cases[9].name = "few pages, and some on the host and the disk";
  cases[9].limits.pages = 12;
  cases[9].limits.host_pages = 3;
  cases[9].limits.disk_pages = 20;
  cases[9].guesses = true;
  cases[10].name = "changing weights, with pages on the disk";
  cases[10].limits.pages = 12;
  cases[10].limits.disk_pages = 20;
  cases[10].changes_weights = true;
  for (const RandomCase& what : cases) {
    ServiceStatus sum;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const ServiceStatus status = serve_at_random(what, seed);
      sum.preemptions += status.preemptions;
      sum.cached_prompt_tokens += status.cached_prompt_tokens;
      sum.accepted_guesses += status.accepted_guesses;
      sum.guessed_tokens += status.guessed_tokens;
      sum.refusals += status.refusals;
      sum.loaded_pages += status.loaded_pages;
    }
    // The cases reach what they are for.
    EXPECT_GT(sum.preemptions, 0) << what.name;
    EXPECT_EQ(sum.cached_prompt_tokens > 0, what.limits.reuse_pages) << what.name;
    EXPECT_EQ(sum.loaded_pages > 10, what.limits.host_pages + what.limits.disk_pages > 0)
        << what.name << ": " << sum.loaded_pages;
    EXPECT_EQ(sum.accepted_guesses > 0, what.guesses) << what.name;
    EXPECT_EQ(sum.guessed_tokens > sum.accepted_guesses, what.guesses) << what.name;
    if (HasFailure()) return;
  }
}

// Twelve conversations of four pages take turns on a device of five: after the first turn, no
// prompt is computed again while the lower tiers have room.
TEST(BatchScheduler, ComputesNoPromptTwiceWhileLowerTiersHaveRoom) {
  for (const auto& [host, disk] : {std::pair{0, 0}, std::pair{48, 0}, std::pair{7, 41}}) {
    BatchLimits limits = small_limits();
    limits.pages = 5;
    limits.host_pages = host;
    limits.disk_pages = disk;
    Server server(limits);
    for (int turn = 0; turn < 3; ++turn)
      for (int text = 0; text < 12; ++text) {
        const std::uint64_t id = server.add(Ids(17, text), 1);
        server.run_to_end(10);
        EXPECT_EQ(server.finished.at(id).answer, HashModel::answer(0, Ids(17, text), 1));
      }
    const ServiceStatus status = server.scheduler.status();
    EXPECT_EQ(status.cached_prompt_tokens, host > 0 ? 2 * 12 * 16 : 0);
    EXPECT_EQ(status.loaded_pages, host > 0 ? 2 * 12 * 4 : 0);
  }
}

TEST(BatchScheduler, GivesEveryStreamATokenInEachPassOfALongPrompt) {
  Server server(small_limits());
  const auto first = server.add({1}, 20), second = server.add({2}, 20);
  server.pass();
  server.add(count_to(40), 2);
  for (int pass = 0; pass < 5; ++pass) {
    const Batch batch = server.pass();
    ASSERT_EQ(batch.rows.size(), 3u);
    EXPECT_EQ(batch.rows[0].id, first);
    EXPECT_EQ(batch.rows[1].id, second);
    EXPECT_EQ(std::ssize(batch.pass[2].tokens), 8);
    EXPECT_EQ(batch.pass[2].position, 8 * pass);
    EXPECT_EQ(batch.pass[2].logits, pass == 4);
    EXPECT_EQ(batch.rows[2].chooses, pass == 4);
  }
  server.run_to_end(30);
}

TEST(BatchScheduler, SkipsFullPagesOfAnEqualBeginningButNotTheLastToken) {
  Server server(small_limits());
  server.add(count_to(16), 1);
  server.run_to_end(10);
  const auto equal = server.add(count_to(16), 1);
  const Batch batch = server.pass();
  ASSERT_EQ(batch.pass.size(), 1u);
  EXPECT_EQ(batch.pass[0].position, 12);
  EXPECT_EQ(batch.pass[0].tokens, count_to(16, 13));
  EXPECT_TRUE(server.finished.contains(equal));
  const auto longer = server.add(count_to(18), 2);
  EXPECT_EQ(server.pass().pass[0].position, 16);
  EXPECT_EQ(server.scheduler.cached_tokens(longer), 16);
  server.run_to_end(10);
  EXPECT_EQ(server.scheduler.status().cached_prompt_tokens, 28);
  EXPECT_EQ(server.scheduler.status().prompt_tokens, 50);
}

TEST(BatchScheduler, ReusesNoPagesForScoresOrAnotherKeyOrOtherWeights) {
  Server server(small_limits());
  const Ids prompt = count_to(16);
  server.add(prompt, 1);
  server.run_to_end(10);
  server.add(prompt, 1, true);
  EXPECT_EQ(server.pass().pass[0].position, 0);
  server.run_to_end(10);
  server.add(prompt, 1, false, 5);
  EXPECT_EQ(server.pass().pass[0].position, 0);
  server.run_to_end(10);
  server.set_weights(1);
  server.mixed_weights = false;
  server.add(prompt, 1);
  EXPECT_EQ(server.pass().pass[0].position, 0);
  server.run_to_end(10);
  server.set_weights(0);
  server.mixed_weights = false;
  server.add(prompt, 1);
  EXPECT_EQ(server.pass().pass[0].position, 0);  // the pages of earlier weights are forgotten
}

TEST(BatchScheduler, StartsOnlyEarlierSequencesWhileItIsHeld) {
  BatchLimits limits = small_limits();
  limits.sequences = 1;
  Server server(limits);
  server.add(count_to(9), 6);
  server.add(count_to(4), 3);
  EXPECT_EQ(server.pass().pass.size(), 1u);
  server.scheduler.hold();
  server.add({1, 2}, 2);
  EXPECT_FALSE(server.scheduler.drained());
  while (!server.scheduler.drained()) EXPECT_EQ(server.pass().pass.size(), 1u);
  EXPECT_EQ(server.clients.size(), 1u);
  EXPECT_EQ(server.scheduler.status().running, 0);
  EXPECT_EQ(server.scheduler.status().waiting, 1);
  EXPECT_TRUE(server.scheduler.next_pass().pass.empty());
  server.scheduler.release();
  server.run_to_end(10);
}

TEST(BatchScheduler, EndsPreemptedSequencesWhileItIsHeld) {
  BatchLimits limits = small_limits();
  limits.pages = 6;
  Server server(limits);
  server.add(count_to(4), 16);
  server.add(count_to(5), 16);
  while (server.scheduler.status().preemptions == 0) server.pass();
  server.scheduler.hold();
  server.run_to_end(100);
  EXPECT_TRUE(server.scheduler.drained());
}

TEST(BatchScheduler, ComputesTheCommonBeginningOfSequencesThatComeTogetherOnce) {
  BatchLimits limits = small_limits();
  limits.pass_tokens = limits.pass_logits = 40;
  limits.pages = 40;
  Server server(limits);
  for (int i = 0; i < 4; ++i) server.add(count_to(17), 3);
  EXPECT_EQ(server.pass().pass.size(), 1u);
  const Batch batch = server.pass();
  ASSERT_EQ(batch.pass.size(), 4u);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(batch.pass[i].position, 16);
    EXPECT_TRUE(std::ranges::equal(std::span(batch.pass[i].pages).first(4),
                                   std::span(batch.pass[0].pages).first(4)));
  }
  server.run_to_end(10);
}

TEST(BatchScheduler, PreemptsTheSequenceThatCameLast) {
  BatchLimits limits = small_limits();
  limits.pages = 6;
  limits.context = 24;
  Server server(limits);
  const auto first = server.add({1, 2, 3, 4}, 16);
  const auto second = server.add({5, 6, 7, 8}, 16);
  while (server.scheduler.status().preemptions == 0) server.pass();
  EXPECT_EQ(server.scheduler.status().running, 1);
  EXPECT_EQ(server.clients.at(first).answer.size(), 10u);
  EXPECT_EQ(server.clients.at(second).answer.size(), 9u);
  while (server.clients.contains(first)) {
    const Batch batch = server.pass();
    ASSERT_EQ(batch.rows.size(), 1u);
    EXPECT_EQ(batch.rows[0].id, first);
  }
  // Its tokens come back in one chunk, and it gets no token twice.
  const Batch batch = server.pass();
  ASSERT_EQ(batch.rows.size(), 1u);
  EXPECT_EQ(batch.rows[0].id, second);
  EXPECT_EQ(batch.pass[0].position + std::ssize(batch.pass[0].tokens), 13);
  EXPECT_EQ(batch.pass[0].logits, 1);
  EXPECT_EQ(server.scheduler.status().preemptions, 1);
  server.run_to_end(20);
}

TEST(BatchScheduler, GivesRunningSequencesTheirPagesBeforeOthersStart) {
  BatchLimits limits = small_limits();
  limits.pages = 3;
  Server server(limits);
  server.add({1, 2, 3}, 8);
  server.pass();
  server.add({4, 5, 6}, 8);
  server.pass();
  server.add({7, 8, 9}, 2);
  server.pass();  // the first one gets the last page
  EXPECT_EQ(server.scheduler.status().preemptions, 0);
  EXPECT_EQ(server.scheduler.status().running, 2);
}

TEST(BatchScheduler, BoundsTheLogitsOfAScoredPrompt) {
  BatchLimits limits = small_limits();
  limits.pass_logits = 4;
  Server server(limits);
  const auto id = server.add(count_to(11), 1, true);
  for (const std::int64_t count : {4, 4, 3}) {
    const Batch batch = server.pass();
    EXPECT_EQ(std::ssize(batch.pass[0].tokens), count);
    EXPECT_EQ(batch.pass[0].logits, count);
  }
  EXPECT_TRUE(server.finished.contains(id));
}

TEST(BatchScheduler, RefusesWhatNeverFits) {
  BatchLimits limits = small_limits();
  limits.pages = 5;
  Server server(limits);
  EXPECT_THROW(server.add(count_to(49), 0), UserError);
  EXPECT_THROW(server.add(count_to(48), 1), UserError);
  EXPECT_THROW(server.add(count_to(10), 11), UserError);
  EXPECT_THROW(server.add({}, 1), InternalError);
  EXPECT_NE(server.add(count_to(10), 10), 0u);
  EXPECT_NE(server.add(count_to(20), 0), 0u);
  server.run_to_end(30);
  limits.pages = 12;
  Server large(limits);
  const auto id = large.add(count_to(40), 1000);  // ends with the context
  large.run_to_end(30);
  EXPECT_EQ(large.finished.at(id).answer.size(), 8u);
}

TEST(BatchScheduler, RefusesWhatWouldWaitTooLong) {
  using std::chrono::milliseconds;
  BatchLimits limits = small_limits();
  limits.sequences = 1;
  limits.waiting = 3;
  limits.longest_wait = milliseconds(1000);
  BatchScheduler scheduler(limits);
  scheduler.measure(milliseconds(100));
  const NewSequence request{{1, 2, 3}, 6};
  EXPECT_EQ(scheduler.add(request).id, 1u);
  EXPECT_EQ(scheduler.add(request).id, 2u);  // starts after 6 or 7 passes
  const Admission late = scheduler.add(request);
  EXPECT_EQ(late.id, 0u);
  EXPECT_GE(late.retry_after, milliseconds(200));
  EXPECT_LE(late.retry_after, milliseconds(500));
  EXPECT_EQ(scheduler.status().refusals, 1);
  // With shorter passes the same request waits, and then the queue is full.
  for (int i = 0; i < 50; ++i) scheduler.measure(milliseconds(10));
  EXPECT_EQ(scheduler.add(request).id, 3u);
  EXPECT_EQ(scheduler.add(request).id, 0u);
  EXPECT_EQ(scheduler.status().waiting, 3);
  EXPECT_EQ(scheduler.status().refusals, 2);
}

TEST(BatchScheduler, PredictsThatDecodesTakeTokensFromPrompts) {
  BatchLimits limits = small_limits();
  limits.pages = limits.context = 100;
  limits.longest_wait = std::chrono::milliseconds(950);
  BatchScheduler scheduler(limits);
  scheduler.measure(std::chrono::milliseconds(100));
  EXPECT_NE(scheduler.add({count_to(71), 1}).id, 0u);  // 10 passes of 10 - 3 tokens
  EXPECT_EQ(scheduler.add({{1}, 1}).id, 0u);
}

TEST(BatchScheduler, SaysWhenAFullQueueHasRoom) {
  BatchLimits limits = small_limits();
  limits.waiting = 1;
  limits.sequences = 1;
  BatchScheduler scheduler(limits);
  scheduler.add({{1}, 8});
  EXPECT_EQ(scheduler.add({{1}, 8}).retry_after, std::chrono::seconds(1));  // no pass was measured
  scheduler.measure(std::chrono::seconds(2));
  scheduler.next_pass();
  scheduler.advance(1, 7);
  EXPECT_NE(scheduler.add({{1}, 8}).id, 0u);
  const Admission refused = scheduler.add({{1}, 8});
  EXPECT_EQ(refused.id, 0u);
  EXPECT_NEAR(static_cast<double>(refused.retry_after.count()), 14000, 2001);
}

TEST(BatchScheduler, AddsGuessesToARowAndDropsTheWrongOnes) {
  BatchScheduler scheduler(small_limits());
  const std::uint64_t id = scheduler.add({{1, 2, 3}, 9}).id;
  scheduler.next_pass();
  scheduler.guess(id, {9});  // before its first token: ignored
  EXPECT_TRUE(scheduler.advance(id, 4));
  scheduler.guess(id, {5, 6, 7});
  Batch batch = scheduler.next_pass();
  EXPECT_EQ(batch.pass[0].tokens, (Ids{4, 5, 6, 7}));
  EXPECT_EQ(batch.pass[0].position, 3);
  EXPECT_EQ(batch.pass[0].logits, 4);
  EXPECT_EQ(batch.pass[0].pages.size(), 2u);
  EXPECT_EQ(batch.rows[0].guesses, 3);
  EXPECT_THROW(scheduler.advance(id, Ids{6, 7}), InternalError);
  EXPECT_THROW(scheduler.advance(id, Ids{5, 6, 7, 8, 9}), InternalError);
  EXPECT_THROW(scheduler.advance(id, Ids{}), InternalError);
  EXPECT_TRUE(scheduler.advance(id, Ids{5, 8}));  // one guess was right
  EXPECT_TRUE(std::ranges::equal(scheduler.tokens(id), Ids{1, 2, 3, 4, 5, 8}));
  scheduler.guess(id, Ids(20, 1));
  batch = scheduler.next_pass();
  EXPECT_EQ(batch.pass[0].position, 5);
  EXPECT_EQ(batch.pass[0].tokens.front(), 8);
  EXPECT_EQ(batch.rows[0].guesses, 5);  // of the 6 tokens that may follow the last one is free
  EXPECT_TRUE(scheduler.advance(id, 1));
  EXPECT_EQ(scheduler.next_pass().rows[0].guesses, 0);
  EXPECT_EQ(scheduler.status().guessed_tokens, 8);
  EXPECT_EQ(scheduler.status().accepted_guesses, 1);
}

TEST(BatchScheduler, ReplacesTheGuessesOfAPass) {
  BatchScheduler scheduler(small_limits());
  const std::uint64_t id = scheduler.add({{1, 2, 3}, 9}).id;
  const std::uint64_t other = scheduler.add({{1, 1}, 9}).id;
  scheduler.next_pass();
  scheduler.advance(id, 4);
  scheduler.advance(other, 4);
  scheduler.guess(id, Ids(2, 0));
  Batch batch = scheduler.next_pass();
  ASSERT_EQ(batch.pass[0].tokens, (Ids{4, 0, 0}));
  batch.pass[0].tokens = {4, 5, 6};
  scheduler.replace_guesses(batch);
  EXPECT_THROW(scheduler.advance(id, Ids{0, 7}), InternalError);
  EXPECT_TRUE(scheduler.advance(id, Ids{5, 6, 7}));
  EXPECT_TRUE(scheduler.advance(other, 7));
  batch = scheduler.next_pass();
  EXPECT_EQ(batch.pass[0].position, 6);
  batch.rows[0].guesses = 1;  // the row has none
  EXPECT_THROW(scheduler.replace_guesses(batch), InternalError);
}

TEST(BatchScheduler, LeavesPromptsTheirRoomBeforeGuesses) {
  BatchLimits limits = small_limits();
  limits.pages = 4;
  Server server(limits);
  server.guesses = [](const Server::Client&) { return Ids(5, 0); };
  server.add({1, 2, 3, 4}, 8);
  server.pass();
  server.add(count_to(17, 11), 1);
  const Batch batch = server.pass();
  ASSERT_EQ(batch.rows.size(), 2u);
  EXPECT_EQ(batch.rows[0].guesses, 2);  // 10 - 1 - 7
  server.run_to_end(20);
}

TEST(BatchScheduler, RefusesCallsInAnotherOrder) {
  BatchScheduler scheduler(small_limits());
  const std::uint64_t id = scheduler.add({count_to(12), 2}).id;
  EXPECT_THROW(scheduler.advance(id, 1), InternalError);
  scheduler.next_pass();
  EXPECT_THROW(scheduler.advance(id, 1), InternalError);  // the prompt is not complete
  EXPECT_TRUE(scheduler.next_pass().rows[0].chooses);
  EXPECT_THROW(scheduler.next_pass(), InternalError);
  EXPECT_TRUE(scheduler.advance(id, 1));
  EXPECT_THROW(scheduler.advance(id, 1), InternalError);
  scheduler.next_pass();
  EXPECT_FALSE(scheduler.advance(id, 1));
  EXPECT_THROW(scheduler.next_pass(), InternalError);  // the sequence has all its tokens
  scheduler.finish(id);
  EXPECT_THROW(scheduler.finish(id), InternalError);
  EXPECT_THROW(scheduler.tokens(id), InternalError);
  EXPECT_FALSE(scheduler.cancel(id));
  EXPECT_TRUE(scheduler.next_pass().rows.empty());
}

TEST(BatchScheduler, RefusesLimitsThatContradict) {
  for (std::int64_t BatchLimits::* limit : {&BatchLimits::pass_tokens, &BatchLimits::pass_logits}) {
    BatchLimits limits = small_limits();
    limits.*limit = 3;
    EXPECT_THROW(BatchScheduler{limits}, UserError);
  }
  for (std::int64_t BatchLimits::* limit :
       {&BatchLimits::pages, &BatchLimits::page_tokens, &BatchLimits::context,
        &BatchLimits::sequences, &BatchLimits::waiting}) {
    BatchLimits limits = small_limits();
    limits.*limit = 0;
    EXPECT_THROW(BatchScheduler{limits}, InternalError);
  }
}

}  // namespace
}  // namespace strata
