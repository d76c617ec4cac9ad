#include "strata/batching/service_load.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/philox.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kPromptSeed = 0x10ad;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

Waits waits_of(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::ranges::sort(seconds);
  const auto at = [&](double share) {
    return seconds[static_cast<std::size_t>(share * static_cast<double>(seconds.size() - 1))];
  };
  return {.median = at(0.5), .most = at(0.99)};
}

// The clients, and what they have seen since the measurement began.
class Clients {
 public:
  Clients(TokenService& service, const ServiceLoad& load)
      : service_(service), load_(load), clients_(static_cast<std::size_t>(load.clients)) {}

  // Listeners refer to this object, so no request may outlive it.
  ~Clients() {
    for (const Client& client : clients_) service_.cancel(client.id);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::ranges::all_of(clients_, &Client::idle); });
  }

  ServiceRates run() {
    for (std::size_t client = 0; client < clients_.size(); ++client) send(client);
    keep_busy([&] { return std::ranges::all_of(clients_, &Client::has_answer); });
    const Clock::time_point begin = begin_measurement();
    keep_busy([&] { return answers_ >= load_.clients && Clock::now() >= begin + load_.time; });
    return rates_since(begin);
  }

 private:
  struct Client {
    std::uint64_t id = 0;     // of its last request
    bool idle = true;         // the request has ended
    bool has_answer = false;  // the first request has ended
    bool has_token = false;
    Clock::time_point last{};  // token, or else the request
  };

  SequenceRequest request() {
    SequenceRequest request{.max_tokens = load_.answer_tokens};
    const std::uint64_t key = mix_key(kPromptSeed, number_++);
    for (std::int64_t i = 0; i < load_.prompt_tokens; ++i)
      request.prompt.push_back(
          static_cast<std::int64_t>(mix_key(key, static_cast<std::uint64_t>(i)) %
                                    static_cast<std::uint64_t>(service_.vocabulary())));
    request.sampling.seed = key;
    return request;
  }

  void send(std::size_t client) {
    {
      const std::scoped_lock lock(mutex_);
      clients_[client].idle = clients_[client].has_token = false;
      clients_[client].last = Clock::now();
    }
    std::uint64_t id = 0;
    try {
      id = service_
               .submit(request(),
                       {.on_prompt = {},
                        .on_token = [this, client](const ScoredToken&) { on_token(client); },
                        .on_finish = [this, client](const Finish& end) { on_finish(client, end); }})
               .id;
      if (id == 0) fail("the service refused a request");
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      clients_[client].idle = true;
      throw;
    }
    const std::scoped_lock lock(mutex_);
    clients_[client].id = id;
  }

  void on_token(std::size_t client) {
    const Clock::time_point now = Clock::now();
    const std::scoped_lock lock(mutex_);
    Client& of = clients_[client];
    (of.has_token ? between_tokens_ : first_token_).push_back(seconds_between(of.last, now));
    of.has_token = true;
    of.last = now;
    ++tokens_;
  }

  void on_finish(std::size_t client, const Finish& end) {
    const std::scoped_lock lock(mutex_);
    Client& of = clients_[client];
    of.idle = true;
    if (end.reason == FinishReason::kFailed && error_.empty()) error_ = end.error;
    if (end.reason == FinishReason::kLength) {
      of.has_answer = true;
      ++answers_;
    }
    changed_.notify_all();
  }

  // Sends each client's next request until the condition holds.
  void keep_busy(const auto& done) {
    std::unique_lock lock(mutex_);
    while (!done() && error_.empty()) {
      const auto idle = std::ranges::find(clients_, true, &Client::idle);
      if (idle == clients_.end()) {
        changed_.wait_for(lock, std::chrono::milliseconds(10));
        continue;
      }
      lock.unlock();
      send(static_cast<std::size_t>(idle - clients_.begin()));
      lock.lock();
    }
    if (error_.empty()) return;
    const std::string error = error_;
    lock.unlock();
    fail(error);
  }

  Clock::time_point begin_measurement() {
    const std::scoped_lock lock(mutex_);
    first_token_.clear();
    between_tokens_.clear();
    answers_ = tokens_ = 0;
    return Clock::now();
  }

  ServiceRates rates_since(Clock::time_point begin) {
    const std::scoped_lock lock(mutex_);
    const double seconds = seconds_between(begin, Clock::now());
    const auto rate = [&](std::int64_t count) { return static_cast<double>(count) / seconds; };
    return {.answers = answers_,
            .seconds = seconds,
            .tokens_per_second = rate(tokens_),
            .prompt_tokens_per_second = rate(answers_ * load_.prompt_tokens),
            .first_token = waits_of(first_token_),
            .between_tokens = waits_of(between_tokens_)};
  }

  [[noreturn]] static void fail(const std::string& why) {
    throw SystemError({.operation = "batching.measure",
                       .where = "a measured request",
                       .what = why,
                       .expected = "an answer",
                       .got = {},
                       .fix = "measure fewer answers at once"});
  }

  TokenService& service_;
  const ServiceLoad load_;
  std::uint64_t number_ = 0;  // of requests
  std::mutex mutex_;          // of what follows
  std::condition_variable changed_;
  std::vector<Client> clients_;
  std::vector<double> first_token_, between_tokens_;
  std::int64_t answers_ = 0, tokens_ = 0;
  std::string error_;
};

}  // namespace

ServiceRates measure_load(TokenService& service, const ServiceLoad& load) {
  return Clients(service, load).run();
}

}  // namespace strata
