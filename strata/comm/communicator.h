/// Exchanges device tensors among the processes of a group, in the order of a stream.
///
/// Its calls are rendezvous on the device: all ranks of the group make the same calls in the same order, and
/// what follows in the stream follows the slowest of them. A call returns when the library has given its work
/// to the stream. When the run fails, abort() ends the work of those who wait for a rank that will never come.
///
/// Threads  the rank's; state() and abort() any.
/// Errors   SystemError: what the library reports. Cancelled when the run has failed.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/flat_range.h"
#include "strata/comm/collective_library.h"
#include "strata/device/device.h"

namespace strata {

class Communicator {
 public:
  /// A contiguous tensor to or from a rank of the group; none of a rank itself.
  struct Part {
    int rank = 0;
    at::Tensor tensor;
  };

  /// Joins the others. `ranks`: of the world, for errors; `failed`: whether the run has.
  Communicator(const CollectiveLibrary& library, const std::string& unique_id, int rank,
               const std::vector<int>& ranks, Device device, std::function<bool()> failed);
  ~Communicator() { abort(); }  ///< unless it was finished
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// All at once: no order among them, so that no pair of ranks waits for another. Empty parts, which are
  /// empty for both, do not travel.
  void exchange(std::span<const Part> sends, std::span<const Part> receives, const Stream& stream);
  /// Shards of one size, in rank order, fill `flat`.
  void all_gather(const at::Tensor& shard, const at::Tensor& flat, const Stream& stream);

  /// In whatever order is fastest.
  void all_reduce_sum(const at::Tensor& x, const Stream& stream);
  void reduce_scatter_sum(const at::Tensor& flat, std::span<const FlatRange> shards,
                          const at::Tensor& own, const Stream& stream);

  /// Ends it behind all that was given; the other ranks do the same. finish() waits for them.
  void begin_finish();
  void finish();

  /// Whether the library has reported a failure.
  LibraryState state();
  /// What that means to the user.
  Error error_of(const LibraryState& state, const char* call) const;
  void abort();

 private:
  template <typename Calls>
  void group(const char* name, const Calls& calls);
  void await(const char* call);
  CollectiveLibrary::Handle open() const;  // throws Cancelled when it was aborted

  const CollectiveLibrary& library_;
  std::vector<int> ranks_;
  int rank_;
  std::function<bool()> failed_;
  std::mutex mutex_;                            // of calls with the handle
  CollectiveLibrary::Handle handle_ = nullptr;  // null: aborted or finished
  bool finished_ = false;
};

}  // namespace strata
