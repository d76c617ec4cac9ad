#include "strata/openai/generation.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/openai/api_error.h"
#include "strata/openai/output_grammar.h"

namespace strata {

void AnswerSink::on_embedding(std::size_t, std::vector<float>) {}

Generation::Generation(std::shared_ptr<const OpenAiModel> model, AnswerRequest request,
                       RequestRecord record)
    : model_(std::move(model)), request_(std::move(request)), record_(std::move(record)) {
  const std::size_t candidates = static_cast<std::size_t>(request_.options.candidates);
  sequences_.reserve(request_.prompts.size() * candidates);
  for (std::size_t prompt = 0; prompt < request_.prompts.size(); ++prompt) {
    usage_.prompt_tokens += static_cast<std::int64_t>(request_.prompts[prompt].size());
    for (std::size_t i = 0; i < candidates; ++i)
      sequences_.push_back(
          {.prompt = prompt,
           .text = ChoiceText(*model_, request_.prompts[prompt], request_.options, request_.echo),
           .has_prompt = !request_.echo});
  }
}

// A client that scores a text drops the last of its probabilities, so an EOS token must be
// reported like any other. After one token the service needs to know of no EOS tokens.
bool Generation::only_one_token_is_scored() const {
  const AnswerOptions& options = request_.options;
  return options.max_tokens == 1 && options.min_tokens == 0 && options.likeliest.has_value();
}

SequenceRequest Generation::sequence_request(std::size_t choice) const {
  const AnswerOptions& options = request_.options;
  SequenceRequest request{.prompt = request_.prompts[sequences_[choice].prompt],
                          .max_tokens = *options.max_tokens,
                          .min_tokens = options.min_tokens,
                          .ends = {},
                          .sampling = options.sampling,
                          .likeliest = options.likeliest,
                          .scope = request_.scope,
                          .score_prompt = request_.echo && options.likeliest.has_value(),
                          .embed = request_.embeds};
  if (options.candidates > options.choices)  // their mean log probabilities are compared
    request.likeliest = options.likeliest.value_or(0);
  request.ends = ends();
  if (options.grammar) {
    request.allowed = [allowed = allowed_by_grammar(options, request.ends),
                       refusal = sequences_[choice].refusal](const auto& answer) {
      try {
        auto bits = allowed(answer);
        refusal->reset();  // of a guess that was wrong
        return bits;
      } catch (const UserError& error) {
        *refusal = std::make_unique<ApiError>(ApiError::of(error));
        throw;
      }
    };
    request.min_tokens = 0;  // the grammar may end earlier
  }
  if (only_one_token_is_scored()) request.ends.clear();
  request.sampling.seed += choice % static_cast<std::size_t>(options.candidates);
  return request;
}

// A text that matches its grammar ends with an EOS token, also with ignore_eos.
std::vector<std::int64_t> Generation::ends() const {
  const AnswerOptions& options = request_.options;
  std::vector<std::int64_t> ends = options.stop_tokens;
  if (!options.ignore_ends || options.grammar)
    ends.insert(ends.end(), model_->ends.begin(), model_->ends.end());
  return ends;
}

SequenceListener Generation::listener(std::size_t choice) {
  const auto self = shared_from_this();
  return {.on_prompt =
              [self, choice](const std::vector<ScoredToken>& scores) {
                self->deliver(&Generation::on_prompt, choice, scores);
              },
          .on_embedding =
              [self, choice](const std::vector<float>& state) {
                self->deliver(&Generation::on_embedding, choice, state);
              },
          .on_token =
              [self, choice](const ScoredToken& token) {
                self->deliver(&Generation::on_token, choice, token);
              },
          .on_finish =
              [self, choice](const Finish& finish) {
                self->deliver(&Generation::on_finish, choice, finish);
              }};
}

void Generation::submit() {
  record_.start(static_cast<std::size_t>(usage_.prompt_tokens), *request_.options.max_tokens,
                sequences_.size());
  try {
    submit_all();
  } catch (...) {
    take_back();
    throw;
  }
}

void Generation::submit_all() {
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const Admission admission = model_->service->submit(sequence_request(i), listener(i));
    if (admission.id == 0)
      throw ApiError(
          {.status = 429,
           .message = "the server is busy; try again later",
           .type = "rate_limit_error",
           .code = "server_busy",
           .retry_after = std::max(admission.retry_after, std::chrono::milliseconds(1))});
    const std::scoped_lock lock(mutex_);
    sequences_[i].id = admission.id;
  }
}

void Generation::take_back() {
  std::vector<std::uint64_t> ids;
  {
    const std::scoped_lock lock(mutex_);
    record_.take_back();
    close();
    ids = take_unwanted();
  }
  cancel_all(ids);
}

void Generation::begin(std::shared_ptr<AnswerSink> sink) {
  std::vector<std::uint64_t> ids;
  {
    const std::scoped_lock lock(mutex_);
    if (over_) return;
    sink_ = std::move(sink);
    for (const auto& event : std::exchange(early_, {})) event();
    ids = take_unwanted();
  }
  cancel_all(ids);
}

