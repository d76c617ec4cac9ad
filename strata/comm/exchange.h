/// Carries tensors between the ranks of a group, each to its rank, in whatever way the group has; the ground
/// of the collectives.
///
/// Threads  collective, as they are.
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

/// Tensors of a device, whose group has a communicator; or that leave their process without one.
bool by_communicator(Group& group, const at::Tensor& x);
bool through_host(Group& group, const at::Tensor& x);

/// On x's device or in host memory, in the order of the rank's stream.
at::Tensor copy_of(RankDevice& device, const at::Tensor& x);
at::Tensor contiguous(RankDevice& device, const at::Tensor& x);
at::Tensor empty_beside(RankDevice& device, const at::Tensor& x, at::IntArrayRef sizes);
void copy_to(RankDevice& device, const at::Tensor& to, const at::Tensor& from);

/// Sends every rank its part of x, and returns what each has sent to this one, in rank order; own one
/// included, which `part` is asked for last.
std::vector<ImportedBuffer> exchange(Group& group, const at::Tensor& x,
                                     const std::function<at::Tensor(int rank)>& part);

/// A collective that the communication stream performs behind what the rank has given to its compute stream and
/// behind `after`; and what it uses, until the compute stream waits for it: when it is finished, or when this goes.
class InFlight {
 public:
  InFlight() = default;  ///< nothing
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
