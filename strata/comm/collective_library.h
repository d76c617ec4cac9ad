/// Declares the functions of NCCL that communicators use, so that their order and shutdown
/// (comm/communicator.h) can be tested without a GPU.
///
/// No call waits for another rank or for free space on the device: init_rank(), group_end() and
/// finalize() return while threads of the library still work, and state() reports when they have
/// finished. Between group_start() and group_end() nothing starts; then everything starts at once.
/// Only abort() may wait, for those threads and for the device, after it has stopped the
/// communicator's kernels; several aborts may run at once.
///
/// Threads  calls with one handle one at a time; those of a group by one thread, bound to the
///          device.
/// Errors   SystemError: what the library rejects at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "strata/device/device.h"

namespace strata {

enum class LibraryFailure : std::uint8_t {
  kNone,
  kPeer,    ///< another process or the network between
  kDevice,  ///< this GPU
  kMisuse,  ///< calls that don't fit: other versions, or a bug
};

struct LibraryState {
  bool done = true;  ///< the last call with the handle
  LibraryFailure failure = LibraryFailure::kNone;
  std::string error = {};  ///< in the library's words
};

class CollectiveLibrary {
 public:
  using Handle = void*;  // ncclComm_t

  virtual ~CollectiveLibrary() = default;
  virtual bool present() const = 0;  ///< in this build
  virtual int version() const = 0;   ///< equal in all processes
  /// Identifies a device across machines.
  virtual std::uint64_t device_id(Device device) const = 0;
  /// The id by which the ranks of a new communicator meet; one of them requests it and sends it to
  /// the others.
  virtual std::string unique_id() const = 0;

  virtual Handle init_rank(const std::string& unique_id, int rank, int size,
                           Device device) const = 0;
  virtual LibraryState state(Handle handle) const = 0;  ///< never throws
  virtual void finalize(Handle handle) const = 0;       ///< after all enqueued work
  virtual void destroy(Handle handle) const = 0;        ///< when finalize() is done
  virtual void abort(Handle handle) const = 0;          ///< and with it what its kernels wait for

  virtual void group_start() const = 0;
  virtual void group_end() const = 0;
  virtual void send(Handle handle, const at::Tensor& from, int to, const Stream& stream) const = 0;
  virtual void receive(Handle handle, const at::Tensor& to, int from,
                       const Stream& stream) const = 0;
  /// The ranks' parts, of one size, in their order.
  virtual void all_gather(Handle handle, const at::Tensor& part, const at::Tensor& whole,
                          const Stream& stream) const = 0;

  /// Sums, in an order of the library's own.
  virtual void all_reduce(Handle handle, const at::Tensor& x, const Stream& stream) const = 0;
  virtual void reduce_scatter(Handle handle, const at::Tensor& whole, const at::Tensor& part,
                              const Stream& stream) const = 0;
  /// `into`: on the root only.
  virtual void reduce(Handle handle, const at::Tensor& from, const at::Tensor& into, int root,
                      const Stream& stream) const = 0;
};

/// NCCL, or one that is not present.
const CollectiveLibrary& nccl_library();

}  // namespace strata
