/// Makes the timeline of a pipeline step, for tests of what reports say about it and to look at.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "strata/report/report.h"

namespace strata::report_test {

struct ExamplePipeline {
  std::vector<double> forward_seconds;  ///< of each stage; one stage a rank
  double backward_ratio = 2;            ///< a backward over a forward
  int micro_batches = 8;
  bool one_f_one_b = true;        ///< else GPipe: all forwards, then all backwards
  double transfer_seconds = 0;    ///< of an activation or a gradient, between its two stages
  double update_seconds = 0;      ///< of every rank
  bool recomputes_first = false;  ///< a third of the first stage runs its forward again
  double begin_seconds = 0;
};

/// Performs the compute actions of all ranks in their order, each as early as its inputs allow.
class PipelineClock {
 public:
  explicit PipelineClock(const ExamplePipeline& pipeline)
      : pipeline_(pipeline),
        stages_(static_cast<int>(pipeline.forward_seconds.size())),
        now_(stages_, pipeline.begin_seconds) {
    timeline_.begin_seconds = pipeline.begin_seconds;
    timeline_.ranks.resize(stages_);
  }

  ReportTimeline run() {
    std::vector<std::vector<std::pair<char, int>>> orders;
    for (int stage = 0; stage < stages_; ++stage) orders.push_back(order_of(stage));
    std::vector<std::size_t> next(stages_, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages_; ++stage) {
        while (next[stage] < orders[stage].size() && perform(stage, orders[stage][next[stage]])) {
          ++next[stage];
          moved = true;
        }
      }
    }
    finish();
    return timeline_;
  }

 private:
  std::vector<std::pair<char, int>> order_of(int stage) const {
    const int all = pipeline_.micro_batches;
    const int warm = pipeline_.one_f_one_b ? std::min(stages_ - stage, all) : all;
    std::vector<std::pair<char, int>> order;
    for (int i = 0; i < warm; ++i) order.emplace_back('F', i);
    for (int i = 0; i < all; ++i) {
      order.emplace_back('B', i);
      if (warm + i < all) order.emplace_back('F', warm + i);
    }
    return order;
  }

  void add(int stage, const char* kind, int micro_batch, double end) {
    timeline_.ranks[stage].push_back({kind, stage, micro_batch, -1, now_[stage], end});
    now_[stage] = end;
  }

  // False while the neighbour has not made what the work needs.
  bool perform(int stage, std::pair<char, int> work) {
    const auto [kind, micro_batch] = work;
    const bool forward = kind == 'F';
    const int sender = forward ? stage - 1 : stage + 1;
    if (sender >= 0 && sender < stages_) {
      const auto made = made_.find({kind, sender, micro_batch});
      if (made == made_.end()) return false;
      add(stage, forward ? "RF" : "RB", micro_batch,
          std::max(now_[stage], made->second + pipeline_.transfer_seconds));
    }
    const double seconds = pipeline_.forward_seconds[stage];
    if (forward) {
      add(stage, "F", micro_batch, now_[stage] + seconds);
    } else if (stage == 0 && pipeline_.recomputes_first) {
      const double third = pipeline_.backward_ratio * seconds / 3;
      add(stage, "B", micro_batch, now_[stage] + third);
      add(stage, "R", micro_batch, now_[stage] + seconds / 3);
      add(stage, "B", micro_batch, now_[stage] + 2 * third);
    } else {
      add(stage, "B", micro_batch, now_[stage] + pipeline_.backward_ratio * seconds);
    }
    made_[{kind, stage, micro_batch}] = now_[stage];
    return true;
  }

  void finish() {
    const double last = *std::max_element(now_.begin(), now_.end());
    for (int stage = 0; stage < stages_; ++stage) {
      add(stage, "N", -1, last);
      if (pipeline_.update_seconds > 0) add(stage, "U", -1, last + pipeline_.update_seconds);
    }
    timeline_.step_seconds = last + pipeline_.update_seconds - pipeline_.begin_seconds;
  }

  ExamplePipeline pipeline_;
  int stages_;
  std::vector<double> now_;
  std::map<std::tuple<char, int, int>, double> made_;  // 'F' or 'B', stage, micro-batch
  ReportTimeline timeline_;
};

inline ReportTimeline pipeline_step(const ExamplePipeline& pipeline) {
  return PipelineClock(pipeline).run();
}

}  // namespace strata::report_test
