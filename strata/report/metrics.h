/// Writes the numbers of every finished step as one JSON object per line, for readers, plots and
/// tests of exact bits.
///
/// Keys    step, loss, loss_hex (the exact bits, as C's %a), gradient_norm, gradient_norm_hex,
///         learning_rate, tokens_per_second (or samples_per_second: the unit of the loss),
///         step_seconds, bubble, peak_bytes (a list, one per rank), samples_seen.
///         sent_bytes (of several ranks): what ranks sent each other since the last step, by axis
///         (pp, dp, tp), and other: sums of the step's numbers; checkpoints do not count. A tensor
///         that a peer reads in place counts like one that moves.
///         offload (if any state lives in host memory): host_peak_bytes (a list), bytes_to_device,
///         bytes_to_host, weights_wait_seconds, gradients_wait_seconds, activations_wait_seconds;
///         disk (if any state lives on a disk): bytes_read, bytes_written, read_seconds,
///         write_seconds.
///         embedding (of a recommender): wait_seconds; staleness by table, the rows read by their
///         staleness in updates; the sizes of all tables: rows and bytes in memory, cold_rows and
///         cold_bytes on disk, parameters of both. With servers the sizes are written at
///         validations, checkpoints and the last step only.
///         validation_loss and validation (an object of other metrics, such as auc), after a
///         validation.
///         Numbers that JSON lacks, such as a loss of NaN, are null; their hex form still has them.
/// Cost    one write per step; every line is complete on disk before the next step starts.
/// Errors  UserError: the path cannot be written, or the file holds something other than metrics
///         and is left unchanged. SystemError: the disk is full.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/layout/axis.h"

namespace strata {

/// What a step moved between hosts and disks, over all ranks. Transfers that end during the next
/// step count there.
struct DiskRecord {
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  double read_seconds = 0;   ///< on the busiest rank
  double write_seconds = 0;  ///< the same; includes commits
};

/// What a step moved between devices and host memory, over all ranks.
struct OffloadRecord {
  std::vector<std::int64_t> host_peak_bytes{};  ///< one per rank
  std::int64_t bytes_to_device = 0;
  std::int64_t bytes_to_host = 0;
  double weights_wait_seconds =
      0;  ///< on the rank that waited longest; includes waits for the preceding updates
  double gradients_wait_seconds = 0;    ///< the same
  double activations_wait_seconds = 0;  ///< the same
  std::optional<DiskRecord> disk{};     ///< if any state lives on a disk
};

/// The size of embeddings in one table or in all tables; optimizer states are stored with the rows.
struct EmbeddingSize {
  std::int64_t rows = 0;        ///< rows in memory
  std::int64_t bytes = 0;       ///< bytes in memory: rows, states, index
  std::int64_t cold_rows = 0;   ///< rows on disk
  std::int64_t cold_bytes = 0;  ///< bytes on disk
  std::int64_t parameters = 0;  ///< elements of all rows

  EmbeddingSize& operator+=(const EmbeddingSize& other);
};

struct TableSize {
  std::string table;
  EmbeddingSize size;
};
EmbeddingSize sum_of(const std::vector<TableSize>& tables);

/// "1.50 M rows, 24.0 M parameters; 222 MiB in memory, 0 B on disk".
std::string size_text(const EmbeddingSize& size);

/// The embeddings that a step read, over all ranks.
struct EmbeddingRecord {
  double wait_seconds = 0;  ///< on the rank that waited longest
  /// Per table: rows read, by staleness in updates.
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> staleness{};
  std::optional<EmbeddingSize> size{};  ///< of all tables; none: the servers were not queried
};

/// Numbers by name, such as an AUC, in display order.
using NamedMetrics = std::vector<std::pair<std::string, double>>;
std::string metrics_text(const NamedMetrics& metrics);  ///< "auc 0.7931, calibration 1.0021"
std::optional<double> metric_named(const NamedMetrics& metrics, const std::string& name);

/// Bytes that ranks sent each other since the last step, over all ranks.
struct SentBytes {
  PerAxis<std::int64_t> axes;
  std::int64_t other = 0;
};

/// The numbers of one finished step, for the progress line, metrics and the report.
struct StepRecord {
  std::int64_t step = 0;     ///< steps finished, including this one: the first is 1
  double loss = 0;           ///< mean over the valid units of the step, nats
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  std::string unit = "token";  ///< the unit of loss and speed: "token", "sample"
  double units_per_second = 0;
  double step_seconds = 0;
  double bubble = 0;                           ///< idle fraction of all ranks' time
  std::vector<std::int64_t> peak_bytes{};      ///< one per rank
  std::optional<SentBytes> sent{};             ///< if there are several ranks
  std::optional<OffloadRecord> offload{};      ///< if any state lives on the host
  std::optional<EmbeddingRecord> embedding{};  ///< if the model is a recommender
  std::optional<double> validation_loss{};     ///< if a validation followed this step, nats
  NamedMetrics validation_metrics{};           ///< other metrics of that validation
  std::int64_t samples_seen = 0;               ///< since the begin of training
};

/// One line, without the line break.
std::string to_metrics_line(const StepRecord& record);

class MetricsFile {
 public:
  /// Appends after the line of step `steps_done`. Removes later lines and incomplete ones, which
  /// belong to an interrupted run. A new run (0) starts an empty file.
  explicit MetricsFile(const std::string& path, std::int64_t steps_done = 0);

  void write(const StepRecord& record);

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace strata
