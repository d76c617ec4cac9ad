/// Answers requests without a model, in its own thread: token i of an answer is token i of the
/// prompt, over and over; with a temperature it is token i + seed. With a script, token i is that
/// of the script. In place of a token that may not follow it is the first one that may. The
/// embedding of a prompt is its first and its last token.
///
/// The log probability of a token is that of fake_score(), or 0 without `likeliest`. Each round
/// hands one token to every request, so the answers of several requests interleave.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "strata/batching/token_service.h"

namespace strata {

/// An exact binary fraction, so that JSON shows it in full.
inline double fake_score(std::int64_t token, std::int64_t position) {
  return -0.25 - 0.125 * static_cast<double>((token + position) % 8);
}

class FakeService final : public TokenService {
 public:
  struct Options {
    std::int64_t context = 128;
    std::int64_t vocabulary = 256;
    std::size_t most_requests = 64;           ///< more are refused
    std::int64_t most_waiting = 64;           ///< what most_waiting() returns
    std::chrono::milliseconds token_time{0};  ///< of a round
    std::vector<std::int64_t> script = {};    ///< answers in place of the prompt
    std::int64_t fails_at = -1;               ///< the number of the token that fails
    std::size_t throws_at = SIZE_MAX;         ///< the number of the submission that throws
  };

