// The model of these tests is a function of the text: its likeliest next token is known.
#include "strata/serve/request_loop.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"

namespace strata {
namespace {

using Tokens = std::vector<std::int64_t>;
constexpr std::int64_t kVocabulary = 50;

std::int64_t next_of(std::span<const std::int64_t> text) {
  return (std::accumulate(text.begin(), text.end(), std::int64_t{7}) * 3 + std::ssize(text)) %
         kVocabulary;
}

// Logits that single out the next token and differ for every text.
std::vector<float> logits_after(std::span<const std::int64_t> text) {
  std::vector<float> logits(kVocabulary);
  for (std::int64_t i = 0; i < kVocabulary; ++i)
    logits[i] = 0.01F * static_cast<float>((i * 7 + std::ssize(text) * 3) % 11);
  logits[next_of(text)] = 5;
  return logits;
}

Tokens continued(Tokens text, std::int64_t tokens) {
  const auto prompt = std::ssize(text);
  for (std::int64_t i = 0; i < tokens; ++i) text.push_back(next_of(text));
  return {text.begin() + prompt, text.end()};
}

// Keeps the tokens that passes have put into pages, as a decoder keeps their keys and values.
class PagedTexts {
 public:
  explicit PagedTexts(std::int64_t page_tokens) : page_tokens_(page_tokens) {}

  std::vector<float> forward(const Pass& pass) {
    for (const PassTokens& row : pass)
      for (std::size_t i = 0; i < row.tokens.size(); ++i) {
        const auto position = row.position + static_cast<std::int64_t>(i);
        slots_[row.pages.at(position / page_tokens_) * page_tokens_ + position % page_tokens_] =
            row.tokens[i];
      }
    std::vector<float> all;
    for (const PassTokens& row : pass) {
      const auto end = row.position + std::ssize(row.tokens);
      for (std::int64_t length = end - row.logits + 1; length <= end; ++length) {
        const std::vector<float> logits = logits_after(text_of(row, length));
        all.insert(all.end(), logits.begin(), logits.end());
      }
    }
    return all;
  }

  // After forward(): of each text with logits its length and its last token.
  std::vector<float> states(const Pass& pass) const {
    std::vector<float> all;
    for (const PassTokens& row : pass) {
      const auto end = row.position + std::ssize(row.tokens);
      for (std::int64_t length = end - row.logits + 1; length <= end; ++length) {
        all.push_back(static_cast<float>(length));
        all.push_back(static_cast<float>(text_of(row, length).back()));
      }
    }
    return all;
  }

 private:
  Tokens text_of(const PassTokens& row, std::int64_t length) const {
    Tokens text;
    for (std::int64_t i = 0; i < length; ++i)
      text.push_back(slots_.at(row.pages.at(i / page_tokens_) * page_tokens_ + i % page_tokens_));
    return text;
  }

