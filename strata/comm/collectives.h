/// Sums, gathers and scatters tensors over the ranks of a group, always in rank order: the same
/// bits on every rank, for any timing, for threads and processes.
///
/// An ordered sum is an all-to-all of shards and a local sum: the bytes of a ring, one wait. The
/// started forms return at once and overlap with the rank's work until finish().
///
/// Tensors on a rank's device are summed and copied there, in stream order, without waiting on the
/// host. ExchangeWay tells how the group transfers them. With a communicator and mesh.reduction:
/// native, the library's sums replace the ordered ones.
///
/// Shapes   contiguous tensors of one shape and dtype on all ranks (fp32, fp64, bf16).
/// Threads  collective: all ranks of the group call the same functions in the same order.
/// Cost     per rank, n ranks, x bytes: sums 2 (n-1)/n x, gather and scatter (n-1)/n x.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/base/flat_range.h"
#include "strata/comm/exchange.h"
#include "strata/comm/group.h"
#include "strata/comm/shared_buffer.h"

namespace strata {

/// In place.
void all_reduce_sum(Group& group, at::Tensor& x);
void all_reduce_max(Group& group, at::Tensor& x);

/// The ranks' tensors, joined along `dim` in rank order. x must not be written to afterwards.
at::Tensor all_gather(Group& group, const at::Tensor& x, int dim);

/// This rank's part, of size(dim) / ranks, of the sum.
at::Tensor reduce_scatter(Group& group, const at::Tensor& x, int dim);

/// The part of a flat buffer that each rank of the group has; together they cover it once.
using Shards = std::vector<FlatRange>;
at::Tensor shard_of(const at::Tensor& flat, const Shards& shards, int rank);

/// Sums the ranks' flat buffers; each rank gets its shard of the sum.
///
/// The others read the buffer until every rank has finished: it may be freed, but must not be
/// written to (this rank's own shard apart) before a later collective shows that they have.
class ReduceScatter {
 public:
  static ReduceScatter start(Group& group, at::Tensor flat, Shards shards);

  /// Waits for the others' shards and writes the sum to `into` (which may be this rank's shard of
  /// the buffer itself), or adds it there.
  void finish(const at::Tensor& into, bool accumulate = false);

  /// Whether finish() would probably not wait; false for those of a communicator.
  bool has_arrived() const;

 private:
  friend void all_reduce_sum(Group& group, at::Tensor& x);
  void start_by_communicator(const at::Tensor& flat, const Shards& shards);

  Group* group_ = nullptr;
  std::vector<ImportedChunks> terms_;  // in rank order
  InFlight in_flight_;                 // of a communicator
  bool through_host_ = false;
};

/// Collects all ranks' shards in a flat buffer. The same rule for the shard.
class AllGather {
 public:
  /// `flat`: the destination, which may be written from now on; undefined: a new tensor. `ready`:
  /// the event after which a device's shard is complete; default: the work already on its stream.
  static AllGather start(Group& group, at::Tensor shard, Shards shards, at::Tensor flat = {},
                         Completion ready = {});
  /// `tag`: which the ranks took before, so that they may start their gathers in any order; those
  /// of a communicator in the same order.
  static AllGather start(Group& group, const MessageTag& tag, at::Tensor shard, Shards shards,
                         at::Tensor flat = {}, Completion ready = {});

  /// The flat buffer, filled, own shard included.
  at::Tensor finish();

 private:
  friend void all_reduce_sum(Group& group, at::Tensor& x);
  static AllGather prepare(Group& group, const MessageTag& tag, at::Tensor shard, Shards shards,
                           at::Tensor flat);
  void start_by_communicator();
  void export_part(std::int64_t begin, std::int64_t end);
  void make_flat();
  void place_own(const at::Tensor& whole, const at::Tensor& shard);

  Group* group_ = nullptr;
  MessageTag tag_;
  at::Tensor shard_, flat_;
  Shards shards_;
  Completion ready_;    // when the shard is complete
  InFlight in_flight_;  // of a communicator
  at::Tensor host_;     // the shard, if it goes through the host
  bool through_host_ = false;
};

}  // namespace strata
