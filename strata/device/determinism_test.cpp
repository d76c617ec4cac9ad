#include "strata/device/determinism.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "strata/base/errors.h"

namespace strata {
namespace {

// Unsets the variables of the process after the test.
class Determinism : public ::testing::Test {
 protected:
  Determinism() { ::unsetenv("CUBLAS_WORKSPACE_CONFIG"); }
  ~Determinism() override {
    ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
    at::globalContext().setDeterministicAlgorithms(false, false);
    at::globalContext().setSDPUseCuDNN(true);
  }
};

std::string workspace() {
  const char* value = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  return value ? value : "";
}

TEST_F(Determinism, SetsNothingForACpu) {
  prepare_device(DeviceKind::kCpu, true);
  EXPECT_EQ(workspace(), "");
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

TEST_F(Determinism, IsSetForCuda) {
  prepare_device(DeviceKind::kCuda, true);
  EXPECT_EQ(workspace(), ":4096:8");
  const at::Context& context = at::globalContext();
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
  EXPECT_FALSE(context.deterministicFillUninitializedMemory());
  EXPECT_FALSE(context.userEnabledCuDNNSDP());
}

TEST_F(Determinism, SetsNothingWithoutRequest) {
  prepare_device(DeviceKind::kCuda, false);
  EXPECT_EQ(workspace(), "");
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

TEST_F(Determinism, AcceptsFixedUserWorkspaceAndRefusesOthers) {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  prepare_device(DeviceKind::kCuda, true);
  EXPECT_EQ(workspace(), ":16:8");
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0", 1);
  EXPECT_THROW(prepare_device(DeviceKind::kCuda, true), UserError);
  prepare_device(DeviceKind::kCuda, false);
  EXPECT_EQ(workspace(), ":0:0");
}

TEST(EnvironmentWarnings, NameWhatChangesBitsBytesOrSeconds) {
  using Variables = std::map<std::string, std::string>;
  const auto find = [](const Variables& variables) {
    return environment_warnings([&](const char* name) -> const char* {
      const auto at = variables.find(name);
      return at == variables.end() ? nullptr : at->second.c_str();
    });
  };
  EXPECT_TRUE(find({}).empty());
  EXPECT_TRUE(find({{"CUDA_LAUNCH_BLOCKING", "0"},
                    {"PYTORCH_NO_CUDA_MEMORY_CACHING", ""},
                    {"STRATA_CUDA_PRODUCTS", "aten"},
                    {"NVIDIA_TF32_OVERRIDE", "0"},
                    {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"}})
                  .empty());
  const std::vector<std::string> found = find({{"CUBLAS_WORKSPACE_CONFIG", ":0:0"},
                                               {"CUDA_LAUNCH_BLOCKING", "1"},
                                               {"NVIDIA_TF32_OVERRIDE", "1"},
                                               {"PYTORCH_NO_CUDA_MEMORY_CACHING", "1"},
                                               {"STRATA_CUDA_PRODUCTS", "cublaslt"}});
  ASSERT_EQ(found.size(), 5);
  EXPECT_EQ(found[0], "CUBLAS_WORKSPACE_CONFIG=:0:0: refused unless train.deterministic=false");
}

}  // namespace
}  // namespace strata
