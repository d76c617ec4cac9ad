#include "strata/rowserver/feature_changes.h"

#include <gtest/gtest.h>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

const std::vector<FeatureSpec> kFeatures = {{.name = "user", .width = 8}, {.name = "words"}};

TEST(FeatureChanges, NameEveryFieldWithBothValues) {
  const auto changes = [](auto change, std::uint64_t seed = 1) {
    SeededFeatures there{kFeatures, seed};
    change(there.features);
    return feature_changes({kFeatures, 1}, there);
  };
  const auto none = [](auto&) {};
  EXPECT_EQ(changes(none).here, "");
  EXPECT_EQ(changes(none, 2).there, "train.seed 2");
  const FeatureChanges rate =
      changes([](auto& features) { features[0].optimizer.learning_rate = 0.2; });
  EXPECT_EQ(rate.here, "user: optimizer.learning_rate 0.05");
  EXPECT_EQ(rate.there, "user: optimizer.learning_rate 0.2");
  EXPECT_EQ(changes([](auto& features) { features[1].precision = RowPrecision::kInt8; }).there,
            "words: precision int8");
  EXPECT_EQ(changes([](auto& features) { features.pop_back(); }).there, "the tables user");
  const FeatureChanges many = changes(
      [](auto& features) {
        features[0].width = 16;
        features[0].init.scale = 1;
        for (FeatureSpec& spec : features) spec.optimizer.kind = RowOptimizerKind::kSgd;
        features[1].eviction.steps_to_live = 5;
      },
      2);
  EXPECT_EQ(
      many.there,
      "train.seed 2, user: width 16, user: init.scale 1, user: optimizer.kind sgd, and 2 more");
}

// A field in the fingerprint but not among the names would cause a refusal without a reason.
TEST(FeatureChanges, CoverAllBytesOfFingerprint) {
  EXPECT_EQ(checksum(encode_features(kFeatures, 7)), fingerprint_of(kFeatures, 7));
  std::vector<FeatureSpec> others = kFeatures;
  others[1].optimizer.l2 = 0.5;
  others.push_back(others[1]);
  others[2].name = "third", others[2].width = 3;
  const std::vector<std::byte> bytes = pack_features(others, 7);
  const SeededFeatures unpacked = unpack_features(bytes);
  EXPECT_EQ(fingerprint_of(unpacked.features, unpacked.seed), fingerprint_of(others, 7));
  EXPECT_EQ(feature_changes({others, 7}, unpacked).here, "");
  EXPECT_EQ(feature_changes({kFeatures, 7}, unpacked).there, "the tables user, words, third");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    try {
      EXPECT_LT(unpack_features(std::span(bytes).first(size)).features.size(), 3u) << size;
    } catch (const SystemError&) {
    }
  }
}

// The first frame of a session is short.
TEST(FeatureChanges, FitGreetingForThousandTables) {
  std::vector<FeatureSpec> features(1000);
  for (std::size_t i = 0; i < features.size(); ++i)
    features[i].name = "feature" + std::to_string(i);
  EXPECT_LT(pack_features(features, 1).size(), std::size_t{16} << 10);
}

}  // namespace
}  // namespace strata
