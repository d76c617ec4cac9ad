#include "strata/batching/batch_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "strata/base/errors.h"
#include "strata/base/philox.h"

namespace strata {
namespace {

using Ids = std::vector<std::int64_t>;

// A model whose keys and values of a token are a hash of the weights and of all tokens up to it, and
// whose next token is a function of that hash.
class HashModel {
 public:
  HashModel(const BatchLimits& limits)
      : page_tokens_(limits.page_tokens), memory_(limits.pages * limits.page_tokens) {}

  static std::uint64_t state(std::uint64_t before, std::int64_t token) {
    return mix_key(before, static_cast<std::uint64_t>(token));
  }
  // Few values, so that texts repeat and guesses are right sometimes.
  static std::int64_t next(std::uint64_t state) { return static_cast<std::int64_t>(state % 3); }

  // The answer to a prompt alone.
  static Ids answer(std::uint64_t weights, const Ids& prompt, std::int64_t count) {
    std::uint64_t now = weights;
    for (const std::int64_t token : prompt) now = state(now, token);
    Ids tokens;
    for (; std::ssize(tokens) < count; now = state(now, tokens.back())) tokens.push_back(next(now));
    return tokens;
  }

  // Writes the states of a row and returns those that need logits. The states of earlier tokens come
  // from pages; `text` is what they must describe.
  std::vector<std::uint64_t> forward(std::uint64_t weights, const PassTokens& row,
                                     const Ids& text) {
    std::uint64_t now = weights;
    for (std::int64_t i = 0; i < row.position; ++i) {
      now = state(now, text[i]);
      EXPECT_EQ(at(row, i), now) << "token " << i;
    }
    std::vector<std::uint64_t> states;
    for (std::size_t i = 0; i < row.tokens.size(); ++i)
      states.push_back(at(row, row.position + i) = now = state(now, row.tokens[i]));
    return {states.end() - row.logits, states.end()};
  }

 private:
  std::uint64_t& at(const PassTokens& row, std::int64_t token) {
    return memory_[row.pages[token / page_tokens_] * page_tokens_ + token % page_tokens_];
  }

  std::int64_t page_tokens_;
  std::vector<std::uint64_t> memory_;
};

// Serves sequences with a HashModel, and checks every pass.
class Server {
 public:
  struct Client {
    Ids prompt;
    std::int64_t max_tokens = 0;
    bool score_prompt = false;
    std::int64_t stop_after = 1 << 30;  // tokens of the answer
    Ids answer = {};
    std::vector<std::uint64_t> scores = {};  // by token of the prompt; 0: none yet
    bool decodes = false;                    // the pass before chose a token
  };

  explicit Server(const BatchLimits& limits) : limits_(limits), scheduler(limits), model_(limits) {}

  std::uint64_t add(Ids prompt, std::int64_t max_tokens, bool score = false,
                    std::uint64_t key = 0) {
    const Admission admission = scheduler.add({prompt, max_tokens, score, key});
    if (admission.id == 0) return 0;
    const std::size_t size = prompt.size();
    clients[admission.id] = {std::move(prompt), max_tokens, score};
    clients[admission.id].scores.resize(size);
    return admission.id;
  }

  void cancel(std::uint64_t id) {
    EXPECT_TRUE(scheduler.cancel(id));
    EXPECT_FALSE(scheduler.cancel(id));
    clients.erase(id);
  }

  void set_weights(std::uint64_t version) {
    scheduler.set_weights(version);
    weights_ = version;
    mixed_weights = true;
    for (auto& [id, client] : clients) {
      client.decodes = false;
      if (client.scores.back() == 0) std::ranges::fill(client.scores, 0);  // all come again
    }
  }

  // Runs a pass; returns the rows.
  Batch pass() {
    Batch batch = scheduler.next_pass();
    const std::int64_t preemptions = scheduler.status().preemptions;
    check_batch(batch, preemptions == preemptions_);
    preemptions_ = preemptions;
    for (auto& [id, client] : clients) client.decodes = false;
    for (std::size_t i = 0; i < batch.rows.size(); ++i) run_row(batch.rows[i], batch.pass[i]);
    return batch;
  }

