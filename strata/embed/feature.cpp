#include "strata/embed/feature.h"

#include "strata/base/checksum.h"
#include "strata/embed/codec/byte_codec.h"

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
  ByteWriter to;
  to.fixed64(seed);
  for (const FeatureSpec& spec : features) {
    to.text(spec.name);
    to.varint(static_cast<std::uint64_t>(spec.width));
    to.varint(static_cast<std::uint64_t>(spec.init.kind));
    to.real(spec.init.scale);
    const RowOptimizerOptions& of = spec.optimizer;
    to.varint(static_cast<std::uint64_t>(of.kind));
    for (const double value : {of.learning_rate, of.epsilon, of.initial_accumulator, of.momentum,
                               of.beta1, of.beta2, of.weight_decay, of.l1, of.l2})
      to.real(value);
    to.varint(static_cast<std::uint64_t>(spec.precision));
    to.varint(static_cast<std::uint64_t>(spec.admission.filter));
    to.varint(static_cast<std::uint64_t>(spec.admission.threshold));
    to.varint(static_cast<std::uint64_t>(spec.eviction.policy));
    to.varint(static_cast<std::uint64_t>(spec.eviction.steps_to_live));
  }
  return checksum(to.out());
}

}  // namespace strata