  std::int64_t page_tokens_;
  std::map<std::int64_t, std::int64_t> slots_;
};

struct Heard {
  Tokens tokens;
  std::vector<ScoredToken> prompt;
  std::vector<ScoredToken> scores;
  std::vector<std::vector<float>> embeddings;
  std::optional<Finish> finish;
};

SequenceListener listener_of(Heard& heard) {
  return {.on_prompt = [&](std::vector<ScoredToken> scores) { heard.prompt = std::move(scores); },
          .on_embedding = [&](std::vector<float> state) { heard.embeddings.push_back(state); },
          .on_token =
              [&](const ScoredToken& token) {
                heard.tokens.push_back(token.token);
                heard.scores.push_back(token);
              },
          .on_finish = [&](const Finish& finish) { heard.finish = finish; }};
}

RequestLoopOptions small_options() {
  return {.limits = {.pages = 40,
                     .page_tokens = 4,
                     .context = 64,
                     .sequences = 4,
                     .pass_tokens = 8,
                     .pass_logits = 8,
                     .waiting = 100},
          .vocabulary = kVocabulary};
}

// Runs passes until no request is left.
void run_all(RequestLoop& loop, PagedTexts& texts) {
  while (loop.status().running + loop.status().waiting > 0) {
    const PassMessage message = loop.next_pass();
    if (message.order == PassOrder::kRun) loop.consume(texts.forward(message.pass));
  }
}

SequenceRequest greedy(Tokens prompt, std::int64_t tokens) {
  return {.prompt = std::move(prompt), .max_tokens = tokens, .sampling = {.temperature = 0}};
}

TEST(RequestLoop, ContinuesEachRequestAsAlone) {
  for (const std::int64_t guesses : {0, 3})
    for (const std::int64_t pages : {40, 16}) {  // 16: sequences lose their pages
      RequestLoopOptions options = small_options();
      options.guesses = guesses;
      options.limits.pages = pages;
      RequestLoop loop(options);
      PagedTexts texts(4);
      std::vector<Heard> heard(12);
      std::vector<Tokens> prompts;
      for (std::size_t i = 0; i < heard.size(); ++i) {
        prompts.push_back(Tokens(1 + i * 2, static_cast<std::int64_t>(i % 3)));
        loop.submit(greedy(prompts[i], 20), listener_of(heard[i]));
      }
      run_all(loop, texts);
      for (std::size_t i = 0; i < heard.size(); ++i) {
        EXPECT_EQ(heard[i].tokens, continued(prompts[i], 20)) << i;
        ASSERT_TRUE(heard[i].finish);
        EXPECT_EQ(heard[i].finish->reason, FinishReason::kLength);
      }
      EXPECT_EQ(loop.status().generated_tokens, 12 * 20);
      EXPECT_EQ(loop.status().preemptions > 0, pages == 16);
    }
}

// A draft model that knows the texts is right with every guess. Guesses obey the grammar and the
// least length, and may pass the end of a text.
TEST(RequestLoop, ChoosesGuessesAsItChoosesTokens) {
  RequestLoopOptions options = small_options();
  options.guesses = 3;
  options.drafts = true;
  RequestLoop loop(options);
  PagedTexts texts(4);
  const std::vector<Tokens> prompts = {{1, 2}, {3}, {4, 4, 4}};
  std::vector<Heard> heard(3);
  SequenceRequest even = greedy(prompts[0], 16), ends = greedy(prompts[1], 16);
  even.allowed = [](const Tokens& answer) {
    EXPECT_TRUE(std::ranges::all_of(answer, [](std::int64_t token) { return token % 2 == 0; }));
    return std::vector<std::uint64_t>{0x5555555555555555};
  };
  ends.ends = {continued(prompts[1], 6).back()};
  ends.min_tokens = 2;
  loop.submit(even, listener_of(heard[0]));
  loop.submit(ends, listener_of(heard[1]));
  loop.submit(greedy(prompts[2], 13), listener_of(heard[2]));
  int passes = 0;
  for (; loop.status().running + loop.status().waiting > 0; ++passes) {
    PassMessage message = loop.next_pass();
    ASSERT_EQ(message.order, PassOrder::kRun);
    message.pass = loop.draft([&](Batch& batch, const ChooseGuess& choose) {
      for (std::size_t row = 0; row < batch.rows.size(); ++row) {
        PassTokens& part = batch.pass[row];
        const std::int64_t guesses = batch.rows[row].guesses;
        for (std::int64_t i = 0; i < guesses; ++i) {
          const std::size_t known = part.tokens.size() - guesses + i;
          PassTokens before = part;
          before.tokens.resize(known);
          before.logits = 1;
          part.tokens[known] =
              choose(row, texts.forward({before}), std::span(part.tokens).subspan(known - i, i));
        }
      }
    });
    loop.consume(texts.forward(message.pass));
  }
  EXPECT_EQ(heard[2].tokens, continued(prompts[2], 13));
  EXPECT_EQ(heard[0].tokens.size(), 16u);
  EXPECT_EQ(heard[1].finish->reason, FinishReason::kStop);
  EXPECT_EQ(heard[1].tokens, continued(prompts[1], std::ssize(heard[1].tokens)));
  // The prompts, then 16 tokens in fives of which the pass has room for a few less.
  EXPECT_LT(passes, 12);
  const ServiceStatus status = loop.status();
  EXPECT_GE(status.guessed_tokens - status.accepted_guesses, 0);
  EXPECT_LE(status.guessed_tokens - status.accepted_guesses, 3);  // beyond the end of a text
}

TEST(RequestLoop, ScoresThePromptOnceWhateverChunksItHas) {
  RequestLoop loop(small_options());
  PagedTexts texts(4);
  const Tokens prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};
  Heard heard, other;
  loop.submit(greedy(prompt, 4), listener_of(other));
  SequenceRequest request = greedy(prompt, 0);
  request.score_prompt = true;
  request.likeliest = 3;
  loop.submit(std::move(request), listener_of(heard));
  run_all(loop, texts);
  ASSERT_EQ(heard.prompt.size(), prompt.size() - 1);
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    const ScoredToken expected = score(logits_after(std::span(prompt).first(i)), prompt[i], 3);
    EXPECT_EQ(heard.prompt[i - 1].token, prompt[i]);
    EXPECT_EQ(heard.prompt[i - 1].log_probability, expected.log_probability) << i;
    EXPECT_EQ(heard.prompt[i - 1].likeliest, expected.likeliest) << i;
  }
  EXPECT_TRUE(heard.tokens.empty());
  EXPECT_EQ(heard.finish->reason, FinishReason::kLength);
}

