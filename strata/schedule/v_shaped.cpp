// Schedules of two stages a rank, placed in a V. Stage `rank` is called the first and stage
// 2p-1-rank the second. Orders for fewer micro-batches than a schedule needs are cut from longer
// ones.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/schedule/empty_schedule.h"

namespace strata {
namespace {

enum Stage { kFirst = 0, kSecond = 1 };

// Writes a rank's program: each call adds the next micro-batch of an operation.
class Writer {
 public:
  Writer(int ranks, int rank) : stages_{rank, 2 * ranks - 1 - rank} {}

  void add(Op op, Stage stage) {
    const int kind = op == Op::kForward ? 0 : op == Op::kBackwardWeight ? 2 : 1;
    const int micro_batch = next_[kind][stage]++;
    program_.push_back({.op = op, .stage = stages_[stage], .micro_batch = micro_batch});
    if (op == Op::kBackward) next_[2][stage] = micro_batch + 1;
    if (op == Op::kBackwardInput) waiting_.emplace_back(stage, micro_batch);
  }
  void forward(Stage stage) { add(Op::kForward, stage); }
  void inputs(Stage stage) { add(Op::kBackwardInput, stage); }
  void weights(Stage stage) {
    std::erase(waiting_, std::pair(stage, next_[2][stage]));
    add(Op::kBackwardWeight, stage);
  }
  void backward(Stage stage) { add(Op::kBackward, stage); }
  /// The second half that waits longest.
  void oldest_weights() { weights(waiting_.front().first); }

  int forwards(Stage stage) const { return next_[0][stage]; }
  int second_halves(Stage stage) const { return next_[2][stage]; }
  Program take() { return std::move(program_); }

