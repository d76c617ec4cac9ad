#include "strata/schedule/order_csv.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "strata/base/errors.h"
#include "strata/schedule/passes.h"
#include "strata/schedule/validator.h"

namespace strata {
namespace {

constexpr int kMostNumber = 1 << 20;

// Where in the text an error is.
struct Place {
  const std::string& name;
  int line;
  int cell;
};

[[noreturn]] void refuse(const Place& place, const std::string& what, const std::string& expected,
                         const std::string& got) {
  throw UserError({.operation = "schedule.read",
                   .where = place.name + ":" + std::to_string(place.line) +
                            (place.cell > 0 ? ", cell " + std::to_string(place.cell) : ""),
                   .what = what,
                   .expected = expected,
                   .got = got,
                   .fix = "correct the file; PyTorch's schedules write it with _dump_csv"});
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

// Calls f(part, number) with each part; numbers count from 1.
template <typename F>
void for_each_part(std::string_view text, char separator, F f) {
  for (int number = 1;; ++number) {
    const std::size_t end = text.find(separator);
    f(text.substr(0, end), number);
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > kMostNumber) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::optional<Op> op_of(std::string_view name) {
  for (const Op op : {Op::kForward, Op::kBackward, Op::kBackwardInput, Op::kBackwardWeight})
    if (name == kind_of(op)) return op;
  return std::nullopt;
}

bool is_left_out(std::string_view name) {
  static constexpr std::string_view kNames[] = {"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                                "UNSHARD", "RESHARD", "REDUCE_GRAD"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

void add_action(Program& program, std::string_view text, const Place& place) {
  std::string_view rest = text;
  const std::optional<int> stage = take_number(rest);
  const std::size_t end = rest.find_first_of("0123456789");
  const std::string_view name = rest.substr(0, end);
  rest.remove_prefix(name.size());
  const std::optional<int> micro_batch = take_number(rest);
  const std::optional<Op> op = op_of(name);
  if (stage && is_left_out(name) && rest.empty()) return;
  if (!stage || !op || !micro_batch || !rest.empty())
    refuse(place, "a cell is no action", "stage, F, B, I or W, micro-batch, as in 2F0",
           std::string(text));
  program.push_back({.op = *op, .stage = *stage, .micro_batch = *micro_batch});
}

void add_cell(Program& program, std::string_view cell, const Place& place) {
  constexpr std::string_view kPair = ")OVERLAP_F_B";
  if (cell.starts_with('(') && cell.ends_with(kPair)) {
    cell.remove_prefix(1);
    cell.remove_suffix(kPair.size());
    for_each_part(cell, ';',
                  [&](std::string_view part, int) { add_action(program, trimmed(part), place); });
  } else if (!cell.empty()) {
    add_action(program, cell, place);
  }
}

// Numbers from 0 without a gap.
void require_all(const std::set<int>& numbers, const char* what, const std::string& name) {
  if (numbers.empty() || *numbers.rbegin() + 1 == static_cast<int>(numbers.size())) return;
  int missing = 0;
  while (numbers.contains(missing)) ++missing;
  refuse({name, 1, 0}, std::string("a ") + what + " is missing",
         std::string(what) + " 0 to " + std::to_string(*numbers.rbegin()),
         "no " + std::string(what) + " " + std::to_string(missing));
}

}  // namespace

Schedule read_order(std::string_view csv, const std::string& where) {
  Schedule schedule{.kind = ScheduleKind::kFile};
  std::set<int> stages, micro_batches;
  for_each_part(csv, '\n', [&](std::string_view line, int number) {
    if (trimmed(line).empty()) return;
    Program& program = schedule.programs.emplace_back();
    for_each_part(line, ',', [&](std::string_view cell, int cell_number) {
      const Place place{where, number, cell_number};
      const std::size_t before = program.size();
      add_cell(program, trimmed(cell), place);
      for (std::size_t i = before; i < program.size(); ++i) {
        const auto stage = static_cast<std::size_t>(program[i].stage);
        const int rank = schedule.num_ranks() - 1;
        stages.insert(program[i].stage);
        micro_batches.insert(program[i].micro_batch);
        if (schedule.rank_of_stage.size() <= stage) schedule.rank_of_stage.resize(stage + 1, -1);
        int& holder = schedule.rank_of_stage[stage];
        if (holder >= 0 && holder != rank)
          refuse(place, "a stage is on two ranks", "all actions of a stage on one line",
                 "stage " + std::to_string(stage) + " also on line " + std::to_string(holder + 1));
        holder = rank;
      }
    });
  });
  if (stages.empty())
    refuse({where, 1, 0}, "the order is empty", "one line of actions a rank", "none");
  require_all(stages, "stage", where);
  require_all(micro_batches, "micro-batch", where);
  schedule.num_micro_batches = static_cast<int>(micro_batches.size());
  return schedule;
}

void require_legal(const Schedule& order) {
  Dataflow dataflow{.num_layers = order.num_stages()};
  Partition partition{.bounds = {0}};
  for (int stage = 0; stage < order.num_stages(); ++stage) {
    Value value{.name = "x", .producer = stage};
    if (stage + 1 < order.num_stages()) value.consumers = {stage + 1};
    dataflow.values.push_back(std::move(value));
    partition.bounds.push_back(stage + 1);
  }
  validate(lower(order, dataflow, partition, {}), dataflow, partition, {});
}

std::string order_csv(const Schedule& schedule) {
  std::string text;
  for (const Program& program : schedule.programs) {
    bool first = true;
    for (const Action& action : program) {
      if (!is_compute(action.op)) continue;
      if (!std::exchange(first, false)) text += ',';
      text +=
          std::to_string(action.stage) + kind_of(action.op) + std::to_string(action.micro_batch);
    }
    text += '\n';
  }
  return text;
}

}  // namespace strata
