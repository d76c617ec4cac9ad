// Sequences lie in a map by id, so by age. Those that run are always the oldest: the first of the
// waiting ones starts first, and the last of the running ones is preempted first.
#include "strata/batching/batch_scheduler.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/batching/wait_prediction.h"

namespace strata {
namespace {

constexpr const char* kScheduler = "batching.schedule";
constexpr ErrorSource kAddErrors{"batching.add"};

using Milliseconds = std::chrono::milliseconds;

void check_limits(const BatchLimits& limits) {
  STRATA_CHECK(limits.sequences > 0 && limits.waiting > 0 && limits.context > 0, kScheduler);
  constexpr ErrorSource kErrors{"batching.limits", "raise the limit, or run fewer sequences"};
  for (const auto& [name, value] :
       {std::pair{"pass_tokens", limits.pass_tokens}, std::pair{"pass_logits", limits.pass_logits}})
    if (value < limits.sequences)
      throw kErrors.user(name, "the limit of a pass is below the number of running sequences",
                         "at least " + std::to_string(limits.sequences), std::to_string(value));
}

}  // namespace

// What a pass has left.
struct BatchScheduler::Room {
  std::int64_t tokens = 0;
  std::int64_t logits = 0;
};

BatchScheduler::BatchScheduler(const BatchLimits& limits)
    : limits_(limits),
      pool_(limits.pages, limits.page_tokens, {limits.host_pages, limits.disk_pages}) {
  check_limits(limits);
}

const BatchScheduler::Sequence& BatchScheduler::at(std::uint64_t id) const {
  const auto found = sequences_.find(id);
  STRATA_CHECK(found != sequences_.end(), kScheduler);
  return found->second;
}

BatchScheduler::Sequence& BatchScheduler::at(std::uint64_t id) {
  return const_cast<Sequence&>(std::as_const(*this).at(id));
}

Admission BatchScheduler::add(NewSequence request) {
  STRATA_CHECK(!request.prompt.empty() && request.max_tokens >= 0, kAddErrors.operation);
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t room = limits_.context - prompt;
  if (room < 0 || (room == 0 && request.max_tokens > 0))
    throw kAddErrors.user("prompt", "the prompt leaves no room for an answer",
                          "fewer than " + std::to_string(limits_.context) + " tokens",
                          std::to_string(prompt), "shorten the prompt");
  const std::int64_t longest = prompt + std::min(room, request.max_tokens);
  if (pool_.pages_for(longest) > pool_.pages())
    throw kAddErrors.user("max_tokens", "prompt and answer need more pages than there are",
                          "at most " + std::to_string(pool_.pages() * pool_.page_tokens()) +
                              " tokens of prompt and answer",
                          std::to_string(longest),
                          "lower max_tokens, or give the server more memory for its cache");
  Sequence sequence;
  sequence.tokens = std::move(request.prompt);
  sequence.prompt = prompt;
  sequence.longest = longest;
  sequence.score_prompt = request.score_prompt;
  sequence.key = request.key;
  if (const auto retry_after = refusal(sequence)) {
    ++counters_.refusals;
    return {0, *retry_after};
  }
  sequences_.emplace(++last_id_, std::move(sequence));
  return {last_id_, Milliseconds(0)};
}

std::optional<Milliseconds> BatchScheduler::refusal(const Sequence& next) const {
  const bool full = std::ssize(sequences_) - running_ >= limits_.waiting;
  const bool predicts = limits_.longest_wait.count() > 0 && pass_seconds_ > 0;
  if (!full && !predicts) return std::nullopt;
  std::vector<SequenceDemand> running, waiting;
  const auto count = [&](const Sequence& sequence) {
    (sequence.running ? running : waiting)
        .push_back({pool_.pages_for(sequence.longest), sequence.pending() - 1,
                    sequence.longest - sequence.length()});
  };
  for (const auto& [id, sequence] : sequences_) count(sequence);
  count(next);
  // The other sequences take a token each from the prompts.
  const std::int64_t prompt_tokens = limits_.pass_tokens - (limits_.sequences - 1);
  const std::vector<std::int64_t> starts =
      predict_starts({pool_.pages(), limits_.sequences, prompt_tokens}, running, waiting);
  const auto after = [&](std::int64_t passes) {
    return Milliseconds(static_cast<std::int64_t>(passes * pass_seconds_ * 1e3) + 1);
  };
  if (full) return pass_seconds_ > 0 ? after(starts.front()) : Milliseconds(1000);
  const Milliseconds wait = after(starts.back());
  if (wait <= limits_.longest_wait) return std::nullopt;
  return wait - limits_.longest_wait;
}

Batch BatchScheduler::next_pass() {
  commit_rows();
  Room room{limits_.pass_tokens, limits_.pass_logits};
  for_running([&](Sequence& sequence) {
    if (sequence.pending() == 1) plan(sequence, room);
  });
  for_running([&](Sequence& sequence) {
    if (sequence.pending() > 1) plan(sequence, room);
  });
  reserve_pages();
  start_waiting(room);
  for_running([&](Sequence& sequence) { keep_guesses(sequence, room); });
  if (!sequences_.empty()) ++counters_.passes;
  return make_batch();
}

void BatchScheduler::for_running(const std::function<void(Sequence&)>& run) {
  for (auto& [id, sequence] : sequences_) {
    if (!sequence.running) break;
    run(sequence);
  }
}

void BatchScheduler::commit_rows() {
  for_running([&](Sequence& sequence) {
    STRATA_CHECK(!sequence.chooses(), kScheduler);  // advance() or finish() was not called
    STRATA_CHECK(!sequence.is_full(), kScheduler);  // finish() was not called
    commit(sequence, sequence.computed + sequence.planned);
  });
}

void BatchScheduler::commit(Sequence& sequence, std::int64_t computed) {
  sequence.computed = computed;
  sequence.planned = 0;
  sequence.scored = std::max(sequence.scored, std::min(computed, sequence.prompt));
  if (!limits_.reuse_pages) return;
  const std::span<const std::int64_t> tokens = sequence.tokens;
  const std::int64_t size = pool_.page_tokens();
  for (std::int64_t& i = sequence.published; (i + 1) * size <= computed; ++i)
    sequence.pages[i] =
        pool_.publish(sequence.pages[i], i > 0 ? sequence.pages[i - 1] : PagePool::kNoPage,
                      {weights_, sequence.key}, tokens.subspan(i * size, size));
}

void BatchScheduler::plan(Sequence& sequence, Room& room) {
  std::int64_t count = std::min(sequence.pending(), room.tokens);
  const std::int64_t without_logits = sequence.needed() - sequence.computed;
  count = std::min(count, without_logits + room.logits);
  sequence.planned = count;
  room.tokens -= count;
  room.logits -= std::max<std::int64_t>(0, count - without_logits);
}

void BatchScheduler::reserve_pages() {
  for (auto& [id, sequence] : sequences_) {
    while (sequence.running && !extend(sequence, sequence.computed + sequence.planned))
      preempt(std::next(sequences_.begin(), running_ - 1)->second);
    if (!sequence.running) break;
  }
}

bool BatchScheduler::extend(Sequence& sequence, std::int64_t tokens) {
  const std::int64_t missing = pool_.pages_for(tokens) - std::ssize(sequence.pages);
  if (missing > pool_.available()) return false;
  for (std::int64_t i = 0; i < missing; ++i) sequence.pages.push_back(*pool_.allocate());
  return true;
}

void BatchScheduler::preempt(Sequence& sequence) {
  drop_pages(sequence);
  ++counters_.preemptions;
}

void BatchScheduler::drop_pages(Sequence& sequence) {
  pool_.release(sequence.pages);
  sequence.pages.clear();
  sequence.guesses.clear();
  sequence.computed = sequence.published = sequence.planned = 0;
  running_ -= sequence.running;
  sequence.running = false;
}

void BatchScheduler::start_waiting(Room& room) {
  for (auto next = std::next(sequences_.begin(), running_);
       next != sequences_.end() && running_ < limits_.sequences && room.tokens > 0; ++next) {
    if (last_admitted_ && next->first > *last_admitted_) break;
    if (!start(next->second)) break;
    plan(next->second, room);
  }
}

bool BatchScheduler::start(Sequence& sequence) {
  PagePool::Found found;
  if (limits_.reuse_pages)
    found =
        pool_.find({weights_, sequence.key}, std::span(sequence.tokens).first(sequence.needed()));
  const std::int64_t pages = std::ssize(found.pages);
  if (pool_.pages_for(sequence.length()) - found.on_device > pool_.available() ||
      pages_of_this_pass(sequence) > pages) {
    pool_.release(found.pages);
    return false;
  }
  pool_.load(found.pages);
  counters_.loaded_pages += pages - found.on_device;
  sequence.pages = std::move(found.pages);
  sequence.published = pages;
  sequence.computed = pages * pool_.page_tokens();
  extend(sequence, sequence.length());
  sequence.running = true;
  ++running_;
  if (!std::exchange(sequence.started, true)) {
    sequence.cached = sequence.computed;
    counters_.prompt_tokens += sequence.prompt;
    counters_.cached_prompt_tokens += sequence.cached;
  }
  return true;
}

// Full pages that `sequence` could reuse after this pass, because a row of it computes them.
std::int64_t BatchScheduler::pages_of_this_pass(const Sequence& sequence) const {
  if (!limits_.reuse_pages) return 0;
  std::int64_t most = 0;
  for (const auto& [id, other] : sequences_) {
    if (!other.running) break;
    if (other.key != sequence.key) continue;
    const auto first = other.tokens.begin();
    const auto end = std::min(other.computed + other.planned, sequence.needed());
    const auto equal = std::mismatch(first, first + end, sequence.tokens.begin()).first - first;
    most = std::max(most, equal / pool_.page_tokens());
  }
  return most;
}

void BatchScheduler::keep_guesses(Sequence& sequence, Room& room) {
  if (sequence.guesses.empty()) return;
  const std::int64_t positions =
      (std::ssize(sequence.pages) + pool_.available()) * pool_.page_tokens();
  const std::int64_t count =
      std::min({std::ssize(sequence.guesses), room.tokens, room.logits,
                sequence.longest - sequence.length() - 1, positions - sequence.length()});
  sequence.guesses.resize(count);
  extend(sequence, sequence.length() + count);
  room.tokens -= count;
  room.logits -= count;
  counters_.guessed_tokens += count;
}

Batch BatchScheduler::make_batch() {
  Batch batch;
  const auto add_rows = [&](bool decodes) {
    for (const auto& [id, sequence] : sequences_) {
      if (!sequence.running) break;
      if (sequence.planned == 0 || (sequence.pending() == 1) != decodes) continue;
      const std::int64_t end = sequence.computed + sequence.planned;
      const std::int64_t guesses = std::ssize(sequence.guesses);
      const std::span<const std::int64_t> tokens = sequence.tokens;
      const auto part = tokens.subspan(sequence.computed, sequence.planned);
      PassTokens row;
      row.tokens.assign(part.begin(), part.end());
      row.tokens.insert(row.tokens.end(), sequence.guesses.begin(), sequence.guesses.end());
      row.position = sequence.computed;
      row.pages.assign(sequence.pages.begin(),
                       sequence.pages.begin() + pool_.pages_for(end + guesses));
      row.logits = std::max<std::int64_t>(0, end - sequence.needed()) + guesses;
      batch.pass.push_back(std::move(row));
      batch.rows.push_back({id, sequence.chooses(), guesses});
    }
  };
  add_rows(true);
  add_rows(false);
  batch.moves = pool_.take_moves();
  return batch;
}

bool BatchScheduler::advance(std::uint64_t id, std::span<const std::int64_t> tokens) {
  Sequence& sequence = at(id);
  STRATA_CHECK(sequence.chooses() && !tokens.empty(), kScheduler);
  const auto accepted = tokens.first(tokens.size() - 1);
  const std::int64_t length = sequence.length();
  STRATA_CHECK(accepted.size() <= sequence.guesses.size() &&
                   std::ranges::equal(accepted, std::span(sequence.guesses).first(accepted.size())),
               kScheduler);
  STRATA_CHECK(length + std::ssize(tokens) <= sequence.longest, kScheduler);
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  commit(sequence, length + std::ssize(accepted));
  sequence.guesses.clear();
  const auto keep = pool_.pages_for(sequence.length());
  if (keep < std::ssize(sequence.pages)) {  // pages of wrong guesses
    pool_.release(std::span(sequence.pages).subspan(keep));
    sequence.pages.resize(keep);
  }
  counters_.generated_tokens += std::ssize(tokens);
  counters_.accepted_guesses += std::ssize(accepted);
  return !sequence.is_full();
}

void BatchScheduler::guess(std::uint64_t id, std::vector<std::int64_t> tokens) {
  Sequence& sequence = at(id);
  const bool decodes = sequence.running && sequence.planned == 0 && sequence.pending() == 1;
  if (decodes && !sequence.is_full()) sequence.guesses = std::move(tokens);
}

void BatchScheduler::replace_guesses(const Batch& batch) {
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    std::vector<std::int64_t>& guesses = at(batch.rows[i].id).guesses;
    STRATA_CHECK_EQ(std::ssize(guesses), batch.rows[i].guesses, kScheduler);
    std::ranges::copy(std::span(batch.pass[i].tokens).last(guesses.size()), guesses.begin());
  }
}

