// A resumed run truncates the file after the line of its last completed step, so the file reads as
// if the run had not stopped. The file is truncated only if its first line is a metrics line.
#include "strata/report/metrics.h"

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "strata/base/error_source.h"
#include "strata/base/json_text.h"
#include "strata/base/units.h"

namespace strata {
namespace {

constexpr ErrorSource kMetricsErrors{"train.metrics", "name another file with --metrics"};

// The step of a line, or -1 if it is not a metrics line.
std::int64_t step_of(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return -1;
  return json["step"].get<std::int64_t>();
}

// Bytes up to the end of the last line to keep.
std::uintmax_t kept_bytes(const std::string& path, std::int64_t steps_done) {
  std::ifstream in(path, std::ios::binary);
  std::uintmax_t kept = 0;
  bool first = true;
  for (std::string line; std::getline(in, line); first = false) {
    const std::int64_t step = step_of(line);
    const bool torn = in.eof();  // no line break: the writer was killed within the line
    if (first && step < 0 && !(torn && line.starts_with("{\"step\":"))) {
      throw kMetricsErrors.user(path, "the file exists and does not hold metrics",
                                "a new file, or one of ours", "");
    }
    if (torn || step < 0 || step > steps_done) break;
    kept += line.size() + 1;
  }
  return kept;
}

}  // namespace

std::string metrics_text(const NamedMetrics& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics)
    text += (text.empty() ? "" : ", ") + name + " " + format_double(value, 4);
  return text;
}

std::optional<double> metric_named(const NamedMetrics& metrics, const std::string& name) {
  for (const auto& [known, value] : metrics)
    if (known == name) return value;
  return std::nullopt;
}

EmbeddingSize& EmbeddingSize::operator+=(const EmbeddingSize& other) {
  rows += other.rows, bytes += other.bytes;
  cold_rows += other.cold_rows, cold_bytes += other.cold_bytes;
  parameters += other.parameters;
  return *this;
}

EmbeddingSize sum_of(const std::vector<TableSize>& tables) {
  EmbeddingSize sum;
  for (const TableSize& table : tables) sum += table.size;
  return sum;
}

std::string size_text(const EmbeddingSize& size) {
  return format_count(static_cast<double>(size.rows + size.cold_rows)) + " rows, " +
         format_count(static_cast<double>(size.parameters)) + " parameters; " +
         format_bytes(size.bytes) + " in memory, " + format_bytes(size.cold_bytes) + " on disk";
}

std::string to_metrics_line(const StepRecord& record) {
  nlohmann::ordered_json json;
  json["step"] = record.step;
  json["loss"] = record.loss;
  json["loss_hex"] = format_hex(record.loss);
  json["gradient_norm"] = record.gradient_norm;
  json["gradient_norm_hex"] = format_hex(record.gradient_norm);
  json["learning_rate"] = record.learning_rate;
  json[record.unit + "s_per_second"] = record.units_per_second;
  json["step_seconds"] = record.step_seconds;
  json["bubble"] = record.bubble;
  json["peak_bytes"] = record.peak_bytes;
  if (const auto& sent = record.sent) {
    for (const AxisInfo& axis : kAxes) json["sent_bytes"][axis.name] = sent->axes[axis.id];
    json["sent_bytes"]["other"] = sent->other;
  }
  if (const auto& offload = record.offload) {
    json["offload"] = {{"host_peak_bytes", offload->host_peak_bytes},
                       {"bytes_to_device", offload->bytes_to_device},
                       {"bytes_to_host", offload->bytes_to_host},
                       {"weights_wait_seconds", offload->weights_wait_seconds},
                       {"gradients_wait_seconds", offload->gradients_wait_seconds},
                       {"activations_wait_seconds", offload->activations_wait_seconds}};
    if (const auto& disk = offload->disk) {
      json["offload"]["disk"] = {{"bytes_read", disk->bytes_read},
                                 {"bytes_written", disk->bytes_written},
                                 {"read_seconds", disk->read_seconds},
                                 {"write_seconds", disk->write_seconds}};
    }
  }
  if (const auto& embedding = record.embedding) {
    nlohmann::ordered_json& of = json["embedding"];
    of["wait_seconds"] = embedding->wait_seconds;
    if (const auto& size = embedding->size)
      of.update({{"rows", size->rows},
                 {"bytes", size->bytes},
                 {"cold_rows", size->cold_rows},
                 {"cold_bytes", size->cold_bytes},
                 {"parameters", size->parameters}});
    // operator[] of an ordered object would search all names before adding one
    nlohmann::ordered_json::object_t staleness;
    for (const auto& [table, counts] : embedding->staleness) staleness.emplace_back(table, counts);
    of["staleness"] = std::move(staleness);
  }
  if (record.validation_loss) json["validation_loss"] = *record.validation_loss;
  for (const auto& [name, value] : record.validation_metrics) json["validation"][name] = value;
  json["samples_seen"] = record.samples_seen;
  return json_text(json);
}

MetricsFile::MetricsFile(const std::string& path, std::int64_t steps_done) : path_(path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(std::filesystem::status(path, error))) {
    std::filesystem::resize_file(path, kept_bytes(path, steps_done), error);
    if (error)
      throw kMetricsErrors.user(path, "cannot shorten the file", "a file that may be written", "");
  }
  out_.open(path, std::ios::binary | std::ios::app);
  if (!out_.is_open()) {
    throw kMetricsErrors.user(path, "cannot write the file",
                              "a path in an existing folder that may be written", "");
  }
}

void MetricsFile::write(const StepRecord& record) {
  errno = EIO;  // unless the system reports another error
  out_ << to_metrics_line(record) << '\n' << std::flush;
  if (out_) return;
  throw_error(file_error("train.metrics", path_,
                         "cannot write the line of step " + std::to_string(record.step), errno));
}

}  // namespace strata
