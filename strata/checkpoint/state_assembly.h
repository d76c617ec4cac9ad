/// Assembles whole states from the parts that the ranks of a stage own.
///
/// Each state is assembled by one rank of the group; the work is divided evenly by bytes.
///
/// Threads  collective; the states may change when it has returned on this rank.
/// Cost     every element travels once; one state at a time is assembled.
/// Errors   InternalError: an element of a state that no rank or more than one owns.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "strata/comm/group.h"

namespace strata {

struct NamedState;

/// The rank of `ranks` that assembles each state: the same on every rank.
std::vector<int> assemblers(const std::vector<NamedState>& states, int ranks);

/// The states that this rank assembles, in their whole shape, in memory of the calling thread's
/// account; undefined tensors for the others. All ranks pass the same states with their own runs.
std::vector<at::Tensor> assemble(Group& group, const std::vector<NamedState>& states);

}  // namespace strata
