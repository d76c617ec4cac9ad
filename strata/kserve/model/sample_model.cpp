#include "strata/kserve/model/sample_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "strata/base/errors.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

using Clock = SampleQueue::Clock;

constexpr const char *kScore = "score", *kLogit = "logit";
constexpr const char *kFailed = "BACKEND", *kLeft = "CANCELED", *kRefused = "REJECTED";
constexpr std::chrono::milliseconds kRetryAfter{100};

struct PendingRequest {
  std::vector<std::string> outputs;
  std::shared_ptr<InferenceSink> sink;
  std::unique_ptr<const RequestSamples> samples;
  std::int64_t count = 0;
  std::shared_ptr<KeyUse> use;  // null: the server needs no keys
  Clock::time_point arrival = {};
  std::atomic<bool> ended = false;  // the thread that sets it ends the request
};
using Pending = std::shared_ptr<PendingRequest>;

// Computes the logistic function as an evaluation does.
float probability(float logit) {
  return static_cast<float>(1 / (1 + std::exp(-static_cast<double>(logit))));
}

Tensor sample_tensor(const std::string& name, std::span<const float> logits) {
  Tensor tensor{name, Datatype::kFp32, {static_cast<std::int64_t>(logits.size())}};
  for (const float logit : logits)
    append_value(tensor.bytes, name == kScore ? probability(logit) : logit);
  return tensor;
}

ApiError not_ready(const std::string& message) {
  return ApiError({.status = 503,
                   .message = message,
                   .type = "server_error",
                   .code = "not_ready",
                   .retry_after = std::chrono::seconds(1)});
}

ApiError failure_of(const std::exception& error) {
  if (const auto* api = dynamic_cast<const ApiError*>(&error)) return *api;
  if (dynamic_cast<const SystemError*>(&error) != nullptr) return not_ready(error.what());
  return ApiError({.status = 500, .message = error.what(), .type = "server_error"});
}

// The number of samples of a request that fits the description.
std::int64_t count_samples(const InferenceRequest& request, std::int64_t most) {
  const Tensor& first = request.inputs.at(0);
  const std::int64_t samples = first.shape.at(0);
  for (const Tensor& tensor : request.inputs)
    if (tensor.shape.at(0) != samples)
      refuse_tensor(tensor.name, "has the shape " + shape_text(tensor.shape) + ", and '" +
                                     first.name + "' has " + shape_text(first.shape) +
                                     "; each input has an element for each sample");
  if (samples == 0) refuse_tensor(first.name, "has no samples");
  if (samples > most)
    refuse_tensor(first.name, "has " + std::to_string(samples) +
                                  " samples; a request has at most " + std::to_string(most));
  return samples;
}

// generate_stream sets `stream`; a stream of scores has one answer.
void refuse_any_parameters(const nlohmann::json& parameters) {
  for (const auto& [name, value] : parameters.items())
    if (name != "stream") refuse_unsupported(name, "a request for scores has no parameters");
}

ModelDescription describe_samples(const std::string& name, const std::string& platform,
                                  const SampleScorer& scorer) {
  ModelDescription description{
      .name = name,
      .platform = platform,
      .inputs = scorer.inputs(),
      .outputs = {{.name = kScore, .datatype = Datatype::kFp32, .shape = {-1}},
                  {.name = kLogit, .datatype = Datatype::kFp32, .shape = {-1}, .optional = true}}};
  for (const std::string& number : scorer.numbers())
    description.outputs.push_back(
        {.name = number, .datatype = Datatype::kInt64, .shape = {1}, .optional = true});
  return description;
}

void count(RequestTime& time, Clock::time_point begin) {
  ++time.count;
  time.nanoseconds += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
}

}  // namespace

struct SampleModel::Parts {
  Parts(ModelDescription model, std::shared_ptr<SampleScorer> by, SampleLimits limits)
      : description(std::move(model)),
        scorer(std::move(by)),
        numbers(scorer->numbers()),
        queue(limits) {}

  void run_passes();
  std::vector<Pending> take_pass();
  void perform(const std::vector<Pending>& pass);
  void answer(const Pending& request, std::span<const float> logits,
              std::span<const std::int64_t> values);
  void fail(const Pending& request, const ApiError& error);
  void cancel(std::uint64_t id, const Pending& request);
  void count_end(PendingRequest& request, const char* failure);

  const ModelDescription description;
  const std::shared_ptr<SampleScorer> scorer;
  const std::vector<std::string> numbers;

  mutable std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  SampleQueue queue;
  std::map<std::uint64_t, Pending> waiting;
  std::uint64_t last_id = 0;
  std::int64_t running = 0;
  bool stops = false;
  ModelStatistics statistics{.failures = {{kFailed, {}}, {kLeft, {}}, {kRefused, {}}}};

  std::thread thread;
};

std::vector<Pending> SampleModel::Parts::take_pass() {
  std::vector<Pending> pass;
  for (const std::uint64_t id : queue.take()) pass.push_back(waiting.extract(id).mapped());
  return pass;
}

void SampleModel::Parts::run_passes() {
  std::unique_lock lock(mutex);
  while (!stops) {
    const auto due = queue.due();
    if (!due) {
      changed.wait(lock);
    } else if (*due > Clock::now()) {
      changed.wait_until(lock, *due);
    } else {
      const std::vector<Pending> pass = take_pass();
      lock.unlock();
      perform(pass);
      lock.lock();
    }
  }
  const auto unanswered = std::exchange(waiting, {});
  lock.unlock();
  for (const auto& [id, request] : unanswered) fail(request, not_ready("the server ends"));
}

