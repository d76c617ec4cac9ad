#include "strata/schedule/grid.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "strata/schedule/execute.h"

namespace strata {
namespace {

constexpr char kMark[] = "  <-- ERROR HERE";

// The whole forward or backward, or half a backward, of one stage and micro-batch. The first half
// is at the place of a whole one.
using Unit = std::tuple<Op, int, int>;

Op direction(Op op) { return op == Op::kForward || op == Op::kBackwardWeight ? op : Op::kBackward; }

Unit unit_of(const Action& action) {
  return {direction(action.op), action.stage, action.micro_batch};
}

// Maps every unit of a schedule to a number. A grid also shows illegal schedules, so the table has
// an entry for every stage and micro-batch that any action names.
template <typename T>
class UnitTable {
 public:
  UnitTable(const Schedule& schedule, T none) : none_(none) {
    int stages = schedule.num_stages(), micro_batches = schedule.num_micro_batches;
    for (const Program& program : schedule.programs) {
      for (const Action& action : program) {
        if (!is_compute(action.op)) continue;
        stages = std::max(stages, action.stage + 1);
        micro_batches = std::max(micro_batches, action.micro_batch + 1);
      }
    }
    stages_ = stages + 1;  // plus one for stage -1
    micro_batches_ = micro_batches + 1;
    values_.assign(std::size_t{3} * stages_ * micro_batches_, none);
  }
  T& operator[](const Unit& unit) { return values_[index(unit)]; }
  T at(const Unit& unit) const {
    const auto& [op, stage, micro_batch] = unit;
    return stage < -1 || stage + 1 >= stages_ ? none_ : values_[index(unit)];
  }

 private:
  std::size_t index(const Unit& unit) const {
    const auto& [op, stage, micro_batch] = unit;
    const std::size_t part = op == Op::kForward ? 0 : op == Op::kBackwardWeight ? 2 : 1;
    const std::size_t row = part * stages_ + stage + 1;
    return row * micro_batches_ + micro_batch + 1;
  }
  T none_;
  int stages_ = 0, micro_batches_ = 0;
  std::vector<T> values_;
};

// The state of a unit while units are placed; otherwise the column at which it ended.
constexpr int kAbsent = -2, kNotPlaced = -1;
using Ends = UnitTable<int>;

// Reduces a program to one action per unit, at the unit's start. A recompute starts its backward.
Program units_of(const Program& program, int rank, UnitTable<int>& last_rank, Ends& ends) {
  Program units;
  for (Action action : program) {
    if (!is_compute(action.op)) continue;
    int& last = last_rank[unit_of(action)];
    if (last == rank) continue;
    last = rank;
    ends[unit_of(action)] = kNotPlaced;
    if (action.op == Op::kRecompute) action.op = Op::kBackward;
    units.push_back(action);
  }
  for (Action& unit : units)
    if (unit.op == Op::kBackward &&
        ends.at({Op::kBackwardWeight, unit.stage, unit.micro_batch}) != kAbsent)
      unit.op = Op::kBackwardInput;
  return units;
}

// Draws one rank. Every unit takes one column.
class Row : public Machine {
 public:
  explicit Row(Ends& ends) : ends_(&ends) {}

  bool ready(const Action& action) override { return start_of(action) >= 0; }

  void perform(const Action& action) override {
    const int column = std::max<int>(start_of(action), static_cast<int>(cells_.size()));
    cells_.resize(column, Action{.op = Op::kUpdate});
    cells_.push_back(action);
    (*ends_)[unit_of(action)] = column + 1;
  }

  const Program& cells() const { return cells_; }

 private:
  // The first column in which all inputs of the unit are complete; -1: some are not.
  int start_of(const Action& action) const {
    const auto [op, stage, micro_batch] = unit_of(action);
    const bool forward = op == Op::kForward;
    const int before = forward ? stage - 1 : op == Op::kBackwardWeight ? stage : stage + 1;
    int start = 0;
    for (const Unit& needed : {Unit{Op::kForward, forward ? stage - 1 : stage, micro_batch},
                               Unit{forward ? op : Op::kBackward, before, micro_batch}}) {
      const int end = ends_->at(needed);
      if (end == kNotPlaced) return -1;
      start = std::max(start, end);
    }
    return start;
  }

  Ends* ends_;
  Program cells_;  // kUpdate: empty
};

std::vector<Row> place(const Schedule& schedule) {
  Ends ends(schedule, kAbsent);
  std::vector<Program> units;
  UnitTable<int> last_rank(schedule, -1);  // the rank whose program contains the unit
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    units.push_back(units_of(schedule.programs[rank], rank, last_rank, ends));
  }
  std::vector<Row> rows(units.size(), Row(ends));
  std::vector<Execution> executions;
  for (std::size_t r = 0; r < units.size(); ++r) executions.emplace_back(units[r], rows[r]);

