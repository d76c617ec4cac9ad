// After a warm-up, every round adds a forward to the ranks that have one left, from the first rank
// to the last, and a first half to every rank, from the last to the first. Second halves fill the
// time until a message arrives. Three choices have no answer that is best for all costs, so every
// combination is tried.
#include "strata/schedule/zero_bubble_search.h"

#include <algorithm>
#include <array>
#include <limits>

#include "strata/base/errors.h"
#include "strata/schedule/empty_schedule.h"

namespace strata {
double most_held(const Program& program, const StageCosts& costs) {
  double now = 0, most = 0;
  for (const Action& action : program) {
    if (action.op == Op::kForward) now += costs.saved;
    if (action.op == Op::kBackwardInput) now += costs.kept - costs.saved;
    if (action.op == Op::kBackwardWeight) now -= costs.kept;
    most = std::max(most, now);
  }
  return most;
}

namespace {

constexpr double kTiny = 1e-9;  // relative: sums of the same numbers in another order are equal

struct Choices {
  bool overshoots = false;  // the last forward of the warm-up may end after the first gradient came
  bool holds_back = false;  // a rank that is two forwards ahead of the next one may skip a round
  bool fills_every_gap = false;  // a second half may always delay what arrives during it
};

class Search {
 public:
  Search(const std::vector<StageCosts>& stages, int micro_batches, double transfer, Choices choices)
      : stages_(stages),
        count_(micro_batches),
        transfer_(transfer),
        choices_(choices),
        ranks_(static_cast<int>(stages.size())),
        state_(ranks_),
        programs_(ranks_) {
    for (Rank& rank : state_) {
      rank.forward_ends.resize(count_);
      rank.input_ends.resize(count_);
    }
    warm_up();
    for (int round = 1; round < count_; ++round) add_round();
    for (int r = 0; r < ranks_; ++r)
      while (state_[r].weights < count_) add_weights(r);
  }

  std::vector<Program> take() { return std::move(programs_); }

 private:
  struct Rank {
    int forwards = 0, inputs = 0, weights = 0;
    double now = 0, held = 0, idle = 0;
    std::vector<double> forward_ends, input_ends;
  };

  void write(int r, Op op, int micro_batch) {
    programs_[r].push_back({.op = op, .stage = r, .micro_batch = micro_batch});
  }

  double forward_arrives(int r) const {
    return r == 0 ? 0 : state_[r - 1].forward_ends[state_[r].forwards] + transfer_;
  }
  double gradient_arrives(int r) const {
    if (r + 1 == ranks_) return state_[r].forward_ends[state_[r].inputs];
    return state_[r + 1].input_ends[state_[r].inputs] + transfer_;
  }

  void wait(Rank& rank, double until) {
    rank.idle += std::max(0.0, until - rank.now);
    rank.now = std::max(rank.now, until);
  }

  void add_forward(int r) {
    Rank& rank = state_[r];
    if (rank.forwards == 0) {
      rank.now = forward_arrives(r);
    } else {
      wait(rank, forward_arrives(r));
    }
    rank.now += stages_[r].forward;
    rank.held += stages_[r].saved;
    rank.forward_ends[rank.forwards] = rank.now;
    write(r, Op::kForward, rank.forwards++);
  }

  void add_inputs(int r) {
    Rank& rank = state_[r];
    wait(rank, gradient_arrives(r));
    rank.now += stages_[r].input;
    rank.held += stages_[r].kept - stages_[r].saved;
    rank.input_ends[rank.inputs] = rank.now;
    write(r, Op::kBackwardInput, rank.inputs++);
  }

  void add_weights(int r) {
    Rank& rank = state_[r];
    rank.now += stages_[r].weight;
    rank.held -= stages_[r].kept;
    write(r, Op::kBackwardWeight, rank.weights++);
  }

