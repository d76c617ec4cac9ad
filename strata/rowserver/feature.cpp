#include "strata/rowserver/feature.h"

#include "strata/base/checksum.h"
#include "strata/base/enum_names.h"
#include "strata/rowserver/feature_changes.h"

namespace strata {

const char* name_of(RowInit::Kind kind) {
  using enum RowInit::Kind;
  static constexpr EnumNames<RowInit::Kind> kNames{
      {kUniform, "uniform"}, {kNormal, "normal"}, {kZeros, "zeros"}};
  return kNames[kind];
}

const char* name_of(RowOptimizerKind kind) {
  using enum RowOptimizerKind;
  static constexpr EnumNames<RowOptimizerKind> kNames{
      {kSgd, "sgd"},         {kMomentum, "momentum"},
      {kAdagrad, "adagrad"}, {kRowWiseAdagrad, "rowwise_adagrad"},
      {kAdam, "adam"},       {kAdamW, "adamw"},
      {kFtrl, "ftrl"}};
  return kNames[kind];
}

const char* name_of(RowPrecision precision) {
  using enum RowPrecision;
  static constexpr EnumNames<RowPrecision> kNames{
      {kFp32, "fp32"}, {kFp16, "fp16"}, {kInt8, "int8"}};
  return kNames[precision];
}

const char* name_of(RowAdmission::Filter filter) {
  using enum RowAdmission::Filter;
  static constexpr EnumNames<RowAdmission::Filter> kNames{
      {kNone, "none"}, {kExact, "exact"}, {kBloom, "bloom"}};
  return kNames[filter];
}

const char* name_of(RowEviction::Policy policy) {
  using enum RowEviction::Policy;
  static constexpr EnumNames<RowEviction::Policy> kNames{{kClock, "clock"},
                                                         {kLeastFrequent, "lfu"}};
  return kNames[policy];
}

std::uint64_t fingerprint_of(const std::vector<FeatureSpec>& features, std::uint64_t seed) {
  return checksum(encode_features(features, seed));
}

}  // namespace strata
