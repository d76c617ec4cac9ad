/// Writes a finished run as one HTML file without external resources.
///
/// It shows the run's facts and results, the timeline predicted and measured on one axis with the
/// tracks of every rank, the time and memory of every rank, the curves of loss and AUC, a sample of
/// the model's text, and for a recommender the size of its tables and the staleness of its
/// embeddings. The file holds the run as JSON (page.h) and the script that draws it (assets/), and
/// opens without a server. Sections without data are omitted.
///
/// Errors  those of DurableFile (base/durable_file.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/track_trace.h"
#include "strata/report/metrics.h"
#include "strata/schedule/trace.h"

namespace strata {

/// A number predicted by the plan and measured in the run.
struct Compared {
  double predicted = 0;
  double measured = 0;
  /// (measured - predicted) / predicted; 0 if unknown.
  double difference() const { return predicted > 0 && measured > 0 ? measured / predicted - 1 : 0; }
};

struct ReportMemory {
  std::vector<std::pair<std::string, std::int64_t>> kinds{};  ///< predicted bytes at the peak
  std::int64_t predicted_peak = 0;
  std::int64_t measured_peak = 0;
};

struct ReportTimeline {
  std::vector<std::vector<TraceEvent>> ranks{};   ///< one list per rank
  std::vector<std::vector<TrackEvent>> tracks{};  ///< tracks, one list per rank; empty: none
  double begin_seconds = 0;                       ///< begin of the step on the events' clock
  double step_seconds = 0;                        ///< end of the step on the axis
};

/// Any other result of a run.
struct ReportTable {
  std::string title, note;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

struct ReportInput {
  std::string title;                                         ///< "GPT, 10.7 M weights"
  std::string unit = "token";                                ///< as in StepRecord
  std::vector<std::pair<std::string, std::string>> facts{};  ///< mesh, schedule, machine, ...
  std::vector<StepRecord> records{};                         ///< all steps of the run
  std::optional<double> validation_loss{};                   ///< at the end
  NamedMetrics validation_metrics{};                         ///< other metrics of that validation
  Compared step_seconds{};
  std::string step_miss{};  ///< one sentence: why predicted and measured seconds differ
  Compared bubble{};
  ReportTimeline predicted{};
  ReportTimeline measured{};
  std::int64_t measured_step = 0;           ///< the step shown by the measured timeline
  std::vector<ReportMemory> memory{};       ///< one per rank: its device
  std::vector<ReportMemory> host_memory{};  ///< the same for its host memory; empty: unused
  std::int64_t budget_bytes = 0;            ///< of a rank's device; 0: no limit
  std::vector<TableSize> embeddings{};      ///< at the end, by table; empty: none, or unknown
  bool rows_are_local = false;              ///< the tables are in the memory of rank 0's process
  std::vector<ReportTable> tables{};
  std::string prompt{};
  std::string sample{};  ///< the model's continuation of the prompt
  std::vector<std::pair<std::string, std::string>> appendices{};  ///< title and text: plan, recipe
};

std::string to_html(const ReportInput& input);
void write_report(const std::string& path, const ReportInput& input);

}  // namespace strata