  bool has_weights(int r) const { return state_[r].weights < state_[r].inputs; }
  bool has_room(int r, double held) const {
    return held + stages_[r].saved <= stages_[r].most * (1 + kTiny);
  }

  void warm_up() {
    for (int r = 0; r < ranks_; ++r) add_forward(r);
    std::vector<int> extra(ranks_);
    double gradient = state_[ranks_ - 1].now + stages_[ranks_ - 1].input;
    for (int r = ranks_ - 2; r >= 0; --r) {
      const double arrives = gradient + transfer_;
      double now = state_[r].now, held = state_[r].held;
      while (1 + extra[r] < count_ && has_room(r, held)) {
        const double end = choices_.overshoots ? now : now + stages_[r].forward;
        if (end > arrives - (choices_.overshoots ? kTiny : -kTiny) * arrives) break;
        ++extra[r];
        now += stages_[r].forward;
        held += stages_[r].saved;
      }
      gradient = std::max(now, arrives) + stages_[r].input;
    }
    for (int r = 1; r < ranks_; ++r) extra[r] = std::max(0, std::min(extra[r], extra[r - 1] - 1));
    for (int r = 0; r < ranks_; ++r)
      for (int i = 0; i < extra[r]; ++i) add_forward(r);
    for (int r = ranks_ - 1; r >= 0; --r) add_inputs(r);
  }

  double most_idle() const { return std::ranges::max_element(state_, {}, &Rank::idle)->idle; }

  // Second halves for the time until `until`.
  void fill(int r, double until) {
    Rank& rank = state_[r];
    while (has_weights(r) && rank.now + stages_[r].weight <= until * (1 + kTiny)) add_weights(r);
    const double gap = until - rank.now;
    if (!has_weights(r) || gap <= kTiny * until) return;
    if (gap > most_idle() - rank.idle || choices_.fills_every_gap) add_weights(r);
  }

  // Per rank: whether it adds a forward in this round. A rank that skips one passes that on to the
  // ranks before it, which would only run further ahead.
  std::vector<bool> ranks_that_add_forwards() const {
    std::vector<bool> adds(ranks_);
    double gradient = 0;
    for (int r = ranks_ - 1; r >= 0; --r) {
      const Rank& rank = state_[r];
      const bool last = r + 1 == ranks_;
      const double arrives = last ? rank.now : gradient + transfer_;
      const bool ahead = !last && rank.forwards - state_[r + 1].forwards >= 2;
      const bool skips = choices_.holds_back && ahead && rank.now >= arrives;
      adds[r] = rank.forwards < count_ && !skips;
      gradient =
          std::max(rank.now + (adds[r] ? stages_[r].forward : 0), arrives) + stages_[r].input;
    }
    for (int r = ranks_ - 2; r >= 0; --r)
      if (state_[r + 1].forwards < count_ && !adds[r + 1]) adds[r] = false;
    return adds;
  }

  void add_round() {
    const std::vector<bool> wants = ranks_that_add_forwards();
    for (int r = 0; r < ranks_; ++r) {
      // a rank may not run ahead of the messages of the rank before
      if (!wants[r] || (r > 0 && state_[r - 1].forwards <= state_[r].forwards)) continue;
      while (!has_room(r, state_[r].held) && has_weights(r)) add_weights(r);
      if (!has_room(r, state_[r].held)) continue;
      fill(r, forward_arrives(r));
      add_forward(r);
    }
    for (int r = ranks_ - 1; r >= 0; --r) {
      // every first half needs its forward
      while (state_[r].forwards <= state_[r].inputs) {
        while (!has_room(r, state_[r].held) && has_weights(r)) add_weights(r);
        add_forward(r);
      }
      fill(r, gradient_arrives(r));
      add_inputs(r);
    }
    if (state_[0].forwards == count_)
      while (has_weights(0)) add_weights(0);
  }

