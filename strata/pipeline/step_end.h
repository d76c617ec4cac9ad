/// Ends a rank's steps on the rank's device and reads their results on request. The host sets a
/// step's inputs beforehand and need not know its results before the next step runs.
///
/// On a CPU every call completes before it returns.
///
/// Source   the layers' sums are added in layer order for any mesh (gradient_norm.h).
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

/// The results of a step; equal on every rank that makes the update.
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

  /// Sets and returns the loss scale of the next step; the latter waits for the last step.
  void carry(const LossScale& scale);
  LossScale carried() const { return loss_scale_of(read()); }

  /// Sets the inputs of a step; other fields of `step` are ignored.
  void begin(const StepScalars& step);

  /// In the memory of the rank's device, at a constant address.
  StepScalars& scalars();
  const StepScalars* on_device();  ///< the same; null on a CPU
  /// gradient / loss scale, in place.
  void take_out_scale(at::Tensor gradient) const;
  /// The part that the host knows without waiting: the inputs, and on a CPU everything.
  const StepScalars& known() const { return known_; }
  /// Everything, after waiting for the device.
  const StepScalars& read() const;

  /// fp64 [count], at a constant address; the caller must write all of them.
  at::Tensor blocks(std::int64_t count);

  /// Collective. `blocks`: sums of this rank's layers, complete once all replicas have added
  /// theirs. `layers`: the blocks of each layer, with the layer as target. `loss` fp64 [1].
  void end(const at::Tensor& blocks, std::vector<LayerBlocks> layers, const at::Tensor& loss);
  /// The same, if sums are complete once the ranks of a shard group have added theirs, and those of
  /// all groups are to be added.
  void end_apart(const at::Tensor& blocks, std::vector<LayerBlocks> layers, const at::Tensor& loss);

  /// Call after the last action of a step: starts to read its results.
  void post(std::int64_t valid_tokens);
  /// The outcome of the oldest step that was posted and not taken; waits for it.
  StepOutcome take();

 private:
  struct Posted {
    StepScalars found;  // on a CPU
    at::Tensor bytes;   // on a device: results being copied to the host
    Completion arrived;
    std::int64_t valid_tokens;
  };
  struct Begun {
    at::Tensor bytes;  // pinned
    Completion copied;
  };
  static constexpr int kUnderWay = 2;  // one step runs, one is being enqueued

  void add_over(Group& group, const at::Tensor& sums) const;
  void end_with(const at::Tensor& blocks, std::vector<LayerBlocks> layers, const at::Tensor& loss,
                bool counts_layers);

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
  std::vector<at::Tensor> free_;  // pinned buffers of steps that were taken
};

}  // namespace strata
