#include "strata/batching/wait_prediction.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace strata {
namespace {

// Runs the sequences through the passes to come.
class Forecast {
 public:
  Forecast(const BatchCapacity& capacity)
      : pass_tokens_(capacity.pass_tokens), pages_(capacity.pages), slots_(capacity.sequences) {}

  void start(const SequenceDemand& demand) {
    std::int64_t end = now_ + demand.new_tokens;
    if (demand.prompt_tokens > 0) {
      prompts_end_ = std::max(prompts_end_, now_ * pass_tokens_) + demand.prompt_tokens;
      end = (prompts_end_ + pass_tokens_ - 1) / pass_tokens_ + demand.new_tokens;
    }
    ends_.push({end, demand.pages});
    pages_ -= demand.pages;
    --slots_;
  }

  // Moves to the pass in which the sequence may start, and returns it.
  std::int64_t wait_for(const SequenceDemand& demand) {
    now_ = std::max(now_, prompts_end_ / pass_tokens_);
    while (!ends_.empty() && (pages_ < demand.pages || slots_ <= 0)) {
      now_ = std::max(now_, ends_.top().first);
      pages_ += ends_.top().second;
      ++slots_;
      ends_.pop();
    }
    return now_;
  }

 private:
  using End = std::pair<std::int64_t, std::int64_t>;  // pass, pages
  std::int64_t pass_tokens_;
  std::int64_t pages_;  // free; below 0 if running sequences may need more than there are
  std::int64_t slots_;
  std::int64_t now_ = 0;
  std::int64_t prompts_end_ =
      0;  // prompt tokens of all passes until the started prompts are computed
  std::priority_queue<End, std::vector<End>, std::greater<End>> ends_;
};

}  // namespace

std::vector<std::int64_t> predict_starts(const BatchCapacity& capacity,
                                         std::span<const SequenceDemand> running,
                                         std::span<const SequenceDemand> waiting) {
  Forecast forecast(capacity);
  for (const SequenceDemand& demand : running) forecast.start(demand);
  std::vector<std::int64_t> starts;
  for (const SequenceDemand& demand : waiting) {
    starts.push_back(forecast.wait_for(demand));
    forecast.start(demand);
  }
  return starts;
}

}  // namespace strata