void BatchScheduler::finish(std::uint64_t id) { STRATA_CHECK(cancel(id), kScheduler); }

bool BatchScheduler::cancel(std::uint64_t id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return false;
  drop_pages(found->second);
  sequences_.erase(found);
  return true;
}

void BatchScheduler::set_weights(std::uint64_t version) {
  commit_rows();
  for (auto& [id, sequence] : sequences_) {
    drop_pages(sequence);
    if (sequence.scored < sequence.prompt) sequence.scored = 0;
  }
  pool_.forget_unused();
  weights_ = version;
}

bool BatchScheduler::drained() const {
  return sequences_.empty() || (last_admitted_ && sequences_.begin()->first > *last_admitted_);
}

void BatchScheduler::measure(std::chrono::nanoseconds pass) {
  const double seconds = std::chrono::duration<double>(pass).count();
  pass_seconds_ += pass_seconds_ == 0 ? seconds : (seconds - pass_seconds_) / 8;
}

std::span<const std::int64_t> BatchScheduler::tokens(std::uint64_t id) const {
  return at(id).tokens;
}

std::int64_t BatchScheduler::cached_tokens(std::uint64_t id) const { return at(id).cached; }

ServiceStatus BatchScheduler::status() const {
  ServiceStatus status = counters_;
  status.running = running_;
  status.waiting = std::ssize(sequences_) - running_;
  status.pages = pool_.pages();
  status.used_pages = pool_.used();
  return status;
}

}  // namespace strata
