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
class Pin;

struct NamedState {
  std::string name;                 ///< "block3.mlp.up.weight", "block3.mlp.up.weight.exp_avg"
  std::vector<std::int64_t> shape;  ///< shape of the whole state
  at::Tensor local;                 ///< 1-D view of this rank's bytes; undefined without runs
  std::vector<Run> runs;            ///< elements of `local` and their positions in the whole
  at::Tensor remainder = {};        ///< for bf16 weights: the missing bits (optim/master_weights.h)
  std::shared_ptr<const Pin> pin = {};  ///< pins the bytes while the state is used
  /// Of a state that every replica has for itself, whose name ends with ".<replica>": how many
  /// replicas there are, and whose it is. 0: all have the same.
  int replicas = 0;
  int replica = 0;
  /// A run that had no such state may be resumed: the bytes stay as they are.
  bool may_be_missing = false;
  bool is_copy = false;  ///< the bytes are not shared, so they may become part of another tensor

  std::int64_t numel() const;  ///< elements of the whole

  /// On the host: `local`, or a copy if it is on a device; with a remainder, an fp32 copy of both.
  at::Tensor values() const;
  /// writes the same elements to `local` and `remainder`
  void assign(const at::Tensor& values) const;

  /// values() in the whole's shape; InternalError if this rank does not have all of it.
  at::Tensor tensor() const;
};

/// States at the end of the work that the compute stream has now, in host memory of the calling
/// thread's account.
struct HostStates {
  std::vector<NamedState> states;
  Completion copied;  ///< for states of a device: when they may be read
};

/// Never waits for the device. The states may change after this returns, because later work on
/// `compute`, the stream that changes them, runs after the copies.
///
/// Cost  pinned memory of exactly the states' size; the compute stream is busy during the copies.
HostStates copy_to_host(const std::vector<NamedState>& states, const Stream& compute);

/// Copies the elements of `states` into the whole tensors of the same names; makes missing ones,
/// filled with zeros.
void assemble(const std::vector<NamedState>& states, std::map<std::string, at::Tensor>& whole);

/// The inverse: copies the state's elements from its whole tensor.
void assign_whole(const NamedState& state, const at::Tensor& whole);

/// The rank of `ranks`, those of a stage, that assembles each state: the same on every rank. It is
/// one of the ranks of the replica that has the state, which are adjacent.
std::vector<int> assemblers(const std::vector<NamedState>& states, int ranks);

/// Assembles whole states from the parts that the ranks of a stage own, each on one rank of the
/// group, evenly by bytes. Returns the states that this rank assembles, in their whole shape, in
/// memory of the calling thread's account, and undefined tensors for the others. All ranks pass the
/// same states with their own runs.
///
/// Threads  collective; the states may change after it returns on this rank.
/// Cost     every element travels once; states are assembled one at a time.
/// Errors   InternalError: an element that no rank or more than one rank owns.
std::vector<at::Tensor> assemble(Group& group, const std::vector<NamedState>& states);

/// The same, but rank `writers[i]` assembles state i.
std::vector<at::Tensor> assemble(Group& group, const std::vector<NamedState>& states,
                                 const std::vector<int>& writers);

}  // namespace strata
