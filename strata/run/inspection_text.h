/// Writes tables of an inspection for a terminal.
#pragma once

#include <string>
#include <vector>

#include "strata/report/report.h"

namespace strata {

/// Empty if there are no tables.
std::string tables_text(const std::vector<ReportTable>& tables);

}  // namespace strata