 private:
  std::array<int, 2> stages_;
  int next_[3][2] = {};  // forwards, first and second halves
  std::vector<std::pair<Stage, int>> waiting_;
  Program program_;
};

template <typename F>
Schedule write(ScheduleKind kind, const PipelineShape& shape, int least, F fill) {
  empty_schedule(kind, shape);  // checks the shape
  PipelineShape longer = shape;
  longer.micro_batches = std::max(shape.micro_batches, least);
  Schedule schedule = empty_schedule(kind, longer);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Writer writer(shape.ranks, rank);
    fill(writer, rank, longer.micro_batches);
    schedule.programs[rank] = writer.take();
  }
  return first_micro_batches(schedule, shape.micro_batches);
}

void fill_zbv(Writer& to, int ranks, int rank, int count) {
  const int later = ranks - rank;
  for (int i = 0; i < 2 * later - 1; ++i) to.forward(kFirst);
  for (int i = 0; i < rank; ++i) to.forward(kSecond), to.forward(kFirst);
  const auto second = [&] { to.forward(kSecond), to.inputs(kSecond), to.weights(kSecond); };
  for (int i = 0; i < later; ++i) second();
  while (to.forwards(kSecond) < count) {
    if (to.forwards(kFirst) < count) to.forward(kFirst);
    to.inputs(kFirst), to.weights(kFirst);
    second();
  }
  for (int i = 0; i < rank; ++i) to.inputs(kFirst), to.inputs(kSecond);
  for (int i = 0; i < later; ++i) to.inputs(kFirst), to.weights(kFirst);
  while (to.second_halves(kSecond) < count) to.weights(kSecond);
  while (to.second_halves(kFirst) < count) to.weights(kFirst);
}

// A forward and a backward that DualPipe overlaps run one after the other here.
void fill_dualpipev(Writer& to, int ranks, int rank, int count) {
  const int later = ranks - rank - 1;
  for (int i = 0; i < 2 * later; ++i) to.forward(kFirst);
  for (int i = 0; i <= rank; ++i) to.forward(kFirst), to.forward(kSecond);
  for (int i = 0; i < later; ++i) to.inputs(kSecond), to.weights(kSecond), to.forward(kSecond);
  for (int i = 0; i < count - 2 * ranks + rank + 1; ++i) {
    to.forward(kFirst), to.backward(kSecond);
    to.forward(kSecond), to.backward(kFirst);
  }
  for (int i = 0; i < later; ++i) to.backward(kSecond), to.forward(kSecond), to.backward(kFirst);
  const int half = (rank + 1) / 2;
  for (int i = 0; i <= rank; ++i) {
    const bool halves = i > half || (i == half && rank % 2 == 1);
    to.add(halves ? Op::kBackwardInput : Op::kBackward, kSecond);
    to.add(i >= half ? Op::kBackwardInput : Op::kBackward, kFirst);
  }
  for (int i = 0; i < later; ++i) to.oldest_weights(), to.inputs(kFirst);
  for (int i = 0; i <= rank; ++i) to.oldest_weights();
}

// ---- Building blocks ----
// A block is one micro-batch's work on all ranks in units of time, with equal units for forwards
// and halves. It repeats every kPeriod units, so on each rank its six units must differ modulo the
// period. How far ranks are apart in each of the four passes decides how long activations live, and
// with it how many a rank holds.

constexpr int kPeriod = 6;

// Units between neighbouring ranks in each pass: forwards of the first and of the second stage,
// backwards of the second and of the first.
using Steps = std::array<int, 4>;
using Units = std::array<int, 4>;  // of a rank, in the order of the passes

std::vector<Units> units_of(int ranks, const Steps& steps, const std::array<int, 3>& turns) {
  std::vector<Units> units(ranks);
  int now = 0;
  for (int pass = 0; pass < 4; ++pass) {
    const bool down = pass % 2 == 0;  // towards the last rank
    for (int i = 0; i < ranks; ++i) {
      units[down ? i : ranks - 1 - i][pass] = now;
      if (i + 1 < ranks) now += steps[pass];
    }
    if (pass < 3) now += turns[pass];
  }
  return units;
}

bool differ(const Units& units) {
  for (int a = 0; a < 4; ++a)
    for (int b = a + 1; b < 4; ++b)
      if ((units[b] - units[a]) % kPeriod == 0) return false;
  return true;
}

// The shortest block whose units differ on every rank.
std::vector<Units> block_of(int ranks, const Steps& steps) {
  std::vector<Units> best;
  for (int code = 0; code < kPeriod * kPeriod * kPeriod; ++code) {
    const std::array<int, 3> turns{1 + code % kPeriod, 1 + code / kPeriod % kPeriod,
                                   1 + code / kPeriod / kPeriod};
    std::vector<Units> units = units_of(ranks, steps, turns);
    if (!std::ranges::all_of(units, differ)) continue;
    if (best.empty() || units[0][3] < best[0][3]) best = std::move(units);
  }
  STRATA_CHECK(!best.empty(), "schedule.block_of");
  return best;
}

// Second halves take the two free units of the period after their first halves.
void fill_blocks(Writer& to, const Units& units, int count) {
  struct Timed {
    int unit;
    Op op;
    Stage stage;
  };
  std::vector<Timed> block{{units[0], Op::kForward, kFirst},
                           {units[1], Op::kForward, kSecond},
                           {units[2], Op::kBackwardInput, kSecond},
                           {units[3], Op::kBackwardInput, kFirst}};
  const auto taken = [&](int unit) {
    return std::ranges::any_of(block,
                               [&](const Timed& it) { return (it.unit - unit) % kPeriod == 0; });
  };
  for (const auto& [after, stage] : {std::pair(units[2], kSecond), std::pair(units[3], kFirst)}) {
    int unit = after + 1;
    while (taken(unit)) ++unit;
    block.push_back({unit, Op::kBackwardWeight, stage});
  }
  std::vector<Timed> all;
  for (int i = 0; i < count; ++i)
    for (Timed timed : block) {
      timed.unit += i * kPeriod;
      all.push_back(timed);
    }
  std::ranges::stable_sort(all, {}, &Timed::unit);
  for (const Timed& timed : all) to.add(timed.op, timed.stage);
}

Schedule repeat(ScheduleKind kind, const PipelineShape& shape, const Steps& steps) {
  std::vector<Units> block;
  return write(kind, shape, 1, [&](Writer& to, int rank, int count) {
    if (block.empty()) block = block_of(shape.ranks, steps);
    fill_blocks(to, block[rank], count);
  });
}

}  // namespace

Schedule zbv(PipelineShape shape) {
  return write(ScheduleKind::kZbv, shape, 2 * shape.ranks - 1,
               [&](Writer& to, int rank, int count) { fill_zbv(to, shape.ranks, rank, count); });
}

Schedule dualpipev(PipelineShape shape) {
  return write(
      ScheduleKind::kDualPipeV, shape, 2 * shape.ranks,
      [&](Writer& to, int rank, int count) { fill_dualpipev(to, shape.ranks, rank, count); });
}

Schedule v_half(PipelineShape shape) { return repeat(ScheduleKind::kVHalf, shape, {1, 2, 1, 2}); }

Schedule v_min(PipelineShape shape) { return repeat(ScheduleKind::kVMin, shape, {1, 1, 1, 1}); }

}  // namespace strata
