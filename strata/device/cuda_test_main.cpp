// main() of tests that need a GPU: ctest reads exit code 77 as "skipped", with the reason in the
// log. The process is prepared like a training process: without this, libtorch refuses products
// under deterministic algorithms.
#include <gtest/gtest.h>

#include <iostream>

#include "strata/device/determinism.h"
#include "strata/device/device.h"

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  if (const std::string why = strata::cuda_backend().why_none(); !why.empty()) {
    std::cout << "skipped: " << why << "\n";
    return 77;
  }
  strata::prepare_device(strata::DeviceKind::kCuda, /*deterministic=*/true);
  return RUN_ALL_TESTS();
}
