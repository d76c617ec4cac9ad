// Measures a service that gives every request a token a round.
#include "strata/batching/service_load.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::chrono::milliseconds kRound{2};

// Each round takes kRound and gives every request a token; the first one after `first` rounds.
class RoundService final : public TokenService {
 public:
  explicit RoundService(std::int64_t first, std::int64_t refuses_after = 1 << 20,
                        std::int64_t fails_at = 1 << 20)
      : first_(first), refuses_after_(refuses_after), fails_at_(fails_at) {}

  Admission submit(SequenceRequest request, SequenceListener listener) override {
    const std::scoped_lock lock(mutex_);
    if (std::ssize(prompts) >= refuses_after_) return {};
    if (request.prompt.size() > 1000) throw std::invalid_argument("too long");
    EXPECT_TRUE(prompts.insert(request.prompt).second) << "a prompt came twice";
    most_running = std::max<std::int64_t>(most_running, std::ssize(running_) + 1);
    running_[++last_] = {std::move(request), std::move(listener), -first_};
    return {.id = last_};
  }
  void cancel(std::uint64_t id) override {
    const std::scoped_lock lock(mutex_);
    if (const auto found = running_.find(id); found != running_.end())
      found->second.cancelled = true;
  }
  ServiceStatus status() const override { return {}; }
  std::int64_t context() const override { return 1024; }
  std::int64_t most_waiting() const override { return 16; }
  std::int64_t vocabulary() const override { return 50; }
  std::string weights() const override { return ""; }

  std::set<std::vector<std::int64_t>> prompts;
  std::int64_t most_running = 0;
  std::int64_t tokens = 0;  ///< of all answers

  std::size_t running() const {
    const std::scoped_lock lock(mutex_);
    return running_.size();
  }

 private:
  struct Running {
    SequenceRequest request;
    SequenceListener listener;
    std::int64_t tokens = 0;
    bool cancelled = false;
  };
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(kRound);
      const std::scoped_lock lock(mutex_);
      for (auto each = running_.begin(); each != running_.end();)
        each = step(each->second) ? running_.erase(each) : std::next(each);
    }
  }
  // Whether the request has ended.
  bool step(Running& running) {
    const bool fails = running.tokens == fails_at_;
    if (running.cancelled || fails) {
      running.listener.on_finish(
          {.reason = fails ? FinishReason::kFailed : FinishReason::kCancelled,
           .cached_tokens = 0,
           .error = fails ? "the model broke" : ""});
      return true;
    }
    if (++running.tokens > 0) {
      ++tokens;
      running.listener.on_token({.token = 1});
    }
    if (running.tokens < running.request.max_tokens) return false;
    running.listener.on_finish({.reason = FinishReason::kLength});
    return true;
  }

  const std::int64_t first_, refuses_after_, fails_at_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Running> running_;
  std::uint64_t last_ = 0;
  std::jthread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

TEST(ServiceLoad, MeasuresRatesAndWaits) {
  RoundService service(/*first=*/10);
  const ServiceRates rates = measure_load(
      service,
      {.clients = 3, .prompt_tokens = 7, .answer_tokens = 20, .time = std::chrono::seconds(1)});
  EXPECT_EQ(service.most_running, 3);
  EXPECT_EQ(service.running(), 0U);
  EXPECT_GE(rates.seconds, 1);
  const double round = rates.between_tokens.median;  // at least kRound; longer on a busy machine
  EXPECT_GE(round, 0.0019);
  EXPECT_GE(rates.first_token.median, 10 * 0.0019);
  EXPECT_LE(rates.between_tokens.median, rates.between_tokens.most);
  EXPECT_LE(rates.first_token.median, rates.first_token.most);
  // The first answer of each client precedes the measurement.
  EXPECT_LE(rates.tokens_per_second * rates.seconds,
            static_cast<double>(service.tokens - 3 * 20) + 0.1);
  // An answer takes 30 rounds and has 20 tokens.
  EXPECT_NEAR(rates.tokens_per_second * round, 3 * 20.0 / 30, 0.8);
  EXPECT_NEAR(rates.tokens_per_second / rates.prompt_tokens_per_second, 20.0 / 7, 0.8);
  EXPECT_NEAR(rates.prompt_tokens_per_second * rates.seconds,
              static_cast<double>(7 * rates.answers), 1e-6);
}

TEST(ServiceLoad, LastsUntilAsManyAnswersEndedAsThereAreClients) {
  RoundService service(/*first=*/100);
  const ServiceRates rates = measure_load(
      service,
      {.clients = 2, .prompt_tokens = 2, .answer_tokens = 2, .time = std::chrono::milliseconds(1)});
  EXPECT_GE(rates.answers, 2);
}

TEST(ServiceLoad, EndsItsRequestsIfTheServiceRefusesThrowsOrFails) {
  RoundService refusing(/*first=*/1, /*refuses_after=*/1),
      failing(/*first=*/1, 1 << 20, /*fails_at=*/3), throwing(/*first=*/1);
  EXPECT_THROW(measure_load(refusing, {.clients = 2}), SystemError);
  EXPECT_EQ(refusing.running(), 0U);
  try {
    measure_load(failing, {.clients = 2});
    ADD_FAILURE() << "no error";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.text().what, "the model broke");
  }
  EXPECT_EQ(failing.running(), 0U);
  EXPECT_THROW(measure_load(throwing, {.clients = 2, .prompt_tokens = 2000}),
               std::invalid_argument);
}

}  // namespace
}  // namespace strata
