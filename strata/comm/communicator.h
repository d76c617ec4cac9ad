/// Exchanges device tensors among the processes of a group, in the order of a stream.
///
/// Its calls are rendezvous on the device: all ranks of the group make the same calls in the same order, and
/// what follows in the stream follows the slowest of them. A call returns when the library has given its work
/// to the stream.
///
/// A thread of its own watches it. When the run has failed it aborts the communicator, so that kernels which wait
/// for a lost rank end, and with them the hosts' waits for those kernels; when the library reports a failure it
/// ends the run.
///
/// Threads  the rank's; state() and begin_abort() any.
/// Errors   Cancelled when the run has failed; SystemError: what the library refuses at once.
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

/// What a communicator knows of the run.
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

  LibraryState state() const;  ///< in the library's words

  /// The destructor waits for the end, and that may wait for the device and what it has of other communicators:
  /// of several, each is told before one is destroyed.
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
  Monitor<Session> session_;                // whose lock calls with the handle hold
  std::thread watcher_;
};

}  // namespace strata
