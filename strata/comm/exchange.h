/// Transfers tensors between the ranks of a group, each to its rank, in the group's exchange way.
/// The collectives are built on this.
///
/// Threads  collective.
/// Errors   those of Group and Communicator.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "strata/comm/group.h"
#include "strata/comm/rank_device.h"
#include "strata/comm/shared_buffer.h"

namespace strata {

/// Whether a communicator carries x: its group has one and x is on a device.
bool by_communicator(Group& group, const at::Tensor& x);
bool through_host(Group& group, const at::Tensor& x);

/// On x's device or in host memory, in the order of the rank's stream.
at::Tensor copy_of(RankDevice& device, const at::Tensor& x);
at::Tensor contiguous(RankDevice& device, const at::Tensor& x);
at::Tensor empty_on_device_of(RankDevice& device, const at::Tensor& x, at::IntArrayRef sizes);
void copy_to(RankDevice& device, const at::Tensor& to, const at::Tensor& from);

/// Sends every rank its part of x and returns the parts received, in rank order, this rank's own
/// included. Calls `part` for this rank last.
std::vector<ImportedBuffer> exchange(Group& group, const at::Tensor& x,
                                     const std::function<at::Tensor(int rank)>& part);

/// A collective on the communication stream, ordered after the rank's compute stream and after
/// `after`. Keeps its buffers until the compute stream waits for it: at finish, or at destruction.
class InFlight {
 public:
  InFlight() = default;  ///< an empty object: no collective
  InFlight(RankDevice& device, std::vector<at::Tensor> used,
           const std::function<void(const Stream& stream)>& collective,
           const Completion& after = {});
  explicit operator bool() const { return state_ != nullptr; }
  void finish();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Performs a collective on a copy in host memory; one that returns nothing changes x.
template <typename Collective>
auto on_host(Group& group, const at::Tensor& x, const Collective& collective) {
  RankDevice& device = group.rank_device();
  at::Tensor host = device.on_host(x);
  if constexpr (std::is_void_v<decltype(collective(host))>) {
    collective(host);
    device.copy_to_device(x, host);
  } else {
    return device.on_device(collective(host));
  }
}

}  // namespace strata