// All tokens of the prompts have states, as they are scored, and so have guesses.
TEST(RequestLoop, ReportsTheStateAfterThePromptOnce) {
  for (const std::int64_t tokens : {0, 5}) {
    RequestLoopOptions options = small_options();
    options.guesses = 3;
    RequestLoop loop(options);
    PagedTexts texts(4);
    Heard scored, embedded;
    SequenceRequest other = greedy({5, 5, 5, 5, 5}, 20), request = greedy({}, tokens);
    other.score_prompt = true;
    for (std::int64_t i = 0; i < 19; ++i) request.prompt.push_back((i * 5 + 2) % kVocabulary);
    request.embed = request.score_prompt = true;
    loop.submit(other, listener_of(scored));
    loop.submit(request, listener_of(embedded));
    while (loop.status().running + loop.status().waiting > 0) {
      const PassMessage message = loop.next_pass();
      const std::vector<float> logits = texts.forward(message.pass);
      loop.consume(logits, texts.states(message.pass));
    }
    ASSERT_EQ(embedded.embeddings.size(), 1u);
    EXPECT_EQ(embedded.embeddings[0],
              (std::vector<float>{19, static_cast<float>(request.prompt.back())}));
    EXPECT_EQ(embedded.tokens, continued(request.prompt, tokens));
    EXPECT_EQ(scored.tokens, continued(other.prompt, 20));
    EXPECT_TRUE(scored.embeddings.empty());
  }
}

TEST(RequestLoop, FailsOnlyTheRequestWhoseStateIsNotFinite) {
  RequestLoop loop(small_options());
  PagedTexts texts(4);
  Heard bad, good;
  SequenceRequest request = greedy({1}, 0);
  request.embed = true;
  loop.submit(request, listener_of(bad));
  loop.submit(request, listener_of(good));
  const PassMessage pass = loop.next_pass();
  const std::vector<float> logits = texts.forward(pass.pass);
  std::vector<float> states = texts.states(pass.pass);
  states[1] = INFINITY;
  loop.consume(logits, states);
  EXPECT_EQ(bad.finish->reason, FinishReason::kFailed);
  EXPECT_NE(bad.finish->error.find("not a finite number"), std::string::npos) << bad.finish->error;
  EXPECT_TRUE(bad.embeddings.empty());
  EXPECT_EQ(good.embeddings.size(), 1u);
}

TEST(RequestLoop, EndsAtAnEndTokenOnlyAfterTheFewestTokens) {
  const Tokens all = continued({1, 2}, 10);
  for (const std::int64_t fewest : {0, 6}) {
    RequestLoop loop(small_options());
    PagedTexts texts(4);
    Heard heard;
    SequenceRequest request = greedy({1, 2}, 10);
    request.ends = {all[3]};
    request.min_tokens = fewest;
    loop.submit(std::move(request), listener_of(heard));
    run_all(loop, texts);
    if (fewest == 0) {
      EXPECT_EQ(heard.tokens, Tokens(all.begin(), all.begin() + 3));
      EXPECT_EQ(heard.finish->reason, FinishReason::kStop);
    } else {
      EXPECT_GE(std::ssize(heard.tokens), fewest);
      EXPECT_EQ(std::ranges::find(heard.tokens, all[3]), heard.tokens.end());
    }
  }
}

TEST(RequestLoop, AllowsOnlyTheTokensOfTheRequest) {
  RequestLoop loop(small_options());
  PagedTexts texts(4);
  Heard heard;
  SequenceRequest request = greedy({1, 2}, 5);
  request.allowed = [](const Tokens& answer) {
    return std::vector<std::uint64_t>{std::uint64_t{1} << (10 + answer.size())};
  };
  loop.submit(std::move(request), listener_of(heard));
  run_all(loop, texts);
  EXPECT_EQ(heard.tokens, (Tokens{10, 11, 12, 13, 14}));
}

