/// Ends a rank's steps where the rank computes, and reads what they found when it is asked for: the host
/// sets a step's numbers in front of it and need not know what came of them before the next step runs.
///
/// On a CPU everything has happened when a call returns.
///
/// Source   the layers' sums are added in layer order whatever the mesh (gradient_norm.h).
/// Threads  the rank's.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "strata/comm/group.h"
#include "strata/device/step_scalars.h"
#include "strata/optim/loss_scale.h"
#include "strata/optim/step_end.h"

namespace strata {

/// What a step found; the same on every rank.
struct StepOutcome {
  double loss = 0;           ///< mean over the valid tokens of the step
  double gradient_norm = 0;  ///< before clipping, without the loss scale
  bool skipped = false;      ///< the gradient was not finite under a loss scale: no update
};

class StepEnd {
 public:
  /// `clip`: largest gradient norm; 0: no clipping.
  StepEnd(MeshGroups& groups, int num_layers, double clip);
  ~StepEnd();
  StepEnd(const StepEnd&) = delete;
  StepEnd& operator=(const StepEnd&) = delete;

  /// The loss scale of the next step, and as the last one has left it; waits for that.
  void carry(const LossScale& scale);
  LossScale carried() const { return loss_scale_of(read()); }

  /// Sets what is set when a step begins; the rest of `step` counts for nothing.
  void begin(const StepScalars& step);

  /// In the memory of the rank's device; the same block for ever.
  StepScalars& scalars();
  const StepScalars* on_device();  ///< the same; null on a CPU
  /// gradient / loss scale, in place.
  void take_out_scale(at::Tensor gradient) const;
  /// As far as the host knows it without waiting: what was set, and on a CPU all of it.
  const StepScalars& known() const { return known_; }
  /// All of it, when the device has done what it was given.
  const StepScalars& read() const;

  /// fp64 [count], at the same place in every step; whoever asks writes all of them.
  at::Tensor blocks(std::int64_t count);

  /// Collective. `blocks`: of this rank's layers, complete over replicas when all have added theirs.
  /// `layers`: where each layer's are, with the layer as target. `loss` fp64 [1].
  void end(const at::Tensor& blocks, std::vector<LayerBlocks> layers, const at::Tensor& loss);

  /// Behind the last action of a step: starts to read what it found.
  void post(std::int64_t valid_tokens);
  /// Of the oldest step that was posted and not taken; waits for it.
  StepOutcome take();

 private:
  struct Posted {
    StepScalars found;  // on a CPU
    at::Tensor bytes;   // of a device, on their way to the host
    Completion arrived;
    std::int64_t valid_tokens;
  };
  struct Begun {
    at::Tensor bytes;  // pinned
    Completion copied;
  };
  static constexpr int kUnderWay = 2;  // steps: one runs, one is being enqueued

  void add_over(Group& group, const at::Tensor& sums) const;

  MeshGroups& groups_;
  double clip_;
  Device device_;
  Stream stream_;
  mutable StepScalars known_;
  at::Tensor block_;  // bytes on the device; undefined on a CPU, where known_ is the block
  std::array<Begun, kUnderWay> begun_;
  int next_begun_ = 0;
  at::Tensor blocks_, sums_;
  std::deque<Posted> posted_;
  std::vector<at::Tensor> free_;  // pinned, of steps that were taken
};

}  // namespace strata
