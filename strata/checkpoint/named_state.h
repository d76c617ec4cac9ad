/// Names one rank's part of a weight, optimizer state or counter of the whole model, and assembles
/// whole states from the parts that ranks own.
///
/// Units  offsets and lengths of runs in elements; the whole is row-major.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/device/device.h"
#include "strata/nn/graph/layout.h"

namespace strata {

class Group;
class Lease;

struct NamedState {
  std::string name;                 ///< "block3.mlp.up.weight", "block3.mlp.up.weight.exp_avg"
  std::vector<std::int64_t> shape;  ///< of the whole
  at::Tensor local;                 ///< 1-D view of this rank's bytes; undefined without runs
  std::vector<Run> runs;            ///< elements of `local` and where they lie in the whole
  at::Tensor remainder = {};        ///< for bf16 weights: the missing bits (optim/master_weights.h)
  std::shared_ptr<const Lease> lease = {};  ///< keeps the bytes here while the state is used
  bool is_copy = false;  ///< the bytes are not shared: they may become a part of another tensor

  std::int64_t numel() const;  ///< of the whole

  /// On the host: `local`, or a copy of a device's; where it has a remainder, an fp32 copy of both.
  at::Tensor values() const;
  void assign(const at::Tensor& values) const;  ///< the same elements, into both

  /// values() in the whole's shape; InternalError where this rank hasn't all of it.
  at::Tensor tensor() const;
};

/// States as they are when what the compute stream was given so far is done, in host memory of the
/// calling thread's account.
struct HostStates {
  std::vector<NamedState> states;
  Completion copied;  ///< of a device's states: when they may be read
};

/// Never waits for the device; its states may change when this returns, for what it is given later
/// comes behind the copies. `compute`: the stream in whose order they change.
///
/// Cost  pinned memory of exactly their size; the compute stream is busy with the copies.
HostStates copy_to_host(const std::vector<NamedState>& states, const Stream& compute);

/// Copies the elements of `states` into the whole tensors of the same names, which it makes (zero)
/// where they aren't there yet.
void assemble(const std::vector<NamedState>& states, std::map<std::string, at::Tensor>& whole);

/// The rank of `ranks` that assembles each state: the same on every rank.
std::vector<int> assemblers(const std::vector<NamedState>& states, int ranks);

/// Assembles whole states from the parts that the ranks of a stage own, each on one rank of the
/// group; the work is divided evenly by bytes. Returns those that this rank assembles, in their
/// whole shape, in memory of the calling thread's account; undefined tensors for the others. All
/// ranks pass the same states with their own runs.
///
/// Threads  collective; the states may change when it has returned on this rank.
/// Cost     every element travels once; one state at a time is assembled.
/// Errors   InternalError: an element of a state that no rank or more than one owns.
std::vector<at::Tensor> assemble(Group& group, const std::vector<NamedState>& states);

/// The same, state i on rank `writers`[i].
std::vector<at::Tensor> assemble(Group& group, const std::vector<NamedState>& states,
                                 const std::vector<int>& writers);

}  // namespace strata
