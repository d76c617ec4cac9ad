/// Gathers and sums flat buffers over the ranks of a group, in the numbers of a block code.
///
/// Every rank encodes what it sends once, and all ranks, itself included, decode the same bytes: so
/// all get the same bits, however the buffers are cut. The others read a code in place where they
/// can. The caller's tensor may be written to as soon as start() has returned.
///
/// Source   Wang et al. 2023 (ZeRO++, arXiv 2306.10209).
/// Shapes   as ReduceScatter and AllGather (collectives.h); shards begin at multiples of
///          kFlatBlock.
/// Threads  collective. Tensors are in host memory.
/// Cost     per rank, n ranks, x bytes of code: (n - 1) / n x each. A gather holds the code of this
///          rank's shard, a sum that of its whole buffer, until the others have read them; of what
///          others send, one shard's code, and all that has arrived if it is not read in place.
/// Errors   those of Group.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "strata/comm/block_code.h"
#include "strata/comm/collectives.h"
#include "strata/comm/group.h"

namespace strata {

/// What a rank has sent of a coded collective, and what it needs to receive the rest.
struct CodedExchange {
  Group* group;
  MessageTag tag;
  Shards shards;
  const BlockCode* code;
  at::Tensor own;  ///< the code of this rank's shard
};

/// Each rank gets its shard of the sum of what the codes of all buffers stand for, in rank order.
class CodedSum {
 public:
  /// `code` outlives the sum.
  static CodedSum start(Group& group, const at::Tensor& flat, Shards shards, const BlockCode& code);

  /// Writes the sum (fp32) to `into`, or adds it there.
  void finish(const at::Tensor& into, bool accumulate);

  /// Whether finish() would not wait.
  bool has_arrived() const;

 private:
  explicit CodedSum(CodedExchange exchange) : exchange_(std::move(exchange)) {}
  CodedExchange exchange_;
};

/// All ranks get all shards as their codes stand for them.
class CodedGather {
 public:
  /// `code` outlives the gather.
  static CodedGather start(Group& group, const at::Tensor& shard, Shards shards,
                           const BlockCode& code);
  /// `tag`: as of AllGather.
  static CodedGather start(Group& group, const MessageTag& tag, const at::Tensor& shard,
                           Shards shards, const BlockCode& code);

  /// Writes all shards, this rank's included, to `flat`, which begins at element `begin`.
  void finish(const at::Tensor& flat, std::int64_t begin = 0);

 private:
  explicit CodedGather(CodedExchange exchange) : exchange_(std::move(exchange)) {}
  CodedExchange exchange_;
};

}  // namespace strata
