/// Lists what the HTML report is put together from: its sections, each "" without its data, and the
/// files of assets/ that the build embeds.
#pragma once

#include <string>
#include <string_view>

#include "strata/report/report.h"

namespace strata::report {

std::string timeline(const ReportInput& input);
std::string idle(const ReportInput& input);
std::string loss_curve(const ReportInput& input);
std::string memory(const ReportInput& input);

extern const std::string_view kStyleSheet;
extern const std::string_view kScript;

}  // namespace strata::report
