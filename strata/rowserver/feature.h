/// Describes the rows of a categorical feature: width, initial values, optimizer, storage,
/// admission and eviction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

/// Initial values of a row, drawn by counter and keyed by (seed, name of the feature, id, element):
/// equal on every shard, and equal again after an eviction.
struct RowInit {
  enum class Kind : std::uint8_t { kUniform, kNormal, kZeros } kind = Kind::kUniform;
  double scale = 0.01;  ///< kUniform: values in (-scale, scale); kNormal: standard deviation
};

enum class RowOptimizerKind : std::uint8_t {
  kSgd,
  kMomentum,
  kAdagrad,
  kRowWiseAdagrad,  ///< one accumulator per row: the mean of the squares of its gradients
  kAdam,
  kAdamW,
  kFtrl
};

/// How a gradient changes a row. The optimizer's state is stored with the row. Each kind ignores
/// the fields that it does not use.
struct RowOptimizerOptions {
  RowOptimizerKind kind = RowOptimizerKind::kAdagrad;
  double learning_rate = 0.05;
  double epsilon = 1e-10;
  double initial_accumulator = 0;  ///< initial sums of squares of Adagrad and FTRL
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double weight_decay = 0;
  double l1 = 0;  ///< FTRL
  double l2 = 0;
};

enum class RowPrecision : std::uint8_t {
  kFp32,
  kFp16,
  kInt8
};  ///< 16 and 8 bit round stochastically

/// When an id gets a row. Until then, reading the id returns zeros and its gradients are dropped.
struct RowAdmission {
  enum class Filter : std::uint8_t { kNone, kExact, kBloom } filter = Filter::kNone;
  /// number of steps with a gradient of this id, including the current one
  std::int64_t threshold = 1;
};

/// Which row is evicted when memory runs out, or when it was not updated for a long time.
struct RowEviction {
  enum class Policy : std::uint8_t { kClock, kLeastFrequent } policy = Policy::kClock;
  std::int64_t steps_to_live = 0;  ///< steps without an update; 0: unlimited
};

// Names as in recipes.
const char* name_of(RowInit::Kind kind);
const char* name_of(RowOptimizerKind kind);
const char* name_of(RowPrecision precision);
const char* name_of(RowAdmission::Filter filter);
const char* name_of(RowEviction::Policy policy);

struct FeatureSpec {
  std::string name;
  int width = 16;  ///< elements of a row
  RowInit init = {};
  RowOptimizerOptions optimizer = {};
  RowPrecision precision = RowPrecision::kFp32;  ///< of the values; optimizer states are fp32
  RowAdmission admission = {};
  RowEviction eviction = {};
};

/// Fingerprint of features and seed, on which servers and trainers must agree.
std::uint64_t fingerprint_of(const std::vector<FeatureSpec>& features, std::uint64_t seed);

}  // namespace strata