  explicit FakeService(Options options)
      : options_(std::move(options)), thread_([this] { run(); }) {}
  ~FakeService() override {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Admission submit(SequenceRequest request, SequenceListener listener) override {
    const std::scoped_lock lock(mutex_);
    if (requests_.size() == options_.throws_at) throw std::runtime_error("the fake is broken");
    if (running_.size() >= options_.most_requests) {
      ++refusals_;
      return {.id = 0, .retry_after = std::chrono::milliseconds(1500)};
    }
    requests_.push_back(request);
    running_[++last_id_] = {std::move(request), std::move(listener)};
    changed_.notify_all();
    return {.id = last_id_};
  }

  void cancel(std::uint64_t id) override {
    const std::scoped_lock lock(mutex_);
    if (const auto found = running_.find(id); found != running_.end()) {
      found->second.cancelled = true;
      ++cancels_;
    }
  }

  ServiceStatus status() const override {
    const std::scoped_lock lock(mutex_);
    return {.ready = ready,
            .running = static_cast<std::int64_t>(running_.size()),
            .pages = 64,
            .used_pages = static_cast<std::int64_t>(running_.size()),
            .prompt_tokens = prompt_tokens_,
            .generated_tokens = generated_tokens_,
            .cached_prompt_tokens = 3,
            .preemptions = 2,
            .refusals = refusals_,
            .passes = passes_};
  }
  std::int64_t context() const override { return options_.context; }
  std::int64_t most_waiting() const override { return options_.most_waiting; }
  std::string weights() const override { return "step-00000007"; }
  std::int64_t vocabulary() const override { return options_.vocabulary; }

  /// What was submitted, in order.
  std::vector<SequenceRequest> requests() const {
    const std::scoped_lock lock(mutex_);
    return requests_;
  }
  int cancels() const {
    const std::scoped_lock lock(mutex_);
    return cancels_;
  }
  void wait_until_idle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return running_.empty(); });
  }

  std::atomic<bool> ready = true;

 private:
  struct Running {
    SequenceRequest request;
    SequenceListener listener;
    std::vector<std::int64_t> answer = {};
    bool cancelled = false;
  };

  ScoredToken scored(const Running& running, std::int64_t token, std::int64_t position) const {
    if (!running.request.likeliest) return {.token = token};
    ScoredToken scored{.token = token, .log_probability = fake_score(token, position)};
    for (int i = 0; i < *running.request.likeliest; ++i) {
      const std::int64_t other = (token + i) % options_.vocabulary;
      scored.likeliest.emplace_back(other, fake_score(token, position) - 0.5 * i);
    }
    return scored;
  }

  void score_prompt(const Running& running) const {
    std::vector<ScoredToken> scores;
    const auto& prompt = running.request.prompt;
    for (std::size_t i = 1; i < prompt.size(); ++i)
      scores.push_back(scored(running, prompt[i], static_cast<std::int64_t>(i)));
    if (running.listener.on_prompt) running.listener.on_prompt(std::move(scores));
  }

  // The token, or the first one that may follow; -1: none may.
  std::int64_t permitted(const SequenceRequest& request, const std::vector<std::int64_t>& answer,
                         std::int64_t token) const {
    if (!request.allowed) return token;
    const std::vector<std::uint64_t> bits = request.allowed(answer);
    const auto may = [&](std::int64_t i) { return (bits.at(i / 64) >> (i % 64) & 1) != 0; };
    if (may(token)) return token;
    for (std::int64_t i = 0; i < options_.vocabulary; ++i)
      if (may(i)) return i;
    return -1;
  }

  // Null: the request continues.
  const Finish* next(Running& running) const {
    static const Finish kStopped{.reason = FinishReason::kStop, .cached_tokens = 1, .error = {}};
    static const Finish kLength{.reason = FinishReason::kLength, .cached_tokens = 1, .error = {}};
    static const Finish kGone{.reason = FinishReason::kCancelled, .cached_tokens = 0, .error = {}};
    static const Finish kFailed{
        .reason = FinishReason::kFailed, .cached_tokens = 0, .error = "the fake failed"};
    const SequenceRequest& request = running.request;
    if (running.cancelled) return &kGone;
    const auto count = static_cast<std::int64_t>(running.answer.size());
    if (count == 0 && request.score_prompt) score_prompt(running);
    if (count == 0 && request.embed)
      running.listener.on_embedding(
          {static_cast<float>(request.prompt.front()), static_cast<float>(request.prompt.back())});
    if (count >= request.max_tokens) return &kLength;
    if (count == options_.fails_at) return &kFailed;
    const auto& source = options_.script.empty() ? request.prompt : options_.script;
    const bool draws = request.sampling.temperature > 0 && options_.script.empty();
    const std::uint64_t shift = draws ? request.sampling.seed : 0;
    std::int64_t token = source[(static_cast<std::uint64_t>(count) + shift) % source.size()];
    try {
      token = permitted(request, running.answer, token);
    } catch (const std::exception&) {
      return &kFailed;
    }
    if (token < 0) return &kStopped;
    if (count >= request.min_tokens && std::ranges::count(request.ends, token) > 0)
      return &kStopped;
    running.answer.push_back(token);
    running.listener.on_token(
        scored(running, token, static_cast<std::int64_t>(request.prompt.size()) + count));
    return count + 1 >= request.max_tokens ? &kLength : nullptr;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ends_ || !running_.empty(); });
      if (ends_) break;
      if (options_.token_time.count() > 0) {
        lock.unlock();
        std::this_thread::sleep_for(options_.token_time);
        lock.lock();
      }
      ++passes_;
      round(lock);
      changed_.notify_all();
    }
    for (auto& [id, running] : running_)
      running.listener.on_finish({.reason = FinishReason::kCancelled});
  }

  // Listeners are called without the lock: they may submit and cancel. Only this thread erases.
  void round(std::unique_lock<std::mutex>& lock) {
    std::vector<std::uint64_t> ids;
    for (const auto& [id, running] : running_) ids.push_back(id);
    for (const std::uint64_t id : ids) {
      Running& running = running_.at(id);
      if (running.answer.empty())
        prompt_tokens_ += static_cast<std::int64_t>(running.request.prompt.size());
      const std::size_t before = running.answer.size();
      Running copy = running;
      lock.unlock();
      const Finish* finish = next(copy);
      if (finish != nullptr) copy.listener.on_finish(*finish);
      lock.lock();
      running.answer = std::move(copy.answer);
      generated_tokens_ += static_cast<std::int64_t>(running.answer.size() - before);
      if (finish != nullptr) running_.erase(id);
    }
  }

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::map<std::uint64_t, Running> running_;
  std::vector<SequenceRequest> requests_;
  std::uint64_t last_id_ = 0;
  int cancels_ = 0;
  std::int64_t refusals_ = 0, prompt_tokens_ = 0, generated_tokens_ = 0, passes_ = 0;
  std::thread thread_;
};

}  // namespace strata
