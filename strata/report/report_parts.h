/// Lists the sections that the HTML report is put together from; each is "" without its data.
#pragma once

#include <string>

#include "strata/report/report.h"

namespace strata::report {

std::string tiles(const ReportInput& input);
std::string timeline(const ReportInput& input);
std::string idle(const ReportInput& input);
std::string loss_curve(const ReportInput& input);
std::string memory(const ReportInput& input);
std::string comparison(const ReportInput& input);

const char* style_sheet();
const char* script();

}  // namespace strata::report
