/// Exchanges device tensors among the processes of a group, in stream order.
///
/// Its calls are rendezvous on the device: all ranks of the group make the same calls in the same
/// order, and later work in the stream follows the slowest rank. A call returns when the library
/// has enqueued its work on the stream.
///
/// A watcher thread aborts the communicator when the run has failed, so that kernels that wait for
/// a lost rank end, and with them the hosts' waits. When the library reports a failure, the watcher
/// ends the run.
///
/// Threads  the rank's; state() and begin_abort() any.
/// Errors   Cancelled when the run has failed; SystemError: what the library rejects at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/flat_range.h"
#include "strata/base/monitor.h"
#include "strata/comm/collective_library.h"
#include "strata/device/device.h"

namespace strata {

/// The parts of the run that a communicator uses.
struct CommunicatorRun {
  std::function<bool()> failed;
  std::function<void(const Error& error, LibraryFailure failure)> fail;
};

class Communicator {
 public:
  /// A contiguous tensor to or from a rank of the group; none of a rank itself.
  struct Part {
    int rank = 0;
    at::Tensor tensor;
  };

  /// Joins the others. `ranks`: of the world, for errors.
  Communicator(const CollectiveLibrary& library, const std::string& unique_id, int rank,
               const std::vector<int>& ranks, Device device, CommunicatorRun run);
  ~Communicator();  ///< aborts it, unless it was finished
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Starts all transfers at once, without an order among them, so that no pair of ranks waits for
  /// another. Empty parts, which are empty on both ranks, are not sent.
  void exchange(std::span<const Part> sends, std::span<const Part> receives, const Stream& stream);
  /// Shards of one size, in rank order, fill `flat`.
  void all_gather(const at::Tensor& shard, const at::Tensor& flat, const Stream& stream);

  /// In the library's fastest order.
  void all_reduce_sum(const at::Tensor& x, const Stream& stream);
  void reduce_scatter_sum(const at::Tensor& flat, std::span<const FlatRange> shards,
                          const at::Tensor& own, const Stream& stream);

  /// Starts to end it after all enqueued work; all ranks do the same. finish() waits for them.
  void begin_finish();
  void finish();

  LibraryState state() const;  ///< in the library's words

  /// Starts to abort without waiting. The destructor waits, possibly for the device and for work of
  /// other communicators, so with several communicators call this for each before destroying one.
  void begin_abort();

 private:
  struct Session {
    CollectiveLibrary::Handle handle = nullptr;  // null: aborted or finished
    bool finished = false;
    bool aborting = false;
  };
  template <typename Calls>
  void group(const char* name, const Calls& calls);
  void await(const char* call);
  void watch();
  void end();
  Error error_of(const LibraryState& state) const;
  static CollectiveLibrary::Handle open(
      const Session& session);  // throws Cancelled when it was aborted

  const CollectiveLibrary& library_;
  std::vector<int> ranks_;
  int rank_;
  CommunicatorRun run_;
  std::atomic<const char*> call_ = "join";  // the last, for errors
  Monitor<Session> session_;                // its lock is held during calls with the handle
  std::thread watcher_;
};

}  // namespace strata
