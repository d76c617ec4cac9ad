#include "strata/plan/ledger/zero_bytes.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/base/units.h"

namespace strata {
namespace {

std::string gigabytes(double parameters, const char* precision, int zero, int ranks) {
  return format_double(
      zero_bytes(parameters, precision_convention(precision), zero, ranks).total() / 1e9, 1);
}

double bytes_a_parameter(const char* precision, int zero, int ranks) {
  return zero_bytes(1, precision_convention(precision), zero, ranks).total();
}

// ZeRO (arXiv 1910.02054), figure 1: 7.5 billion parameters on 64 ranks.
TEST(ZeroBytes, MatchPublishedExample) {
  EXPECT_EQ(gigabytes(7.5e9, "zero-paper", 0, 64), "120.0");
  EXPECT_EQ(gigabytes(7.5e9, "zero-paper", 1, 64), "31.4");
  EXPECT_EQ(gigabytes(7.5e9, "zero-paper", 2, 64), "16.6");
  EXPECT_EQ(gigabytes(7.5e9, "zero-paper", 3, 64), "1.9");
}

// The same paper, table 1: gigabytes of 7.5 billion parameters on 4 ranks, and of a trillion on
// 1024.
TEST(ZeroBytes, MatchPublishedTable) {
  const auto rank_gb = [](double parameters, int zero, int ranks) {
    return zero_bytes(parameters, precision_convention("zero-paper"), zero, ranks).total() / 1e9;
  };
  EXPECT_NEAR(rank_gb(7.5e9, 1, 4), 52.5, 0.051);
  EXPECT_NEAR(rank_gb(7.5e9, 2, 4), 41.3, 0.051);
  EXPECT_NEAR(rank_gb(7.5e9, 3, 4), 30.0, 0.051);
  EXPECT_NEAR(rank_gb(1e12, 3, 1024), 15.6, 0.051);
}

// The same paper, section 3.1: GPT-2 of 1.5 billion parameters has at least 24 GB of states.
TEST(ZeroBytes, Gpt2HasTwentyFourGigabytes) {
  EXPECT_EQ(gigabytes(1.5e9, "zero-paper", 0, 1), "24.0");
}

// Megatron-LM, docs "dist_optimizer": bytes per parameter without and with the distributed
// optimizer, which is stage 1, over d ranks.
TEST(ZeroBytes, MatchMegatronDistributedOptimizer) {
  for (const int d : {1, 2, 8, 64}) {
    EXPECT_DOUBLE_EQ(bytes_a_parameter("mixed", 0, d), 18);
    EXPECT_DOUBLE_EQ(bytes_a_parameter("mixed", 1, d), 6 + 12.0 / d);
    EXPECT_DOUBLE_EQ(bytes_a_parameter("megatron-fp16", 0, d), 20);
    EXPECT_DOUBLE_EQ(bytes_a_parameter("megatron-fp16", 1, d), 4 + 16.0 / d);
    EXPECT_DOUBLE_EQ(bytes_a_parameter("fp32", 0, d), 16);
    EXPECT_DOUBLE_EQ(bytes_a_parameter("fp32", 1, d), 8 + 8.0 / d);
  }
}

// DeepSpeed 3D (Microsoft, September 2020): a trillion parameters on 800 ranks without ZeRO have
// 20.2 GiB of states each; the count of that model is 1.0847e12.
TEST(ZeroBytes, MatchTrillionParametersOfDeepSpeed3D) {
  const double rank = zero_bytes(1.0847e12 / 800, precision_convention("zero-paper"), 0, 1).total();
  EXPECT_EQ(format_double(rank / (1 << 30), 1), "20.2");
}

// ZeRO, section 7: twice the parameters for data parallelism and stages 1 and 2, three times, that
// is 1.5 times as much, for stage 3.
TEST(ZeroBytes, VolumeIsTwiceParametersAndThriceForStageThree) {
  for (const int zero : {0, 1, 2}) EXPECT_NEAR(zero_volume(zero, 1 << 20), 2, 1e-5);
  EXPECT_NEAR(zero_volume(3, 1 << 20), 3, 1e-5);
  EXPECT_DOUBLE_EQ(zero_volume(3, 64) / zero_volume(0, 64), 1.5);
  EXPECT_DOUBLE_EQ(zero_volume(0, 2), 1);  // each of two ranks sends half twice
  EXPECT_DOUBLE_EQ(zero_volume(3, 1), 0);
}

TEST(ZeroBytes, TableShowsPublishedExample) {
  const std::string table = zero_table(7.5e9, precision_convention("zero-paper"), 64);
  EXPECT_EQ(
      table.substr(0, table.find("\n\nGB are")),
      R"(7.5 G parameters · 64 ranks · zero-paper (16 bytes a parameter: 16-bit weights and gradients; master weights and Adam in 32)

GB on a rank  weights  gradients  states    all  sent a step
      ZeRO 0     15.0       15.0    90.0  120.0         29.5
      ZeRO 1     15.0       15.0     1.4   31.4         29.5
      ZeRO 2     15.0      0.234     1.4   16.6         29.5
      ZeRO 3    0.234      0.234     1.4    1.9         44.3)");
}

TEST(ZeroBytes, ParsesCountsOfParameters) {
  EXPECT_DOUBLE_EQ(parse_count("7.5e9"), 7.5e9);
  EXPECT_DOUBLE_EQ(parse_count("7.5B"), 7.5e9);
  EXPECT_DOUBLE_EQ(parse_count("350M"), 350e6);
  EXPECT_DOUBLE_EQ(parse_count("12"), 12);
  for (const char* text : {"", "B", "-1", "0", "7.5GB", "many", "nan", "inf"}) {
    EXPECT_THROW(parse_count(text), UserError) << text;
  }
}

TEST(ZeroBytes, RejectsUnknownConventionsAndStages) {
  EXPECT_THROW(precision_convention("fp8"), UserError);
  const ParameterBytes& fp32 = precision_convention("fp32");
  EXPECT_THROW(zero_bytes(1e6, fp32, 4, 2), UserError);
  EXPECT_THROW(zero_bytes(1e6, fp32, 1, 0), UserError);
  EXPECT_THROW(zero_bytes(0, fp32, 1, 2), UserError);
}

TEST(ParameterBytes, ReplaceLayerBytes) {
  CostTable costs{.weight_element_bytes = 2};
  costs.layers = {{.weight_bytes = 200,
                   .gradient_bytes = 480,  // 20 of them for a tied use
                   .state_bytes = 1000,
                   .replica_bytes = 40,
                   .saved_bytes = 7}};
  const CostTable peer = with_parameter_bytes(costs, precision_convention("megatron-fp16"));
  EXPECT_EQ(peer.layers[0].weight_bytes, 200);
  EXPECT_EQ(peer.layers[0].gradient_bytes, 240);
  EXPECT_EQ(peer.layers[0].state_bytes, 1600);
  EXPECT_EQ(peer.layers[0].saved_bytes, 7);
  const CostTable fp32 = with_parameter_bytes(costs, precision_convention("fp32"));
  EXPECT_EQ(fp32.layers[0].weight_bytes, 400);
  EXPECT_EQ(fp32.layers[0].replica_bytes, 80);
  EXPECT_EQ(fp32.layers[0].gradient_bytes, 480);
  EXPECT_EQ(fp32.weight_element_bytes, 4);
}

}  // namespace
}  // namespace strata