  for (bool moved = true; moved;) {
    moved = false;
    for (Execution& execution : executions) moved |= execution.advance();
  }
  for (std::size_t r = 0; r < units.size(); ++r) {
    for (std::size_t i = executions[r].position(); i < units[r].size(); ++i) {
      rows[r].perform(units[r][i]);
    }
  }
  return rows;
}

// The unit that contains the marked action. For a transfer: the compute action that needs it.
const Action* marked_unit(const Schedule& schedule, const GridOptions& options) {
  if (options.marked_rank < 0 || options.marked_rank >= schedule.num_ranks()) return nullptr;
  const Program& program = schedule.programs[options.marked_rank];
  const int size = static_cast<int>(program.size());
  if (options.marked_position < 0 || options.marked_position >= size) return nullptr;
  const int step = is_send(program[options.marked_position].op) ? -1 : 1;
  for (int i = options.marked_position; i >= 0 && i < size; i += step) {
    if (is_compute(program[i].op)) return &program[i];
  }
  return nullptr;
}

class Labels {
 public:
  explicit Labels(const Schedule& schedule) : chunk_(schedule.num_stages()) {
    is_virtual_ = schedule.num_stages() > schedule.num_ranks();
    std::vector<int> stages(schedule.num_ranks());
    for (int s = 0; s < schedule.num_stages(); ++s) {
      chunk_[s] = stages[schedule.rank_of_stage[s]]++;
    }
  }
  std::string operator()(const Action& unit) const {
    if (!is_compute(unit.op)) return ".";
    std::string label = kind_of(unit.op) + std::to_string(unit.micro_batch);
    if (!is_virtual_) return label;
    // A grid also shows broken schedules.
    const bool known = unit.stage >= 0 && unit.stage < static_cast<int>(chunk_.size());
    return label + "." + (known ? std::to_string(chunk_[unit.stage]) : "?");
  }

 private:
  std::vector<int> chunk_;
  bool is_virtual_ = false;
};

struct Window {
  int begin = 0;
  int end = 0;
};

Window window_of(int columns, int mark, int max_columns) {
  if (max_columns <= 0 || columns <= max_columns) return {0, columns};
  const int begin = std::clamp(mark - max_columns / 2, 0, columns - max_columns);
  return {begin, begin + max_columns};
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

int column_of(const Program& cells, const Action* unit) {
  if (!unit) return -1;
  const auto same = [&](const Action& cell) {
    return is_compute(cell.op) && unit_of(cell) == unit_of(*unit);
  };
  return static_cast<int>(std::find_if(cells.begin(), cells.end(), same) - cells.begin());
}

std::size_t widest_of(const Program& cells, const Labels& label) {
  std::size_t width = 0;
  for (const Action& cell : cells) width = std::max(width, label(cell).size());
  return width;
}

}  // namespace

std::string draw_grid(const Schedule& schedule, const GridOptions& options) {
  const std::vector<Row> rows = place(schedule);
  const Labels label(schedule);
  const Action* marked = marked_unit(schedule, options);
  const int mark = marked ? column_of(rows[options.marked_rank].cells(), marked) : -1;

  int columns = 0;
  std::size_t width = marked ? label(*marked).size() + 1 : 1;
  for (const Row& row : rows) {
    columns = std::max(columns, static_cast<int>(row.cells().size()));
    width = std::max(width, widest_of(row.cells(), label));
  }
  const Window window = window_of(columns, mark, options.max_columns);
  const std::size_t digits = std::to_string(schedule.num_ranks() - 1).size();

  std::string text;
  for (int r = 0; r < schedule.num_ranks(); ++r) {
    const Program& cells = rows[r].cells();
    std::string row;
    for (int c = window.begin; c < window.end; ++c) {
      std::string cell = c < static_cast<int>(cells.size()) ? label(cells[c]) : ".";
      if (r == options.marked_rank && c == mark) cell += "*";
      row += " " + padded(std::move(cell), width);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    const std::string rank = std::to_string(r);
    text += "rank " + std::string(digits - rank.size(), ' ') + rank + ":" + row +
            (r == options.marked_rank ? kMark : "") + "\n";
  }
  if (window.end - window.begin < columns) {
    text += "(columns " + std::to_string(window.begin) + " to " + std::to_string(window.end - 1) +
            " of " + std::to_string(columns) + ")\n";
  }
  return text;
}

std::string list_actions(const Program& program, const ListingOptions& options) {
  const int size = static_cast<int>(program.size());
  int begin = 0;
  int end = size;
  if (options.around >= 0) {
    begin = std::clamp(options.marked_position - options.around, 0, size);
    end = std::clamp(options.marked_position + options.around + 1, begin, size);
  }
  const std::size_t digits = std::to_string(std::max(end - 1, 0)).size();
  std::string text;
  for (int i = begin; i < end; ++i) {
    const std::string position = std::to_string(i);
    text += std::string(digits - position.size(), ' ') + position + "  " + to_string(program[i]) +
            (i == options.marked_position ? kMark : "") + "\n";
  }
  return text;
}

}  // namespace strata