  void run_to_end(std::int64_t most_passes) {
    for (std::int64_t i = 0; !scheduler.empty(); ++i) {
      ASSERT_LT(i, most_passes);
      pass();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(clients.empty());
    EXPECT_EQ(scheduler.pool().used(), 0);
    EXPECT_TRUE(scheduler.next_pass().rows.empty());
  }

  std::function<Ids(const Client&)> guesses = nullptr;
  bool mixed_weights = false;  // answers were computed with several versions
  std::map<std::uint64_t, Client> clients;
  std::map<std::uint64_t, Client> finished;

 private:
  BatchLimits limits_;

 public:
  BatchScheduler scheduler;

 private:
  void check_batch(const Batch& batch, bool without_preemption) {
    ASSERT_EQ(batch.pass.size(), batch.rows.size());
    EXPECT_EQ(batch.rows.empty(), clients.empty());
    EXPECT_LE(std::ssize(batch.rows), limits_.sequences);
    std::int64_t tokens = 0, logits = 0;
    std::set<std::uint64_t> ids;
    std::set<std::int32_t> written;
    bool chunks = false;  // rows of one token come first
    for (std::size_t i = 0; i < batch.rows.size(); ++i) {
      const BatchRow& row = batch.rows[i];
      const PassTokens& part = batch.pass[i];
      EXPECT_TRUE(ids.insert(row.id).second);
      tokens += std::ssize(part.tokens);
      logits += part.logits;
      EXPECT_FALSE(part.tokens.empty());
      EXPECT_EQ(std::ssize(part.pages),
                scheduler.pool().pages_for(part.position + std::ssize(part.tokens)));
      for (std::size_t page = part.position / limits_.page_tokens; page < part.pages.size();
           ++page) {
        EXPECT_TRUE(written.insert(part.pages[page]).second);
        EXPECT_EQ(scheduler.pool().owners(part.pages[page]), 1);
      }
      const bool decodes = row.chooses && std::ssize(part.tokens) == 1 + row.guesses;
      EXPECT_FALSE(decodes && chunks);
      chunks = !decodes;
    }
    EXPECT_LE(tokens, limits_.pass_tokens);
    EXPECT_LE(logits, limits_.pass_logits);
    for (auto& [id, client] : clients)  // the last ones may have been preempted
      if (client.decodes && !ids.contains(id))
        EXPECT_TRUE(!without_preemption && id > *ids.rbegin()) << id;
    check_age(ids);
    const ServiceStatus status = scheduler.status();
    EXPECT_EQ(status.running + status.waiting, std::ssize(clients));
    EXPECT_LE(status.running, limits_.sequences);
    EXPECT_LE(status.used_pages, status.pages);
  }

  // The oldest sequence is in every pass.
  void check_age(const std::set<std::uint64_t>& ids) {
    if (!clients.empty()) EXPECT_TRUE(ids.contains(clients.begin()->first));
  }

  void run_row(const BatchRow& row, const PassTokens& part) {
    Client& client = clients.at(row.id);
    Ids text = client.prompt;
    text.insert(text.end(), client.answer.begin(), client.answer.end());
    const auto own = std::span(part.tokens).first(part.tokens.size() - row.guesses);
    EXPECT_TRUE(std::ranges::equal(own, std::span(text).subspan(part.position, own.size())));
    EXPECT_EQ(row.chooses, part.position + std::ssize(own) == std::ssize(text));
    EXPECT_TRUE(std::ranges::equal(scheduler.tokens(row.id), text));
    const std::vector<std::uint64_t> states = model_.forward(weights_, part, text);
    if (client.score_prompt) keep_scores(client, part, states);
    if (row.chooses) choose(row, part, states);
  }

  void keep_scores(Client& client, const PassTokens& part,
                   const std::vector<std::uint64_t>& states) {
    const std::int64_t first = part.position + std::ssize(part.tokens) - std::ssize(states);
    for (std::int64_t i = first;
         i < std::min(std::ssize(client.prompt), first + std::ssize(states)); ++i) {
      EXPECT_EQ(client.scores[i], 0u) << "token " << i << " again";
      client.scores[i] = states[i - first];
    }
  }

  void choose(const BatchRow& row, const PassTokens& part,
              const std::vector<std::uint64_t>& states) {
    Client& client = clients.at(row.id);
    if (client.max_tokens == 0) return finish(row.id);
    const auto guesses_of_row = std::span(part.tokens).last(row.guesses);
    const auto from = std::span(states).last(1 + row.guesses);
    Ids chosen;
    for (std::int64_t i = 0; i <= row.guesses; ++i) {
      chosen.push_back(HashModel::next(from[i]));
      if (std::ssize(client.answer) + std::ssize(chosen) == client.stop_after) break;
      if (i < row.guesses && chosen.back() != guesses_of_row[i]) break;
    }
    client.answer.insert(client.answer.end(), chosen.begin(), chosen.end());
    const bool has_more = scheduler.advance(row.id, chosen);
    client.decodes = true;
    EXPECT_EQ(has_more, std::ssize(client.answer) < longest(client));
    if (!has_more || std::ssize(client.answer) >= client.stop_after) return finish(row.id);
    if (guesses) scheduler.guess(row.id, guesses(client));
  }

  std::int64_t longest(const Client& client) const {
    return std::min(client.max_tokens, limits_.context - std::ssize(client.prompt));
  }

  void finish(std::uint64_t id) {
    const Client& client = clients.at(id);
    if (!mixed_weights) {
      const auto count = std::min(longest(client), client.stop_after);
      EXPECT_EQ(client.answer, HashModel::answer(weights_, client.prompt, count));
    }
    std::uint64_t state = weights_;
    for (std::size_t i = 0; client.score_prompt && i < client.prompt.size(); ++i) {
      state = HashModel::state(state, client.prompt[i]);
      if (mixed_weights) {
        EXPECT_NE(client.scores[i], 0u);
      } else {
        EXPECT_EQ(client.scores[i], state);
      }
    }
    scheduler.finish(id);
    finished[id] = std::move(clients.at(id));
    clients.erase(id);
  }

  HashModel model_;
  std::uint64_t weights_ = 0;
  std::int64_t preemptions_ = 0;
};

BatchLimits small_limits() {
  BatchLimits limits;
  limits.pages = 16;
  limits.page_tokens = 4;
  limits.context = 48;
  limits.sequences = 4;
  limits.pass_tokens = 10;
  limits.pass_logits = 10;
  limits.waiting = 20;
  return limits;
}

Ids count_to(std::int64_t last, std::int64_t from = 1) {
  Ids ids(last - from + 1);
  std::iota(ids.begin(), ids.end(), from);
  return ids;
}

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
  std::vector<RandomCase> cases(8);
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
  for (const RandomCase& what : cases) {
    ServiceStatus sum;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const ServiceStatus status = serve_at_random(what, seed);
      sum.preemptions += status.preemptions;
      sum.cached_prompt_tokens += status.cached_prompt_tokens;
      sum.accepted_guesses += status.accepted_guesses;
      sum.guessed_tokens += status.guessed_tokens;
      sum.refusals += status.refusals;
    }
    // The cases reach what they are for.
    EXPECT_GT(sum.preemptions, 0) << what.name;
    EXPECT_EQ(sum.cached_prompt_tokens > 0, what.limits.reuse_pages) << what.name;
    EXPECT_EQ(sum.accepted_guesses > 0, what.guesses) << what.name;
    EXPECT_EQ(sum.guessed_tokens > sum.accepted_guesses, what.guesses) << what.name;
    if (HasFailure()) return;
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
  EXPECT_EQ(server.scheduler.prompt_tokens(longer), 18);
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
  EXPECT_EQ(server.pass().pass[0].position, 12);
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
