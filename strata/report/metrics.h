/// Keeps what one finished step is known by, and writes it as one JSON object a line, for people, plots
/// and tests of exact bits.
///
/// Keys    step, loss, loss_hex (the exact bits, as C's %a), gradient_norm, gradient_norm_hex,
///         learning_rate, tokens_per_second (or samples_per_second: what the model's loss is a mean of),
///         step_seconds, bubble, peak_bytes (a list, one per rank), offload (where something lives in host memory: host_peak_bytes, a list,
///         bytes_to_device, bytes_to_host, weights_wait_seconds, gradients_wait_seconds,
///         activations_wait_seconds, and where something lives on a disk disk: bytes_read,
///         bytes_written, read_seconds, write_seconds), embedding (of a recommender: wait_seconds,
///         by table staleness, rows read by how many updates they lacked, and what all tables hold: rows
///         and bytes in memory, cold_rows and cold_bytes on disk, parameters of both; of rows on servers
///         the last five stand at validations, checkpoints and the last step alone),
///         validation_loss and validation (an object of other metrics, such as auc; both where there
///         was a validation), samples_seen. Numbers that JSON
///         lacks, such as a loss of NaN, are null; their hex form still names them.
/// Cost    one write a step; every line is complete on disk before the next step starts.
/// Errors  UserError: the path cannot be written, or holds something other than metrics, which is
///         left as it is. SystemError: the disk is full.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata {

/// What a step moved between hosts and disks, over all ranks. What goes on beside the next step counts
/// there.
struct DiskRecord {
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  double read_seconds = 0;   ///< that the busiest rank's disk read
  double write_seconds = 0;  ///< the same; commits included
};

/// What a step moved between devices and host memory, over all ranks.
struct OffloadRecord {
  std::vector<std::int64_t> host_peak_bytes{};  ///< one a rank
  std::int64_t bytes_to_device = 0;
  std::int64_t bytes_to_host = 0;
  double weights_wait_seconds =
      0;  ///< of the rank that waited longest; for updates before them, too
  double gradients_wait_seconds = 0;    ///< the same
  double activations_wait_seconds = 0;  ///< the same
  std::optional<DiskRecord> disk{};     ///< if anything lives on a disk
};

/// What is there of embeddings, in one table or in all of them; states of optimizers lie beside the rows.
struct EmbeddingSize {
  std::int64_t rows = 0;        ///< in memory
  std::int64_t bytes = 0;       ///< of memory: rows, states, index
  std::int64_t cold_rows = 0;   ///< on disk
  std::int64_t cold_bytes = 0;  ///< of them
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

/// What a step read of embeddings, over all ranks.
struct EmbeddingRecord {
  double wait_seconds = 0;  ///< of the rank that waited longest for rows
  /// By table: rows that were read, by how many updates they lacked those of all steps before.
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> staleness{};
  std::optional<EmbeddingSize> size{};  ///< of all tables; none: servers were not asked
};

/// Numbers by name, such as an AUC, in the order in which they are shown.
using NamedMetrics = std::vector<std::pair<std::string, double>>;
std::string metrics_text(const NamedMetrics& metrics);  ///< "auc 0.7931, calibration 1.0021"
std::optional<double> metric_named(const NamedMetrics& metrics, const std::string& name);

/// What one finished step is known by: the progress line, metrics and the report all read it.
struct StepRecord {
  std::int64_t step = 0;     ///< steps finished, this one included: the first is 1
  double loss = 0;           ///< mean over the valid units of the step, nats
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  std::string unit = "token";  ///< what the loss is a mean of, and speed counts: "token", "sample"
  double units_per_second = 0;
  double step_seconds = 0;
  double bubble = 0;                           ///< idle fraction of all ranks' time
  std::vector<std::int64_t> peak_bytes{};      ///< one a rank
  std::optional<OffloadRecord> offload{};      ///< if anything lives on the host
  std::optional<EmbeddingRecord> embedding{};  ///< of a recommender
  std::optional<double> validation_loss{};     ///< if this step was followed by a validation, nats
  NamedMetrics validation_metrics{};           ///< of that validation, beside the loss
  std::int64_t samples_seen = 0;               ///< since the beginning of training
};

/// One line, without the line break.
std::string to_metrics_line(const StepRecord& record);

class MetricsFile {
 public:
  /// Continues the file behind the line of step `steps_done`; lines of later steps, or torn ones,
  /// are of a run that was interrupted and go away. A new run (0) starts an empty file.
  explicit MetricsFile(const std::string& path, std::int64_t steps_done = 0);

  void write(const StepRecord& record);

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace strata