template <typename Part>
void Generation::deliver(void (Generation::*handle)(std::size_t, const Part&), std::size_t choice,
                         const Part& part) {
  std::vector<std::uint64_t> ids;
  {
    const std::scoped_lock lock(mutex_);
    if (over_) return;
    if (sink_ == nullptr)
      early_.push_back([=, this] { (this->*handle)(choice, part); });
    else
      (this->*handle)(choice, part);
    ids = take_unwanted();
  }
  cancel_all(ids);
}

std::vector<std::uint64_t> Generation::take_unwanted() {
  std::vector<std::uint64_t> ids;
  for (const std::size_t choice : std::exchange(unwanted_, {}))
    if (!sequences_[choice].finished) ids.push_back(sequences_[choice].id);
  return ids;
}

// Cancels sequences whose tokens are not needed. The service may call back at once, so the mutex is
// not held here.
void Generation::cancel_all(const std::vector<std::uint64_t>& ids) {
  for (const std::uint64_t id : ids) model_->service->cancel(id);
}

void Generation::on_prompt(std::size_t choice, const std::vector<ScoredToken>& scores) {
  Sequence& sequence = sequences_[choice];
  if (over_ || sequence.has_prompt) return;
  sequence.has_prompt = true;
  if (!sink_->on_prompt(choice, sequence.text.prompt(scores))) forget_sink("abort");
}

void Generation::on_embedding(std::size_t choice, const std::vector<float>& state) {
  if (!over_) sink_->on_embedding(choice, state);
}

void Generation::on_token(std::size_t choice, const ScoredToken& token) {
  on_prompt(choice, {});
  Sequence& sequence = sequences_[choice];
  if (over_ || sequence.stopped) return;
  ++sequence.tokens;
  sequence.log_probability += token.log_probability;
  record_.token(choice);
  const bool is_end = only_one_token_is_scored() && std::ranges::count(ends(), token.token) > 0;
  auto pieces = is_end ? sequence.text.push_end(token) : sequence.text.push(token);
  sequence.stopped = is_end || sequence.text.stopped();
  if (sequence.text.stopped()) unwanted_.push_back(choice);
  if (sequence.stopped || sequence.tokens == request_.options.max_tokens)
    sequence.last = std::move(pieces);  // on_finish() follows
  else if (!pieces.empty() && !sink_->on_pieces(choice, std::move(pieces)))
    forget_sink("abort");
}

void Generation::on_finish(std::size_t choice, const Finish& finish) {
  on_prompt(choice, {});
  if (over_) return;
  Sequence& sequence = sequences_[choice];
  if (finish.reason == FinishReason::kFailed && *sequence.refusal) return fail(**sequence.refusal);
  if (finish.reason == FinishReason::kFailed)  // the cause may name places of this machine
    return fail(ApiError({.status = 500, .message = "the model failed", .type = "server_error"}));
  if (finish.reason == FinishReason::kCancelled && !sequence.stopped)
    return fail(ApiError({.status = 503,
                          .message = "the server ended the request",
                          .type = "server_error",
                          .code = "cancelled"}));
  sequence.finished = true;
  ++finished_;
  usage_.completion_tokens += sequence.tokens;
  if (choice % static_cast<std::size_t>(request_.options.candidates) == 0)
    usage_.cached_tokens += finish.cached_tokens;
  end_choice(sequence, choice, finish);
  if (over_ || finished_ < sequences_.size()) return;
  record_.end(usage_);
  sink_->on_done(usage_);
  over_ = true;
  sink_ = nullptr;
}

void Generation::end_choice(Sequence& sequence, std::size_t choice, const Finish& finish) {
  const auto tokens = static_cast<double>(std::max<std::int64_t>(1, sequence.tokens));
  ChoiceEnd end{.pieces = std::move(sequence.last),
                .rest = {},
                .finish_reason = sequence.stopped ? "stop" : name_of(finish.reason),
                .mean_log_probability = sequence.log_probability / tokens};
  for (TokenPiece& piece : sequence.text.finish(end.rest)) end.pieces.push_back(std::move(piece));
  record_.choice_ended(end.finish_reason, sequence.tokens);
  if (!sink_->on_end(choice, std::move(end))) forget_sink("abort");
}

void Generation::fail(const ApiError& error) {
  const auto sink = sink_;
  forget_sink("error");
  sink->on_error(error);
}

// Ends the answer early. `reason`: of the choices that have not finished.
void Generation::forget_sink(const char* reason) {
  for (const Sequence& sequence : sequences_)
    if (!sequence.finished) {
      usage_.completion_tokens += sequence.tokens;
      record_.choice_ended(reason, sequence.tokens);
    }
  record_.end(usage_);
  close();
}

// The answer is over: the service is to end what still runs.
void Generation::close() {
  over_ = true;
  sink_ = nullptr;
  early_.clear();
  for (std::size_t i = 0; i < sequences_.size(); ++i)
    if (sequences_[i].id != 0) unwanted_.push_back(i);
}

void Generation::cancel() {
  std::vector<std::uint64_t> ids;
  {
    const std::scoped_lock lock(mutex_);
    if (over_) return;
    forget_sink("abort");
    ids = take_unwanted();
  }
  cancel_all(ids);
}

}  // namespace strata