TEST(RequestLoop, EndsWhereNoTokenIsAllowed) {
  RequestLoop loop(small_options());
  PagedTexts texts(4);
  Heard heard;
  SequenceRequest request = greedy({1, 2}, 9);
  request.allowed = [](const Tokens& answer) {
    return std::vector<std::uint64_t>{answer.size() < 3 ? ~std::uint64_t{0} : 0};
  };
  loop.submit(std::move(request), listener_of(heard));
  run_all(loop, texts);
  EXPECT_EQ(heard.tokens, continued({1, 2}, 3));
  EXPECT_EQ(heard.finish->reason, FinishReason::kStop);
}

TEST(RequestLoop, CancelsWaitingAndRunningRequests) {
  RequestLoopOptions options = small_options();
  options.limits.sequences = 1;
  RequestLoop loop(options);
  PagedTexts texts(4);
  Heard running, waiting, last;
  const std::uint64_t first = loop.submit(greedy({1}, 30), listener_of(running)).id;
  const std::uint64_t second = loop.submit(greedy({2}, 30), listener_of(waiting)).id;
  loop.submit(greedy({3}, 5), listener_of(last));
  for (int i = 0; i < 4; ++i) loop.consume(texts.forward(loop.next_pass().pass));
  const PassMessage pass = loop.next_pass();
  loop.cancel(first);
  loop.cancel(second);
  loop.cancel(12345);
  loop.consume(texts.forward(pass.pass));
  run_all(loop, texts);
  EXPECT_EQ(running.tokens, continued({1}, 4));
  EXPECT_EQ(running.finish->reason, FinishReason::kCancelled);
  EXPECT_TRUE(waiting.tokens.empty());
  EXPECT_EQ(waiting.finish->reason, FinishReason::kCancelled);
  EXPECT_EQ(last.tokens, continued({3}, 5));
  EXPECT_EQ(loop.status().used_pages, 0);
}

