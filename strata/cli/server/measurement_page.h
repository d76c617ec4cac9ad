/// Writes what a server reached in each setting as one page of HTML, without external resources.
#pragma once

#include <string>

#include "strata/cli/server/measured_settings.h"

namespace strata {

/// `model`: its name, for the title.
std::string measurement_page(const Measurement& measurement, const std::string& model);

}  // namespace strata
