// A terminal's line is rewritten in place and must not wrap, because a wrapped line cannot be
// rewritten. Pipes and files get whole lines without control characters.
#include "strata/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "strata/base/units.h"

namespace strata {
namespace {

// Faster than a reader needs, slow enough to cost nothing.
constexpr double kRewriteSeconds = 0.1;

}  // namespace

std::string progress_text(const StepRecord& record, std::int64_t total_steps, double left_seconds) {
  const std::string total = std::to_string(total_steps);
  std::string step = std::to_string(record.step);
  step.insert(0, total.size() - std::min(total.size(), step.size()), ' ');
  std::string text = "step " + step + "/" + total + "  loss " + format_double(record.loss, 4);
  if (record.validation_loss) {
    text += "  validation " + format_double(*record.validation_loss, 4);
    for (const auto& [name, value] : record.validation_metrics)
      text += "  " + name + " " + format_double(value, 4);
  }
  text += "  " + format_count(record.units_per_second) + " " + record.unit + "s/s";
  text += "  " + format_seconds(record.step_seconds) + "/step";
  text += "  bubble " + format_double(100 * record.bubble, 1) + " %";
  if (!record.peak_bytes.empty()) {
    text += "  memory " + format_bytes(*std::ranges::max_element(record.peak_bytes));
  }
  if (record.embedding && record.embedding->size)
    text += " + rows " + format_bytes(record.embedding->size->bytes);
  if (const auto& offload = record.offload) {
    text += " + host " + format_bytes(*std::ranges::max_element(offload->host_peak_bytes));
    text += "  moved " + format_bytes(offload->bytes_to_device + offload->bytes_to_host);
    text += "  waited " +
            format_seconds(offload->weights_wait_seconds + offload->gradients_wait_seconds +
                           offload->activations_wait_seconds);
    if (const auto& disk = offload->disk)
      text += "  disk " + format_bytes(disk->bytes_read + disk->bytes_written);
  }
  if (record.step < total_steps) text += "  left " + format_seconds(std::ceil(left_seconds));
  return text;
}

double RemainingTime::seconds_after(const StepRecord& record, double now) {
  if (first_step_ < 0) {
    first_step_ = record.step;
    first_seconds_ = now;
  }
  const std::int64_t timed = record.step - first_step_;
  const double pace =
      timed > 0 ? (now - first_seconds_) / static_cast<double>(timed) : record.step_seconds;
  return pace * static_cast<double>(total_steps_ - record.step);
}

Progress::Progress(std::ostream& out, ProgressOptions options)
    : out_(out), options_(options), remaining_(options.total_steps) {}

Progress::~Progress() {
  if (!line_.empty()) out_ << '\n' << std::flush;
}

void Progress::update(const StepRecord& record, double now) {
  const bool first = !std::exchange(has_printed_, true);
  const double left = remaining_.seconds_after(record, now);
  const bool last = record.step >= options_.total_steps;
  const bool by_steps = !options_.terminal && options_.every_steps > 0;
  const double pause = options_.terminal ? kRewriteSeconds : options_.every_seconds;
  const bool due =
      by_steps ? record.step % options_.every_steps == 0 : now - printed_seconds_ >= pause;
  // Validations are rare and important, so their line stays.
  const bool validated = record.validation_loss.has_value();
  if (!first && !last && !due && !validated) return;
  printed_seconds_ = now;

  const std::string text = progress_text(record, options_.total_steps, left);
  if (options_.terminal && !validated) {
    line_ = text;
    rewrite();
    return;
  }
  clear();
  line_.clear();
  out_ << text << '\n' << std::flush;
}

void Progress::note(const std::string& text) {
  clear();
  out_ << text << '\n';
  rewrite();
}

void Progress::rewrite() {
  if (line_.empty()) {
    out_ << std::flush;
    return;
  }
  // A wrapped line cannot be rewritten.
  const auto room =
      options_.columns > 1 ? static_cast<std::size_t>(options_.columns - 1) : std::string::npos;
  out_ << '\r' << line_.substr(0, room) << "\x1b[K" << std::flush;
}

void Progress::clear() {
  if (!line_.empty()) out_ << "\r\x1b[K";
}

ProgressOptions progress_to_stderr(std::int64_t total_steps, std::int64_t every_steps) {
  ProgressOptions options{.total_steps = total_steps, .every_steps = every_steps};
  const char* term = std::getenv("TERM");
  options.terminal = isatty(STDERR_FILENO) && term != nullptr && std::string_view(term) != "dumb";
  winsize size{};
  if (options.terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) {
    options.columns = size.ws_col;
  }
  return options;
}

}  // namespace strata
