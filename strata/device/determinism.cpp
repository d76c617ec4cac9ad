// Uninitialised memory stays so: deterministic algorithms would write NaNs into every new tensor,
// which costs time, and Strata's code writes everything that it reads.
#include "strata/device/determinism.h"

#include <ATen/Context.h>
#include <c10/core/AllocatorConfig.h>

#include <cstdlib>
#include <string_view>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr const char* kWorkspace = "CUBLAS_WORKSPACE_CONFIG";
constexpr const char* kFixedWorkspace = ":4096:8";  // kFixedWorkspaceBytes: 8 buffers of 4 MiB

bool is_fixed(std::string_view workspace) {
  return workspace == kFixedWorkspace || workspace == ":16:8";
}

void fix_workspace() {
  const char* value = std::getenv(kWorkspace);
  if (!value) {
    ::setenv(kWorkspace, kFixedWorkspace, 0);
  } else if (!is_fixed(value)) {
    throw UserError({.operation = "device.determinism",
                     .where = kWorkspace,
                     .what = "with this workspace cuBLAS doesn't compute the same bits again",
                     .expected = std::string(kFixedWorkspace) + " or :16:8",
                     .got = value,
                     .fix = "unset CUBLAS_WORKSPACE_CONFIG, or set train.deterministic=false"});
  }
}

// Expandable segments leave no holes between layers of different sizes.
void grow_segments() {
  if (!std::getenv("PYTORCH_ALLOC_CONF") && !std::getenv("PYTORCH_CUDA_ALLOC_CONF"))
    c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
}

struct Warning {
  const char* name;
  const char* value;  // null: any value except empty and 0
  const char* what;
};

constexpr Warning kWarnings[] = {
    {"PYTORCH_NO_CUDA_MEMORY_CACHING", nullptr,
     "the driver allocates every tensor: slow, and memory budgets are not enforced"},
    {"CUDA_LAUNCH_BLOCKING", nullptr, "every kernel is waited for: slow, and no step is recorded"},
    {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", nullptr, "fp32 products are computed in TF32"},
    {"NVIDIA_TF32_OVERRIDE", "1", "fp32 products are computed in TF32"},
    {"STRATA_CUDA_PRODUCTS", "cublaslt", "products have other bits than ATen's, the default"},
};

}  // namespace

void prepare_device(DeviceKind kind, bool deterministic) {
  if (kind == DeviceKind::kCpu) return;
  grow_segments();
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);
  if (!deterministic) return;
  fix_workspace();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setAllowFP16ReductionCuBLAS(false);
  context.setAllowBF16ReductionCuBLAS(false);
  context.setSDPUseCuDNN(false);
}

std::vector<std::string> environment_warnings(const Environment& variable) {
  std::vector<std::string> warnings;
  const auto find = [&](const char* name, const char* value, const std::string& what) {
    warnings.push_back(std::string(name) + "=" + value + ": " + what);
  };
  const char* workspace = variable(kWorkspace);
  if (workspace && !is_fixed(workspace))
    find(kWorkspace, workspace, "refused unless train.deterministic=false");
  for (const Warning& known : kWarnings) {
    const char* value = variable(known.name);
    if (!value) continue;
    const std::string_view text = value;
    if (known.value ? text == known.value : !text.empty() && text != "0")
      find(known.name, value, known.what);
  }
  return warnings;
}

}  // namespace strata
