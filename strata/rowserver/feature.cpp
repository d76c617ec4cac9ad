#include "strata/rowserver/feature.h"

#include "strata/base/checksum.h"
#include "strata/rowserver/feature_changes.h"

namespace strata {

const char* name_of(RowInit::Kind kind) {
  switch (kind) {
    case RowInit::Kind::kUniform:
      return "uniform";
    case RowInit::Kind::kNormal:
      return "normal";
    case RowInit::Kind::kZeros:
      return "zeros";
  }
  return "?";
}

const char* name_of(RowOptimizerKind kind) {
  switch (kind) {
    case RowOptimizerKind::kSgd:
      return "sgd";
    case RowOptimizerKind::kMomentum:
      return "momentum";
    case RowOptimizerKind::kAdagrad:
      return "adagrad";
    case RowOptimizerKind::kRowWiseAdagrad:
      return "rowwise_adagrad";
    case RowOptimizerKind::kAdam:
      return "adam";
    case RowOptimizerKind::kAdamW:
      return "adamw";
    case RowOptimizerKind::kFtrl:
      return "ftrl";
  }
  return "?";
}

const char* name_of(RowPrecision precision) {
  switch (precision) {
    case RowPrecision::kFp32:
      return "fp32";
    case RowPrecision::kFp16:
      return "fp16";
    case RowPrecision::kInt8:
      return "int8";
  }
  return "?";
}

const char* name_of(RowAdmission::Filter filter) {
  switch (filter) {
    case RowAdmission::Filter::kNone:
      return "none";
    case RowAdmission::Filter::kExact:
      return "exact";
    case RowAdmission::Filter::kBloom:
      return "bloom";
  }
  return "?";
}

const char* name_of(RowEviction::Policy policy) {
  switch (policy) {
    case RowEviction::Policy::kClock:
      return "clock";
    case RowEviction::Policy::kLeastFrequent:
      return "lfu";
  }
  return "?";
}

std::uint64_t fingerprint_of(const std::vector<FeatureSpec>& features, std::uint64_t seed) {
  return checksum(encode_features(features, seed));
}

}  // namespace strata
