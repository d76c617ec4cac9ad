#include "strata/rowserver/rows/row_layout.h"

#include "strata/base/errors.h"

namespace strata {
namespace {

int states_of(RowOptimizerKind kind, int width) {
  switch (kind) {
    case RowOptimizerKind::kSgd:
      return 0;
    case RowOptimizerKind::kRowWiseAdagrad:
      return 1;
    case RowOptimizerKind::kMomentum:
    case RowOptimizerKind::kAdagrad:
      return width;
    case RowOptimizerKind::kAdam:
    case RowOptimizerKind::kAdamW:
    case RowOptimizerKind::kFtrl:
      return 2 * width;
  }
  return 0;
}

int bytes_of_values(RowPrecision precision, int width) {
  switch (precision) {
    case RowPrecision::kFp32:
      return 4 * width;
    case RowPrecision::kFp16:
      return (2 * width + 3) / 4 * 4;
    case RowPrecision::kInt8:
      return 4 + (width + 3) / 4 * 4;
  }
  return 0;
}

void require(bool holds, const FeatureSpec& spec, const char* what, const std::string& expected,
             const std::string& got) {
  if (holds) return;
  throw UserError({.operation = "embed.feature",
                   .where = "feature '" + spec.name + "'",
                   .what = what,
                   .expected = expected,
                   .got = got,
                   .fix = "give the feature " + expected});
}

}  // namespace

RowLayout::RowLayout(const FeatureSpec& spec)
    : width(spec.width),
      precision(spec.precision),
      value_bytes(bytes_of_values(spec.precision, spec.width)),
      num_states(states_of(spec.optimizer.kind, spec.width)) {}

std::string layout_text(const FeatureSpec& spec) {
  return std::string(name_of(spec.precision)) + " [" + std::to_string(spec.width) + "], " +
         name_of(spec.optimizer.kind);
}

void check_feature(const FeatureSpec& spec) {
  require(!spec.name.empty(), spec, "a feature needs a name", "a name", "none");
  require(spec.width >= 1 && spec.width <= kMaxRowWidth, spec, "no row is that wide",
          "a width of 1 to " + std::to_string(kMaxRowWidth), std::to_string(spec.width));
  const RowAdmission& admission = spec.admission;
  const int highest = admission.filter == RowAdmission::Filter::kBloom ? 255 : 1 << 24;
  require(admission.threshold >= 1 && admission.threshold <= highest, spec,
          "no filter counts up to this threshold", "1 to " + std::to_string(highest),
          std::to_string(admission.threshold));
  require(spec.eviction.steps_to_live >= 0, spec, "rows can't live less than no step",
          "steps_to_live of 0 (for ever) or more", std::to_string(spec.eviction.steps_to_live));
}

}  // namespace strata