// Answers are computed by one set of weights each, and pages of the old ones are not used again.
TEST(RequestLoop, ReplacesWeightsBetweenAnswers) {
  RequestLoopOptions options = small_options();
  options.limits.sequences = 1;
  options.weights = "old";
  RequestLoop loop(options);
  PagedTexts texts(4);
  Heard first, second, third;
  std::map<const Heard*, std::set<std::string>> weights;
  const auto submit = [&](Heard& heard, std::int64_t tokens) {
    SequenceListener listener = listener_of(heard);
    listener.on_token = [&, heard_by = listener.on_token](const ScoredToken& token) {
      weights[&heard].insert(loop.weights());
      heard_by(token);
    };
    loop.submit(greedy({1, 2, 3, 4, 5, 6, 7, 8, 9}, tokens), std::move(listener));
  };
  submit(first, 20);
  loop.consume(texts.forward(loop.next_pass().pass));
  submit(second, 4);
  std::thread loader([&] { loop.load("folder/new", "new"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the loader waits by then
  bool loads = false;
  while (!loads) {
    const PassMessage message = loop.next_pass();
    if (message.order == PassOrder::kRun) loop.consume(texts.forward(message.pass));
    if (message.order != PassOrder::kLoad) continue;
    EXPECT_EQ(message.checkpoint, "folder/new");
    EXPECT_TRUE(first.finish);
    EXPECT_TRUE(second.finish);  // it came before the load
    submit(third, 3);
    loads = true;
    loop.loaded();
  }
  loader.join();
  run_all(loop, texts);
  EXPECT_EQ(weights[&first], std::set<std::string>{"old"});
  EXPECT_EQ(weights[&second], std::set<std::string>{"old"});
  EXPECT_EQ(weights[&third], std::set<std::string>{"new"});
  EXPECT_EQ(second.finish->cached_tokens, 8);
  EXPECT_EQ(third.finish->cached_tokens, 0);
  EXPECT_EQ(loop.weights(), "new");
}

TEST(RequestLoop, GivesUpALoadThatWaitsForRequests) {
  RequestLoop loop(small_options());
  PagedTexts texts(4);
  Heard running, later;
  loop.submit(greedy({1}, 5), listener_of(running));
  loop.consume(texts.forward(loop.next_pass().pass));
  std::thread loader([&] { EXPECT_FALSE(loop.load("folder/new", "new")); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the loader waits by then
  loop.submit(greedy({2}, 3), listener_of(later));
  loop.refuse_loads();
  loader.join();
  EXPECT_FALSE(loop.load("folder/newer", "newer"));
  run_all(loop, texts);
  EXPECT_EQ(later.tokens, continued({2}, 3));
  EXPECT_EQ(loop.weights(), "");
}

TEST(RequestLoop, LoadThrowsWhenRanksEnd) {
  RequestLoop loop(small_options());
  std::thread loader([&] { EXPECT_THROW(loop.load("folder/new", "new"), SystemError); });
  while (loop.next_pass().order != PassOrder::kLoad) continue;
  loop.end("a rank was lost");
  loader.join();
}

TEST(RequestLoop, ComputesProbabilitiesOnlyIfTheyAreRequested) {
  RequestLoop loop(small_options());
  PagedTexts texts(4);
  Heard without, with;
  loop.submit(greedy({1, 2}, 3), listener_of(without));
  SequenceRequest request = greedy({1, 2}, 3);
  request.likeliest = 0;
  loop.submit(std::move(request), listener_of(with));
  run_all(loop, texts);
  EXPECT_EQ(without.tokens, with.tokens);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(without.scores[i].log_probability, 0);
    EXPECT_LT(with.scores[i].log_probability, 0);
  }
}

TEST(RequestLoop, FailsOnlyTheRequestWhoseLogitsAreNotNumbers) {
  std::vector<std::string> warnings;
  RequestLoopOptions options = small_options();
  options.warn = [&](const std::string& warning) { warnings.push_back(warning); };
  RequestLoop loop(options);
  PagedTexts texts(4);
  Heard bad, good;
  loop.submit(greedy({1}, 5), listener_of(bad));
  loop.submit(greedy({2}, 5), listener_of(good));
  const PassMessage pass = loop.next_pass();
  std::vector<float> logits = texts.forward(pass.pass);
  logits[3] = std::nanf("");
  loop.consume(logits);
  run_all(loop, texts);
  EXPECT_EQ(bad.finish->reason, FinishReason::kFailed);
  EXPECT_NE(bad.finish->error.find("not a finite number"), std::string::npos) << bad.finish->error;
  EXPECT_EQ(warnings, std::vector{bad.finish->error});
  EXPECT_EQ(good.tokens, continued({2}, 5));
}

TEST(RequestLoop, EndsAllRequestsWithTheErrorOfTheRanks) {
  RequestLoop loop(small_options());
  Heard heard;
  loop.submit(greedy({1}, 5), listener_of(heard));
  loop.end("rank 1 is lost");
  EXPECT_EQ(heard.finish->reason, FinishReason::kFailed);
  EXPECT_EQ(heard.finish->error, "rank 1 is lost");
  EXPECT_FALSE(loop.status().ready);
  EXPECT_THROW(loop.submit(greedy({1}, 5), {}), SystemError);
}

TEST(RequestLoop, RefusesTokensThatTheModelLacks) {
  RequestLoop loop(small_options());
  EXPECT_THROW(loop.submit(greedy({}, 5), {}), UserError);
  EXPECT_THROW(loop.submit(greedy({kVocabulary}, 5), {}), UserError);
  EXPECT_THROW(loop.submit(greedy({-1}, 5), {}), UserError);
  for (const std::int64_t token : {std::int64_t{-1}, kVocabulary}) {
    SequenceRequest request = greedy({1}, 5);
    request.ends = {token};
    EXPECT_THROW(loop.submit(std::move(request), {}), UserError);
  }
  EXPECT_EQ(loop.status().waiting, 0);
}

TEST(PassMessage, SurvivesItsTensor) {
  const PassMessage sent{.order = PassOrder::kRun,
                         .pass = {{.tokens = {5}, .position = 9, .pages = {3, 1}, .logits = 1},
                                  {.tokens = {1, 2, 3}, .position = 0, .pages = {0}, .logits = 0}}};
  const PassMessage got = pass_message_of(tensor_of(sent));
  EXPECT_EQ(got.order, PassOrder::kRun);
  ASSERT_EQ(got.pass.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got.pass[i].tokens, sent.pass[i].tokens);
    EXPECT_EQ(got.pass[i].pages, sent.pass[i].pages);
    EXPECT_EQ(got.pass[i].position, sent.pass[i].position);
    EXPECT_EQ(got.pass[i].logits, sent.pass[i].logits);
  }
  EXPECT_EQ(pass_message_of(tensor_of({.order = PassOrder::kStop})).order, PassOrder::kStop);
  const PassMessage load =
      pass_message_of(tensor_of({.order = PassOrder::kLoad, .checkpoint = "a/b"}));
  EXPECT_EQ(load.order, PassOrder::kLoad);
  EXPECT_EQ(load.checkpoint, "a/b");
  EXPECT_THROW(pass_message_of(tensor_of(sent).slice(0, 0, 8)), InternalError);
}

}  // namespace
}  // namespace strata
