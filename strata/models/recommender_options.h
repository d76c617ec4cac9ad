/// Sizes the dense net of a recommender: DLRM, DCN-v2, or a deep and wide one.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/base/options.h"

namespace strata {

enum class RecommenderKind : std::uint8_t { kDlrm, kDcn, kDeepWide };

/// How features interact. dlrm: dot products of all pairs of vectors, or concatenation. dcn:
/// crosses before the deep layers, or in parallel with them.
enum class Interaction : std::uint8_t { kDefault, kDot, kCat, kStacked, kParallel };

/// The hidden layers whose products are followed by a BatchNorm.
enum class BatchNormPlace : std::uint8_t { kNone, kBottom, kAll };

enum class HiddenActivation : std::uint8_t { kNone, kRelu };

// Names as in recipes.
const char* name_of(RecommenderKind kind);
const char* name_of(Interaction interaction);
const char* name_of(BatchNormPlace place);
const char* name_of(HiddenActivation activation);

struct RecommenderOptions {
  RecommenderKind kind = RecommenderKind::kDlrm;
  /// Widths. dlrm: of the layers for numbers, ending with the features' width; deep_wide: that
  /// numbers and rows are mapped to, one layer each; dcn: none.
  std::vector<std::int64_t> bottom;
  std::vector<std::int64_t> top = {64, 32};  ///< widths of the hidden layers before the score
  Interaction interaction = Interaction::kDefault;
  std::int64_t cross_layers = 3;  ///< dcn: number of crosses
  std::int64_t rank = 0;          ///< dcn: rank of the crosses' matrices; 0: full
  double dropout = 0;             ///< after each hidden layer
  BatchNormPlace batch_norm = BatchNormPlace::kNone;
  HiddenActivation activation = HiddenActivation::kRelu;
  bool wide = true;  ///< deep_wide: a linear map of all inputs is added to the score
  friend bool operator==(const RecommenderOptions&, const RecommenderOptions&) = default;
};

void describe(OptionSet& set, const std::string& prefix, RecommenderOptions& options);

/// The inputs of the net, per sample.
struct RecommenderInputs {
  std::int64_t numeric = 0;
  /// Per categorical feature, in the order of the pooled rows: the width of a row, times the length
  /// of a sequence that is not pooled.
  std::vector<std::int64_t> row_widths;
  std::int64_t rows() const;  ///< their sum
  friend bool operator==(const RecommenderInputs&, const RecommenderInputs&) = default;
};

/// The options with defaults replaced by what they stand for with these inputs.
/// Errors  UserError: fields that contradict the kind, the inputs or each other.
RecommenderOptions completed(RecommenderOptions options, const RecommenderInputs& inputs);

}  // namespace strata
