/// The quality of a model that ends a run, such as "val_loss<=1.5" or "accuracy>=0.9".
///
/// Errors  UserError `[clock.target]`: another form, or an unknown name.
#pragma once

#include <string>
#include <vector>

#include "strata/report/metrics.h"

namespace strata {

struct QualityTarget {
  std::string metric;
  bool at_most = true;  ///< else at least
  double value = 0;

  /// `metrics`: of the task's validations; the name is val_loss or one of them. `where`: the place
  /// of the text, for errors.
  static QualityTarget parse(const std::string& text, const std::vector<std::string>& metrics,
                             const std::string& where = "the recipe");

  /// This metric in a validation; NaN, which reaches nothing: it was not defined there, as an AUC
  /// without clicks.
  double value_in(double loss, const NamedMetrics& metrics) const;
  bool is_reached_by(double found) const { return at_most ? found <= value : found >= value; }
  std::string text() const;  ///< "val_loss<=1.5"
};

}  // namespace strata
