/// Describes the rows of a categorical feature: their width, first values and optimizer, how they are
/// stored, who is admitted and who has to go.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

/// First values of a row, drawn by counter and keyed by (seed, feature's name, id, element): the same
/// on any shard, and again after an eviction.
struct RowInit {
  enum class Kind : std::uint8_t { kUniform, kNormal, kZeros } kind = Kind::kUniform;
  double scale = 0.01;  ///< kUniform: of (-scale, scale); kNormal: standard deviation
};

enum class RowOptimizerKind : std::uint8_t {
  kSgd,
  kMomentum,
  kAdagrad,
  kRowWiseAdagrad,  ///< one accumulator a row: the mean of its squares
  kAdam,
  kAdamW,
  kFtrl
};

/// What a gradient does to a row. The optimizer's state is stored with the row. A kind ignores the fields
/// that it has no use for.
struct RowOptimizerOptions {
  RowOptimizerKind kind = RowOptimizerKind::kAdagrad;
  double learning_rate = 0.05;
  double epsilon = 1e-10;
  double initial_accumulator = 0;  ///< Adagrad's and FTRL's first squares
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

/// From which update on an id has a row. Before, reading it gives zeros and its gradients are dropped.
struct RowAdmission {
  enum class Filter : std::uint8_t { kNone, kExact, kBloom } filter = Filter::kNone;
  std::int64_t threshold = 1;  ///< steps with a gradient of this id, this one included
};

/// Which row goes when bytes are short, or when it was not updated for long.
struct RowEviction {
  enum class Policy : std::uint8_t { kClock, kLeastFrequent } policy = Policy::kClock;
  std::int64_t steps_to_live = 0;  ///< without an update; 0: for ever
};

// As recipes call them.
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
  RowPrecision precision = RowPrecision::kFp32;  ///< of rows; optimizer states are fp32
  RowAdmission admission = {};
  RowEviction eviction = {};
};

/// Of features and seed: what servers and trainers have to agree on.
std::uint64_t fingerprint_of(const std::vector<FeatureSpec>& features, std::uint64_t seed);

}  // namespace strata