  const std::vector<StageCosts>& stages_;
  int count_;
  double transfer_;
  Choices choices_;
  int ranks_;
  std::vector<Rank> state_;
  std::vector<Program> programs_;
};

bool has_room(const Schedule& order, const std::vector<StageCosts>& stages) {
  for (int r = 0; r < order.num_ranks(); ++r)
    if (most_held(order.programs[r], stages[r]) > stages[r].most * (1 + kTiny)) return false;
  return true;
}

}  // namespace

SearchedSchedule search_zero_bubble(const std::vector<StageCosts>& stages, int micro_batches,
                                    double transfer) {
  const PipelineShape shape{.ranks = static_cast<int>(stages.size()),
                            .micro_batches = micro_batches};
  Schedule tried = empty_schedule(ScheduleKind::kZb, shape);
  SearchedSchedule best{.seconds = std::numeric_limits<double>::infinity()};
  const auto consider = [&](std::vector<Program> programs) {
    tried.programs = std::move(programs);
    const double seconds = seconds_of(tried, stages, transfer);
    if (seconds < best.seconds) best = {tried, seconds};
  };
  for (int code = 0; code < 8; ++code)
    consider(
        Search(stages, micro_batches, transfer, {(code & 1) != 0, (code & 2) != 0, (code & 4) != 0})
            .take());
  for (Schedule& fixed : std::array{zb_h1(shape), zb_h2(shape)})
    if (has_room(fixed, stages)) consider(std::move(fixed.programs));
  return best;
}

namespace {

constexpr double kNotYet = -1;

// When forwards and first halves of every rank and micro-batch end.
class Ends {
 public:
  Ends(int ranks, int micro_batches)
      : micro_batches_(micro_batches),
        ends_(2 * static_cast<std::size_t>(ranks) * micro_batches, kNotYet) {}
  double& operator()(bool forward, int rank, int micro_batch) {
    return ends_[(2 * static_cast<std::size_t>(rank) + (forward ? 1 : 0)) * micro_batches_ +
                 micro_batch];
  }

 private:
  int micro_batches_;
  std::vector<double> ends_;
};

double seconds_of(const Action& action, const StageCosts& costs) {
  if (action.op == Op::kForward) return costs.forward;
  return (makes_input_gradients(action.op) ? costs.input : 0) +
         (ends_weight_gradients(action.op) ? costs.weight : 0);
}

}  // namespace

double seconds_of(const Schedule& order, const std::vector<StageCosts>& stages, double transfer) {
  const int ranks = order.num_ranks();
  Ends ends(ranks, order.num_micro_batches);
  std::vector<std::size_t> next(ranks);
  std::vector<double> now(ranks), began(ranks, kNotYet);
  // kNotYet: another rank has not made its input.
  const auto arrival = [&](const Action& action, int rank) {
    const bool forward = action.op == Op::kForward;
    const bool own = !forward && rank + 1 == ranks;
    if (action.op == Op::kBackwardWeight || (forward && rank == 0)) return 0.0;
    const double end = own ? ends(true, rank, action.micro_batch)
                           : ends(forward, forward ? rank - 1 : rank + 1, action.micro_batch);
    return end == kNotYet || own ? end : end + transfer;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < ranks; ++r) {
      for (; next[r] < order.programs[r].size(); ++next[r], moved = true) {
        const Action& action = order.programs[r][next[r]];
        const double start = arrival(action, r);
        if (start == kNotYet) break;
        now[r] = std::max(now[r], start);
        if (began[r] == kNotYet) began[r] = now[r];
        now[r] += seconds_of(action, stages[r]);
        if (action.op != Op::kBackwardWeight)
          ends(action.op == Op::kForward, r, action.micro_batch) = now[r];
      }
    }
  }
  double longest = 0;
  for (int r = 0; r < ranks; ++r) {
    STRATA_CHECK_EQ(next[r], order.programs[r].size(), "schedule.seconds_of");
    longest = std::max(longest, now[r] - began[r]);
  }
  return longest;
}

}  // namespace strata
