/// Averages vectors over the ranks of a group in one bit an element, and keeps what the bits omit.
///
/// Each rank sends the signs of each part of its vector and one scale, the mean magnitude of the
/// part, to the rank that averages this part. That rank sends the average to all others in the same
/// way. What a message omits is added to the next message: the caller keeps both errors from mean
/// to mean.
///
/// Source   Tang et al. 2021, "1-bit Adam" (arXiv 2102.02888), algorithm 1; the scale that makes
///          the error smallest: Karimireddy et al. 2019 (arXiv 1901.09847).
/// Shapes   values: flat fp32; parts: one for each rank, multiples of 8 elements apart from the
///          last, which together cover the values once.
/// Threads  collective. Tensors are in host memory.
/// Cost     per rank, n ranks, x elements: (n - 1) / n x / 4 bytes and 8 (n - 1) of scales, where a
///          sum of fp16 sends 4 (n - 1) / n x.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "strata/comm/collectives.h"
#include "strata/comm/group.h"

namespace strata {

class OneBitMean {
 public:
  /// Starts to send the values, which become what the messages omit. `slices`: ranks that hold
  /// other slices of the same layer and some equal elements: they use one scale.
  static OneBitMean start(Group& group, Group& slices, const at::Tensor& values, Shards parts);

  /// Adds the average of this rank's part to `error`, what the last average of the part has
  /// omitted.
  void add_average(const at::Tensor& error);

  /// Starts to send `error`, which becomes what this message omits.
  void send_average(const at::Tensor& error);

  /// Writes the mean of all parts to `mean`; the same bits on every rank.
  void finish(const at::Tensor& mean);

 private:
  Group* group_ = nullptr;
  Group* slices_ = nullptr;
  Shards parts_;
  MessageTag values_tag_, mean_tag_;
  at::Tensor own_;  // this rank's message about its own part
};

}  // namespace strata
