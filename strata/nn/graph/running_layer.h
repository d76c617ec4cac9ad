/// Says which layer runs on a thread, for operators that libtorch calls without a context.
#pragma once

#include "strata/nn/graph/layer.h"

namespace strata {

/// The layer runs as long as this lives.
class RunningLayer {
 public:
  explicit RunningLayer(const ForwardContext& context);
  ~RunningLayer();
  RunningLayer(const RunningLayer&) = delete;
  RunningLayer& operator=(const RunningLayer&) = delete;

  /// Of this thread's layer; null: none runs.
  static const ForwardContext* context();

 private:
  const ForwardContext* before_;
};

}  // namespace strata
