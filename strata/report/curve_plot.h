/// Draws curves over steps, with axes, and passes their points to the cursor of assets/report.js.
#pragma once

#include <string>
#include <vector>

namespace strata {

struct CurvePoint {
  double step = 0;
  double value = 0;
};

using Curve = std::vector<CurvePoint>;

/// A curve as it is drawn; `style` is a class of the style sheet.
struct DrawnCurve {
  std::string style;
  Curve curve;
  std::string name = "";  ///< name in the legend and at the cursor; empty: in neither
  bool dots = false;
};

/// A card with all curves on one pair of axes. The cursor stops at the steps of the first named
/// curve.
struct CurveCard {
  std::string id, title, caption, label;  ///< `label`: for screen readers
  std::vector<DrawnCurve> curves;         ///< empty ones are left out
};
std::string curve_section(CurveCard card);

}  // namespace strata
