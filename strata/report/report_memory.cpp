#include <algorithm>

#include "strata/base/units.h"
#include "strata/report/html.h"
#include "strata/report/report_parts.h"

namespace strata::report {
namespace {

// A budget far above the peaks would shrink every bar to nothing: it is only named then.
constexpr double kLargestBudget = 2.5;

class Bars {
 public:
  explicit Bars(const ReportInput& input) : input_(input) {
    std::int64_t peak = 0;
    for (const ReportMemory& rank : input.memory) {
      peak = std::max({peak, rank.predicted_peak, rank.measured_peak});
      for (const auto& [name, bytes] : rank.kinds) {
        if (bytes > 0 && std::ranges::find(kinds_, name) == kinds_.end()) kinds_.push_back(name);
      }
    }
    full_ = static_cast<double>(peak);
    const double budget = static_cast<double>(input.budget_bytes);
    draws_budget_ = budget > 0 && budget < kLargestBudget * full_;
    full_ = std::max(full_, draws_budget_ ? budget : 0.0) * 1.01;
  }

  bool empty() const { return full_ <= 0; }
  bool draws_budget() const { return draws_budget_; }

  std::string legend() const {
    std::string keys;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      keys += "<span class=\"key\"><i class=\"box kind" + std::to_string(i % 8) + "\"></i>" +
              escape(kinds_[i]) + "</span>";
    }
    return keys + "<span class=\"key\"><i class=\"box measured\"></i>measured peak</span>";
  }

  std::string rank(std::size_t number) const {
    const ReportMemory& rank = input_.memory[number];
    const Compared peaks{static_cast<double>(rank.predicted_peak),
                         static_cast<double>(rank.measured_peak)};
    std::string row =
        "<div class=\"rank\">rank " + std::to_string(number) + "</div><div class=\"bars\">";
    row += "<div class=\"bar\">" + segments(rank) + "</div>";
    if (rank.measured_peak > 0) row += "<div class=\"bar\">" + measured(rank) + "</div>";
    if (draws_budget_) {
      row += "<div class=\"budget\" style=\"left:" + share(input_.budget_bytes) + "\"></div>";
    }
    row += "</div><div class=\"figures\"><span>" + format_bytes(rank.predicted_peak) +
           " <em>predicted</em></span>";
    if (rank.measured_peak > 0) {
      row += "<span>" + format_bytes(rank.measured_peak) + " <em>measured, " +
             signed_percent(peaks.error()) + "</em></span>";
    }
    return row + "</div>";
  }

 private:
  std::string share(std::int64_t bytes) const {
    return format_double(100 * static_cast<double>(bytes) / full_, 3) + "%";
  }

  std::string segments(const ReportMemory& rank) const {
    std::string parts;
    std::int64_t known = 0;
    for (const auto& [name, bytes] : rank.kinds) {
      if (bytes <= 0) continue;
      const auto kind = std::ranges::find(kinds_, name) - kinds_.begin();
      parts += segment("kind" + std::to_string(kind % 8), bytes,
                       name + ": " + format_bytes(bytes) + " of " +
                           format_bytes(rank.predicted_peak) + " predicted");
      known += bytes;
    }
    if (rank.predicted_peak > known) {
      parts += segment("rest", rank.predicted_peak - known,
                       "predicted peak: " + format_bytes(rank.predicted_peak));
    }
    return parts;
  }

  std::string measured(const ReportMemory& rank) const {
    return segment("measured", rank.measured_peak,
                   "measured peak: " + format_bytes(rank.measured_peak));
  }

  std::string segment(const std::string& style, std::int64_t bytes,
                      const std::string& title) const {
    return "<div class=\"segment " + style + "\" style=\"width:" + share(bytes) + "\" data-tip=\"" +
           escape(title) + "\" title=\"" + escape(title) + "\"></div>";
  }

  const ReportInput& input_;
  std::vector<std::string> kinds_;
  double full_ = 0;
  bool draws_budget_ = false;
};

}  // namespace

std::string memory(const ReportInput& input) {
  const Bars bars(input);
  if (bars.empty()) return "";
  std::string caption =
      "What lies in the memory of every rank at its predicted peak, and the peak "
      "that was measured.";
  if (input.budget_bytes > 0) {
    caption += " Budget of a rank: " + format_bytes(input.budget_bytes) +
               (bars.draws_budget() ? ", the dashed line." : ".");
  }
  std::string rows;
  for (std::size_t rank = 0; rank < input.memory.size(); ++rank) rows += bars.rank(rank);
  return "<section class=\"card\" id=\"memory\"><div class=\"head\"><div><h2>Memory</h2><p>" +
         caption + "</p></div></div><div class=\"legend\">" + bars.legend() +
         "</div><div class=\"memory\">" + rows + "</div></section>\n";
}

}  // namespace strata::report
