// The mutex guards scheduler and answers. Passes, sampling and listeners run without it.
#include "strata/serve/request_loop.h"

#include <utility>

#include "strata/base/error_source.h"
#include "strata/batching/speculation.h"

namespace strata {
namespace {

constexpr ErrorSource kErrors{"serve.request"};
// Between two signs of life of the deciding rank.
constexpr std::chrono::seconds kWaitTime{1};
constexpr std::int64_t kNgram = 3;

void check_tokens(const char* list, const std::vector<std::int64_t>& tokens,
                  std::int64_t vocabulary) {
  for (const std::int64_t token : tokens)
    if (token < 0 || token >= vocabulary)
      throw kErrors.user(list, "the model has no such token",
                         "0 to " + std::to_string(vocabulary - 1), std::to_string(token),
                         "use the tokenizer of the model");
}

void check(const SequenceRequest& request, std::int64_t vocabulary) {
  if (request.prompt.empty())
    throw kErrors.user("prompt", "nothing to continue", "at least one token", "none",
                       "give the prompt a token");
  check_tokens("prompt", request.prompt, vocabulary);
  check_tokens("ends", request.ends, vocabulary);
  check_sampling(request.sampling, vocabulary);
}

}  // namespace

RequestLoop::RequestLoop(const RequestLoopOptions& options)
    : options_(options), scheduler_(options.limits), weights_(options.weights) {}

Admission RequestLoop::submit(SequenceRequest request, SequenceListener listener) {
  check(request, options_.vocabulary);
  NewSequence sequence{.prompt = request.prompt,
                       .max_tokens = request.max_tokens,
                       .score_prompt = request.score_prompt,
                       .key = request.scope};
  auto answer = std::make_shared<Answer>(std::move(request), std::move(listener));
  const Lock lock(mutex_);
  if (ended_)
    throw kErrors.system("", "the model is not served any more", "ranks that run",
                         "ranks that have ended", "start the server again");
  const Admission admission = scheduler_.add(std::move(sequence));
  if (admission.id != 0) answers_[admission.id] = std::move(answer);
  changed_.notify_all();
  return admission;
}

void RequestLoop::cancel(std::uint64_t id) {
  const Lock lock(mutex_);
  if (answers_.contains(id)) cancelled_.insert(id);
  changed_.notify_all();
}

ServiceStatus RequestLoop::status() const {
  const Lock lock(mutex_);
  ServiceStatus status = scheduler_.status();
  status.ready = !ended_;
  return status;
}

void RequestLoop::stop() {
  const Lock lock(mutex_);
  stops_ = true;
  changed_.notify_all();
}

void RequestLoop::end(const std::string& error) {
  Lock lock(mutex_);
  if (ended_) return;
  ended_ = true;
  changed_.notify_all();
  const FinishReason reason = error.empty() ? FinishReason::kCancelled : FinishReason::kFailed;
  while (!answers_.empty()) finish(lock, answers_.begin()->first, reason, error);
}

bool RequestLoop::load(const std::string& checkpoint, const std::string& name) {
  Lock lock(mutex_);
  if (refuses_loads_) return false;
  const std::uint64_t before = version_;
  checkpoint_ = checkpoint;
  next_weights_ = name;
  scheduler_.hold();
  changed_.notify_all();
  changed_.wait(lock, [&] { return checkpoint_.empty() || ended_; });
  if (!checkpoint_.empty())
    throw kErrors.system(checkpoint, "the ranks have ended before they had the weights",
                         "ranks that run", "ranks that have ended", "start the server again");
  return version_ != before;
}

void RequestLoop::refuse_loads() {
  const Lock lock(mutex_);
  refuses_loads_ = true;
  if (!loads_) end_load();
}

void RequestLoop::loaded() {
  const Lock lock(mutex_);
  scheduler_.set_weights(++version_);
  weights_ = next_weights_;
  loads_ = false;
  end_load();
}

void RequestLoop::end_load() {
  checkpoint_.clear();
  scheduler_.release();
  changed_.notify_all();
}

std::string RequestLoop::weights() const {
  const Lock lock(mutex_);
  return weights_;
}

PassMessage RequestLoop::next_pass() {
  Lock lock(mutex_);
  const auto has_work = [&] {
    return stops_ || !cancelled_.empty() || !scheduler_.empty() || !checkpoint_.empty();
  };
  changed_.wait_for(lock, kWaitTime, has_work);
  finish_cancelled(lock);
  if (stops_) return {.order = PassOrder::kStop};
  loads_ = !checkpoint_.empty() && scheduler_.drained();
  if (loads_) return {.order = PassOrder::kLoad, .checkpoint = checkpoint_};
  if (scheduler_.empty()) return {.order = PassOrder::kWait};
  guess();
  batch_ = scheduler_.next_pass();
  pass_start_ = std::chrono::steady_clock::now();
  return {.order = PassOrder::kRun, .moves = batch_.moves, .pass = batch_.pass};
}

void RequestLoop::guess() {
  if (options_.guesses == 0) return;
  for (const BatchRow& row : batch_.rows) {
    if (!row.chooses || !answers_.contains(row.id)) continue;  // not decoding
    if (options_.drafts) {                                     // draft() replaces them
      scheduler_.guess(row.id,
                       std::vector<std::int64_t>(static_cast<std::size_t>(options_.guesses)));
    } else {
      scheduler_.guess(row.id,
                       guess_by_ngrams(scheduler_.tokens(row.id), kNgram, options_.guesses));
    }
  }
}

const Pass& RequestLoop::draft(const GuessTokens& guess) {
  std::vector<std::shared_ptr<const Answer>> answers;
  {
    const Lock lock(mutex_);
    for (const BatchRow& row : batch_.rows) answers.push_back(answers_.at(row.id));
  }
  guess(batch_,
        [&](std::size_t row, std::span<const float> logits, std::span<const std::int64_t> guesses) {
          return answers[row]->guess(sampler_, logits, guesses);
        });
  const Lock lock(mutex_);
  scheduler_.replace_guesses(batch_);
  return batch_.pass;
}

void RequestLoop::consume(std::span<const float> logits, std::span<const float> states) {
  const std::size_t rows = logits.size() / static_cast<std::size_t>(options_.vocabulary);
  const std::size_t width = rows > 0 ? states.size() / rows : 0;
  for (std::size_t i = 0; i < batch_.rows.size(); ++i) {
    const BatchRow& row = batch_.rows[i];
    const PassTokens& tokens = batch_.pass[i];
    const auto own = logits.first(tokens.logits * options_.vocabulary);
    const auto own_states = states.first(tokens.logits * width);
    logits = logits.subspan(own.size());
    states = states.subspan(own_states.size());
    Lock lock(mutex_);
    if (cancelled_.contains(row.id)) {
      finish(lock, row.id, FinishReason::kCancelled);
      continue;
    }
    const auto found = answers_.find(row.id);
    if (found == answers_.end()) continue;
    const std::shared_ptr<Answer> request = found->second;
    lock.unlock();
    Progress progress = answer(*request, row, tokens, own, own_states);
    lock.lock();
    if (!progress.tokens.empty() && !scheduler_.advance(row.id, progress.tokens) &&
        !progress.finish)
      progress.finish = FinishReason::kLength;
    if (progress.finish) finish(lock, row.id, *progress.finish, progress.error);
  }
  const Lock lock(mutex_);
  scheduler_.measure(std::chrono::steady_clock::now() - pass_start_);
}

// The first logits of a row score the prompt, the last ones choose.
RequestLoop::Progress RequestLoop::answer(Answer& answer, const BatchRow& row,
                                          const PassTokens& tokens, std::span<const float> logits,
                                          std::span<const float> states) {
  const std::int64_t choosing = row.chooses ? 1 + row.guesses : 0;
  const std::int64_t scoring = tokens.logits - choosing;
  const auto end = tokens.position + std::ssize(tokens.tokens);
  Progress progress;
  try {
    if (scoring > 0)
      answer.score_prompt(end - tokens.logits, logits.first(scoring * options_.vocabulary),
                          scoring);
    if (!row.chooses) return progress;
    answer.report_prompt();
    if (answer.wants_embedding()) {
      const std::size_t width = states.size() / tokens.logits;
      answer.report_embedding(states.subspan(scoring * width, width));
    }
    if (answer.wants_no_token()) {
      progress.finish = FinishReason::kLength;
      return progress;
    }
    progress.tokens = answer.choose(sampler_, logits.subspan(scoring * options_.vocabulary),
                                    std::span(tokens.tokens).last(row.guesses));
    if (answer.ended()) progress.finish = FinishReason::kStop;
  } catch (const Error& error) {
    progress.finish = FinishReason::kFailed;
    progress.error = error.what();
    if (options_.warn) options_.warn(progress.error);
  }
  return progress;
}

void RequestLoop::finish(Lock& lock, std::uint64_t id, FinishReason reason,
                         const std::string& error) {
  const auto answer = answers_.extract(id);
  cancelled_.erase(id);
  const Finish finish{
      .reason = reason, .cached_tokens = scheduler_.cached_tokens(id), .error = error};
  scheduler_.finish(id);
  lock.unlock();
  answer.mapped()->finish(finish);
  lock.lock();
}

void RequestLoop::finish_cancelled(Lock& lock) {
  while (!cancelled_.empty()) finish(lock, *cancelled_.begin(), FinishReason::kCancelled);
}

}  // namespace strata
