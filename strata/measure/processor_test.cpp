#include "strata/measure/processor.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <fstream>

#include "strata/base/scratch_folder.h"

namespace strata {
namespace {

PrecisionRates rates(double fp32, double bf16, double fp16) {
  return {
      {at::kFloat, fp32, 2 * fp32}, {at::kBFloat16, bf16, 2 * bf16}, {at::kHalf, fp16, 2 * fp16}};
}

TEST(PrecisionRates, NameFastestPrecision) {
  EXPECT_EQ(fastest_text(rates(90e9, 216e9, 200e9)), "bf16: 2.4 times the products of fp32");
  EXPECT_EQ(fastest_text(rates(90e9, 9e9, 1e9)), "fp32: 16 bit saves memory here, not time");
  EXPECT_EQ(fastest_text({}), "");
  EXPECT_EQ(fastest_precision(rates(90e9, 100e9, 200e9)), at::kHalf);
}

TEST(PrecisionRates, WarnOfSlowPrecisionOnly) {
  const std::string slow = slow_precision_text(at::kBFloat16, rates(90e9, 9e9, 1e9));
  EXPECT_EQ(slow,
            "bf16 is slow on this processor: 18.0 GFLOP/s, fp32 180.0; set train.precision=fp32 "
            "unless it is for the memory");
  EXPECT_NE(slow_precision_text(at::kHalf, rates(90e9, 216e9, 1e9)).find("precision=bf16"),
            std::string::npos);
  EXPECT_EQ(slow_precision_text(at::kBFloat16, rates(90e9, 216e9, 1e9)), "");
  EXPECT_EQ(slow_precision_text(at::kFloat, rates(90e9, 216e9, 1e9)), "");
  EXPECT_EQ(slow_precision_text(at::kBFloat16, {}), "");
}

TEST(PrecisionRates, AreSavedForMeasuredProcessor) {
  const ScratchFolder folder;
  const std::string file = folder.path("strata/doctor.json");
  const ProcessorIdentity here{.model = "a processor", .cores = 2, .instruction_set = "AVX2"};
  ProcessorIdentity there = here;
  there.instruction_set = "AVX512";
  EXPECT_FALSE(load_rates(file, here));
  save_rates(file, here, rates(90e9, 9e9, 1e9));
  save_rates(file, there, rates(90e9, 216e9, 200e9));
  ASSERT_TRUE(load_rates(file, here));
  EXPECT_EQ((*load_rates(file, here))[1].flops_per_second, 18e9);
  EXPECT_EQ((*load_rates(file, there))[1].flops_per_second_one_thread, 216e9);
  std::ofstream(file) << "{\"" << here.text() << "\": {\"fp32\": \"fast\"}}";
  EXPECT_FALSE(load_rates(file, here));
}

TEST(PrecisionRates, CoverEveryPrecisionAndKeepThreadCount) {
  at::set_num_threads(1);
  const PrecisionRates measured = measure_precision_rates(2);
  ASSERT_EQ(measured.size(), 3u);
  for (const PrecisionRate& rate : measured) {
    EXPECT_GT(rate.flops_per_second_one_thread, 0) << precision_name(rate.precision);
    EXPECT_GT(rate.flops_per_second, 0) << precision_name(rate.precision);
  }
  EXPECT_EQ(at::get_num_threads(), 1);
}

TEST(ProcessorIdentity, TextListsWhatSecondsDependOn) {
  const ProcessorIdentity here = ProcessorIdentity::of_this_machine();
  EXPECT_GT(here.cores, 0);
  EXPECT_FALSE(here.libtorch.empty());
  EXPECT_FALSE(here.instruction_set.empty());
  EXPECT_NE(here.text().find(here.libtorch), std::string::npos);
}

}  // namespace
}  // namespace strata
