// The step runs without tensors, every rank as far as it can. If all ranks wait, each awaited
// message is either never sent or part of a cycle; a cycle of waits is the deadlock to report.
#include "strata/schedule/validator.h"

#include <algorithm>
#include <string>

#include "strata/base/errors.h"
#include "strata/schedule/execute.h"
#include "strata/schedule/grid.h"
#include "strata/schedule/rules.h"

namespace strata {
namespace {

constexpr int kGridColumns = 60;
constexpr int kListedActions = 4;  // before and after the marked one

class RankMachine : public Machine {
 public:
  RankMachine(Rules& rules, int rank) : rules_(&rules), rank_(rank) {}
  bool ready(const Action& action) override { return rules_->ready(action, rank_); }
  void perform(const Action& action) override { rules_->perform(action, rank_); }

 private:
  Rules* rules_;
  int rank_;
};

// All ranks of a step, advanced in turn, each as far as it can.
class Step {
 public:
  Step(const Schedule& schedule, Rules& rules) : schedule_(schedule), rules_(rules) {
    for (int r = 0; r < schedule.num_ranks(); ++r) machines_.emplace_back(rules, r);
    for (int r = 0; r < schedule.num_ranks(); ++r) {
      executions_.emplace_back(schedule.programs[r], machines_[r]);
    }
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < schedule_.num_ranks(); ++r) {
        try {
          moved |= executions_[r].advance();
        } catch (const BrokenRule& broken) {
          refuse(broken, r, position(r));
        }
      }
    }
    check_no_wait();
    check_all_received();
    for (int r = 0; r < schedule_.num_ranks(); ++r) {
      try {
        rules_.check_end(r);
      } catch (const BrokenRule& broken) {
        refuse(broken, r, position(r));
      }
    }
  }

 private:
  int position(int rank) const { return static_cast<int>(executions_[rank].position()); }
  bool waits(int rank) const { return !executions_[rank].done(); }
  const Action& next(int rank) const { return schedule_.programs[rank][position(rank)]; }

  [[noreturn]] void refuse(const BrokenRule& broken, int rank, int position) const {
    const Program& program = schedule_.programs[rank];
    std::string where = std::string(name_of(schedule_.kind)) + ", rank " + std::to_string(rank) +
                        ", position " + std::to_string(position);
    if (position < static_cast<int>(program.size())) {
      where += " \"" + to_string(program[position]) + "\"";
    }
    std::string picture = "\n" + draw_grid(schedule_, {rank, position, kGridColumns}) +
                          "program of rank " + std::to_string(rank) + ":\n" +
                          list_actions(program, {position, kListedActions});
    picture.pop_back();
    throw UserError({.operation = "schedule.validate",
                     .where = where,
                     .what = broken.what_broke,
                     .expected = broken.expected,
                     .got = broken.got + picture,
                     .fix = "move or complete the marked action; lower() makes the "
                            "transfers of any order of forwards and backwards"});
  }

  bool is_sent_somewhere(const Action& receive, int rank) const {
    const Program& program = schedule_.programs[receive.peer];
    return std::any_of(program.begin(), program.end(), [&](const Action& send) {
      return Messages::match(send, receive.peer, receive, rank);
    });
  }

  bool takes_part_in_norm(int rank) const {
    const Program& program = schedule_.programs[rank];
    return std::any_of(program.begin(), program.end(),
                       [](const Action& action) { return action.op == Op::kReduceNormAndLoss; });
  }

  // An awaited message is either never sent, or sent later in the program of a rank that waits,
  // too. In the latter case, following the waits leads to a cycle.
  void check_no_wait() const {
    int first = -1;
    for (int r = schedule_.num_ranks() - 1; r >= 0; --r) {
      if (!waits(r)) continue;
      first = r;
      const Action& action = next(r);
      if (is_receive(action.op) && !is_sent_somewhere(action, r)) {
        refuse(BrokenRule("a receive has no send",
                          "a send of it in the program of rank " + std::to_string(action.peer),
                          to_string(action)),
               r, position(r));
      }
      const int awaited = rules_.awaited_rank(action);
      if (!is_receive(action.op) && !takes_part_in_norm(awaited)) {
        refuse(BrokenRule("a rank takes no part in the norm", "kReduceNormAndLoss on every rank",
                          "none on rank " + std::to_string(awaited)),
               awaited, position(awaited));
      }
    }
    if (first >= 0) refuse_cycle(first);
  }

  [[noreturn]] void refuse_cycle(int rank) const {
    std::vector<int> path;
    while (std::find(path.begin(), path.end(), rank) == path.end()) {
      path.push_back(rank);
      rank = rules_.awaited_rank(next(rank));
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
    std::string cycle;
    for (const int r : path) {
      const Action& action = next(r);
      cycle += (cycle.empty() ? "rank " : "; rank ") + std::to_string(r) + " waits at position " +
               std::to_string(position(r)) + " for " + to_string(action);
      if (!is_receive(action.op)) {
        cycle += " with rank " + std::to_string(rules_.awaited_rank(action));
      }
    }
    refuse(BrokenRule("deadlock: the ranks wait for one another in a cycle",
                      "every receive after its send in some order of all actions", cycle),
           path.front(), position(path.front()));
  }

  void check_all_received() const {
    for (int r = 0; r < schedule_.num_ranks(); ++r) {
      const Program& program = schedule_.programs[r];
      for (std::size_t i = 0; i < program.size(); ++i) {
        if (!is_send(program[i].op) || rules_.messages().was_received(program[i], r)) continue;
        refuse(
            BrokenRule("a send has no receive",
                       "a receive of it in the program of rank " + std::to_string(program[i].peer),
                       to_string(program[i])),
            r, static_cast<int>(i));
      }
    }
  }

  const Schedule& schedule_;
  Rules& rules_;
  std::vector<RankMachine> machines_;
  std::vector<Execution> executions_;
};

}  // namespace

Validation validate(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
                    const ValidateOptions& options) {
  Rules rules(schedule, dataflow, partition, options);
  Step(schedule, rules).run();
  return {.peak_in_flight = rules.peak_in_flight()};
}

}  // namespace strata
