/// Runs a scheduler against a model that is a function of the text, and checks its promises after
/// each pass.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/philox.h"
#include "strata/batching/batch_scheduler.h"

namespace strata {

using Ids = std::vector<std::int64_t>;

// A model whose keys and values of a token are a hash of the weights and of all tokens up to it,
// and whose next token is a function of that hash.
class HashModel {
 public:
  HashModel(const BatchLimits& limits)
      : page_tokens_(limits.page_tokens),
        memory_((limits.pages + limits.host_pages + limits.disk_pages) * limits.page_tokens) {}

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

  // Leaves nothing where a page was.
  void move(const PageMove& move) {
    for (std::int64_t i = 0; i < page_tokens_; ++i)
      memory_.at(move.to * page_tokens_ + i) =
          std::exchange(memory_.at(move.from * page_tokens_ + i), 0);
  }

  // Writes the states of a row and returns those that need logits. The states of earlier tokens
  // come from pages; `text` is what they must describe.
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
    for (const PageMove& move : batch.moves) model_.move(move);
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
      for (const std::int32_t page : part.pages) EXPECT_LT(page, limits_.pages);
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

inline BatchLimits small_limits() {
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

inline Ids count_to(std::int64_t last, std::int64_t from = 1) {
  Ids ids(last - from + 1);
  std::iota(ids.begin(), ids.end(), from);
  return ids;
}

}  // namespace strata
