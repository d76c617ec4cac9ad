// Autograd passes the debug information of a thread that starts a backward to the threads that run
// it: those of a GPU are its own. Nothing else in a process of Strata uses this kind.
#include "strata/nn/graph/deferred_gradients.h"

#include <ATen/core/grad_mode.h>

namespace strata {

namespace {
constexpr auto kKind = [] { return c10::DebugInfoKind::TEST_INFO_2; };
}  // namespace

void DeferredGradients::run() {
  const at::NoGradGuard no_grad;
  for (std::function<void()>& work : work_) std::exchange(work, nullptr)();
  work_.clear();
}

DeferScope::DeferScope(std::shared_ptr<DeferredGradients> deferred)
    : guard_(kKind(), std::move(deferred)) {}

void add_weight_gradients(std::function<void()> work) {
  auto* deferred = static_cast<DeferredGradients*>(c10::ThreadLocalDebugInfo::get(kKind()));
  if (deferred) return deferred->add(std::move(work));
  work();
}

}  // namespace strata