// A failed pass ends its requests; later ones are computed.
void SampleModel::Parts::perform(const std::vector<Pending>& pass) {
  std::vector<const RequestSamples*> samples;
  std::size_t expected = 0;
  for (const Pending& request : pass) {
    samples.push_back(request->samples.get());
    expected += static_cast<std::size_t>(request->count);
  }
  SampleScores scores;
  try {
    scores = scorer->score(samples);
    STRATA_CHECK_EQ(scores.logits.size(), expected, "kserve.sample_model");
    STRATA_CHECK_EQ(scores.numbers.size(), numbers.size(), "kserve.sample_model");
  } catch (const std::exception& error) {
    for (const Pending& request : pass) fail(request, failure_of(error));
    return;
  }
  {
    const std::scoped_lock lock(mutex);
    ++statistics.executions;
  }
  std::span<const float> rest = scores.logits;
  for (const Pending& request : pass) {
    const auto own = static_cast<std::size_t>(request->count);
    answer(request, rest.first(own), scores.numbers);
    rest = rest.subspan(own);
  }
}

void SampleModel::Parts::answer(const Pending& request, std::span<const float> logits,
                                std::span<const std::int64_t> values) {
  if (request->ended.exchange(true)) return;
  InferenceAnswer answer;
  for (const std::string& name : request->outputs) {
    const auto number = std::ranges::find(numbers, name);
    if (number == numbers.end()) {
      answer.outputs.push_back(sample_tensor(name, logits));
      continue;
    }
    answer.outputs.push_back({name, Datatype::kInt64, {1}});
    append_value(answer.outputs.back().bytes,
                 values[static_cast<std::size_t>(number - numbers.begin())]);
  }
  count_end(*request, nullptr);
  request->sink->on_answer(std::move(answer));
}

void SampleModel::Parts::fail(const Pending& request, const ApiError& error) {
  if (request->ended.exchange(true)) return;
  count_end(*request, kFailed);
  request->sink->on_error(error);
}

void SampleModel::Parts::cancel(std::uint64_t id, const Pending& request) {
  if (request->ended.exchange(true)) return;
  {
    const std::scoped_lock lock(mutex);
    if (queue.remove(id)) waiting.erase(id);
  }
  count_end(*request, kLeft);
}

// Called before the answer is sent, because the next request may need the key at once.
void SampleModel::Parts::count_end(PendingRequest& request, const char* failure) {
  request.use.reset();
  const std::scoped_lock lock(mutex);
  --running;
  count(failure ? statistics.failures[failure] : statistics.success, request.arrival);
  statistics.last_request =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
}

SampleModel::SampleModel(const std::string& name, const std::string& platform,
                         std::shared_ptr<SampleScorer> scorer, SampleLimits limits)
    : parts_(std::make_shared<Parts>(describe_samples(name, platform, *scorer), scorer, limits)) {
  parts_->thread =
      std::thread([parts = parts_.get()] { parts->scorer->run([parts] { parts->run_passes(); }); });
}

SampleModel::~SampleModel() {
  {
    const std::scoped_lock lock(parts_->mutex);
    parts_->stops = true;
  }
  parts_->changed.notify_all();
  parts_->thread.join();
}

const ModelDescription& SampleModel::description() const { return parts_->description; }

bool SampleModel::ready() const { return parts_->scorer->ready(); }

ModelStatistics SampleModel::statistics() const {
  const std::scoped_lock lock(parts_->mutex);
  ModelStatistics statistics = parts_->statistics;
  statistics.pending = static_cast<std::int64_t>(parts_->queue.size());
  return statistics;
}

std::int64_t SampleModel::running() const {
  const std::scoped_lock lock(parts_->mutex);
  return parts_->running;
}

std::function<void()> SampleModel::infer(InferenceRequest request,
                                         std::shared_ptr<InferenceSink> sink) {
  if (!ready()) throw not_ready("the model '" + parts_->description.name + "' is not ready");
  refuse_any_parameters(request.parameters);
  const auto pending = std::make_shared<PendingRequest>();
  pending->arrival = Clock::now();
  pending->count = count_samples(request, parts_->queue.limits().samples);
  try {
    pending->samples = parts_->scorer->read(request, pending->count);
  } catch (const Error& error) {
    throw ApiError::of(error);
  }
  pending->outputs = std::move(request.outputs);
  if (pending->outputs.empty()) pending->outputs = {kScore};
  pending->sink = std::move(sink);
  if (request.key) pending->use = request.key->use(0);
  std::uint64_t id = 0;
  {
    const std::scoped_lock lock(parts_->mutex);
    id = ++parts_->last_id;
    if (!parts_->queue.add(id, pending->count, pending->arrival)) {
      count(parts_->statistics.failures[kRefused], pending->arrival);
      throw ApiError({.status = 429,
                      .message = "the server is busy; try again later",
                      .type = "rate_limit_error",
                      .code = "server_busy",
                      .retry_after = kRetryAfter});
    }
    parts_->waiting.emplace(id, pending);
    ++parts_->running;
  }
  parts_->changed.notify_all();
  return [parts = std::weak_ptr(parts_), id, left = std::weak_ptr(pending)] {
    const auto alive = parts.lock();
    if (const auto request = left.lock(); alive && request) alive->cancel(id, request);
  };
}

}  // namespace strata
