// main() of tests that need a GPU: ctest takes 77 for "skipped", with the reason in the log. The process is set up as
// that of a training: libtorch refuses products under deterministic algorithms without it.
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
