/// Draws a finished run as one HTML file that needs nothing else: no network, no other file.
///
/// It shows the run's facts, what was reached, the timeline predicted and measured on one axis,
/// with what goes on beside every rank, where every rank's time goes, the curves of loss and AUC, the memory of
/// every rank, a sample of what the model writes, and of a recommender how many rows its tables hold and how stale
/// they were read. Without scripts it still reads; with them it zooms and explains under the pointer.
/// Sections without data are left out.
///
/// Errors  as of a DurableFile (base/durable_file.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/lane_trace.h"
#include "strata/report/metrics.h"
#include "strata/schedule/trace.h"

namespace strata {

/// A number that the plan predicted and the run then showed.
struct Compared {
  double predicted = 0;
  double measured = 0;
  /// Of the measurement, as a fraction of the prediction: +0.1 took a tenth more than predicted; 0 if
  /// unknown.
  double difference() const { return predicted > 0 && measured > 0 ? measured / predicted - 1 : 0; }
};

struct ReportMemory {
  std::vector<std::pair<std::string, std::int64_t>> kinds{};  ///< predicted bytes at the peak
  std::int64_t predicted_peak = 0;
  std::int64_t measured_peak = 0;
};

struct ReportTimeline {
  std::vector<std::vector<TraceEvent>> ranks{};  ///< one list a rank
  std::vector<std::vector<LaneEvent>> lanes{};   ///< one list a rank; empty: nothing goes beside it
  double begin_seconds = 0;                      ///< of the step, on the events' clock
  double step_seconds = 0;                       ///< where the step ends, on the axis
};

/// Anything else that a run has found out.
struct ReportTable {
  std::string title, note;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

struct ReportInput {
  std::string title;                                         ///< "GPT, 10.7 M weights"
  std::string unit = "token";                                ///< as of a StepRecord
  std::vector<std::pair<std::string, std::string>> facts{};  ///< mesh, schedule, machine, ...
  std::vector<StepRecord> records{};                         ///< of the whole run
  std::optional<double> validation_loss{};                   ///< at the end
  NamedMetrics validation_metrics{};                         ///< beside it
  Compared step_seconds{};
  std::string step_miss{};  ///< one sentence: where predicted and measured seconds part
  Compared bubble{};
  ReportTimeline predicted{};
  ReportTimeline measured{};
  std::int64_t measured_step = 0;      ///< the step that the measured timeline shows
  std::vector<ReportMemory> memory{};  ///< one a rank: its device
  std::vector<ReportMemory>
      host_memory{};                    ///< the same of its host memory; empty: nothing is there
  std::int64_t budget_bytes = 0;        ///< of a rank's device; 0: no limit
  std::vector<TableSize> embeddings{};  ///< at the end, by table; empty: none, or not known
  bool rows_are_local = false;          ///< they are in the memory of rank 0's process
  std::vector<ReportTable> tables{};
  std::string prompt{};
  std::string sample{};  ///< what the model wrote behind the prompt
  std::vector<std::pair<std::string, std::string>> appendices{};  ///< title and text: plan, recipe
};

std::string to_html(const ReportInput& input);
void write_report(const std::string& path, const ReportInput& input);

}  // namespace strata
