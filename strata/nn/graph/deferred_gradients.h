/// Lets a backward compute only the gradients of its inputs and leave those of weights for later.
///
/// An operator's backward passes its work on weights to add_weight_gradients(). In a whole backward
/// the work runs at once. Under a DeferScope it is kept, and run() does it in the same order, so
/// that the sums have the same bits.
///
/// Source   Zero Bubble Pipeline Parallelism (Qi et al., ICLR 2024): a backward in two halves.
/// Threads  a scope belongs to the thread of its rank; autograd's threads see it, too.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace strata {

class DeferredGradients final : public c10::DebugInfoBase {
 public:
  void add(std::function<void()> work) { work_.push_back(std::move(work)); }
  /// Does the work in the order in which it was added, and frees each part's tensors after it.
  void run();

 private:
  std::vector<std::function<void()>> work_;
};

/// While it lives, add_weight_gradients() keeps the work in `deferred`.
class DeferScope {
 public:
  explicit DeferScope(std::shared_ptr<DeferredGradients> deferred);

 private:
  c10::DebugInfoGuard guard_;
};

/// Adds gradients to the leaves of weights: now, or when the weights' half of the backward runs.
/// `work` holds detached tensors: a saved one would keep the graph that made it.
void add_weight_gradients(std::function<void()> work);

}  // namespace strata
