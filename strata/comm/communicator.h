/// Exchanges device tensors among the processes of a group, in the order of a stream; and decides how a
/// group's ranks exchange them at all.
///
/// A communicator is NCCL's (nccl_communicator.cpp), or a test's. Its calls are rendezvous on the
/// device: all ranks of the group make the same calls in the same order, and what follows in the
/// stream follows the slowest of them.
///
/// Errors   SystemError: what NCCL reports. Cancelled when another rank failed while it is made.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "strata/base/flat_range.h"
#include "strata/device/device.h"

namespace strata {

class Communicator {
 public:
  /// A contiguous tensor to or from a rank of the group; none of a rank itself.
  struct Part {
    int rank = 0;
    at::Tensor tensor;
  };
  virtual ~Communicator() = default;

  /// All at once: no order among them, so that no pair of ranks waits for another.
  virtual void exchange(std::span<const Part> sends, std::span<const Part> receives,
                        const Stream& stream) = 0;
  /// Shards of one size, in rank order, fill `flat`.
  virtual void all_gather(const at::Tensor& shard, const at::Tensor& flat,
                          const Stream& stream) = 0;

  /// In whatever order is fastest.
  virtual void all_reduce_sum(const at::Tensor& x, const Stream& stream) = 0;
  virtual void reduce_scatter_sum(const at::Tensor& flat, std::span<const FlatRange> shards,
                                  const at::Tensor& own, const Stream& stream) = 0;
};

class CommunicatorBackend {
 public:
  virtual ~CommunicatorBackend() = default;
  virtual bool present() const = 0;  ///< in this build
  /// Tells devices of all machines apart.
  virtual std::uint64_t device_id(Device device) const = 0;
  /// What the ranks of a new communicator meet by; one of them asks for it and tells the others.
  virtual std::string unique_id() const = 0;
  /// Begins to join; the first call waits for the others, unless `failed` says that the run has ended.
  virtual std::unique_ptr<Communicator> join(const std::string& unique_id, int rank, int size,
                                             Device device, std::function<bool()> failed) const = 0;
};

/// NCCL's, or one that is not present.
const CommunicatorBackend& nccl_backend();

/// Where a rank computes.
struct RankPlace {
  int process = 0;
  std::uint64_t device = 0;
  bool has_backend = false;
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

enum class ExchangeWay : std::uint8_t {
  kPeers,         ///< one process: ranks read one another's tensors where they are
  kCommunicator,  ///< a device each, in several processes
  kThroughHost,   ///< whatever is left: copies in host memory, and its sums
};

/// The same on all ranks.
ExchangeWay exchange_way(std::span<const RankPlace> places);

}  // namespace strata
