/// Compares the states that the ranks of a mesh keep, which a checkpoint's assembly does not: it
/// takes equal states from one of them.
#pragma once

#include "strata/train/mesh_run_test.h"

namespace strata {

/// Trains, and expects weights and states that ranks keep whole to have the same bits on all ranks,
/// or, if replicas have moved apart, on the ranks of each replica.
void expect_ranks_keep_equal_states(const MeshCase& c, const ChangeOptions& change = {},
                                    bool replicas_apart = false);

/// Trains for `steps`, lets the gradients of one more step overflow fp16, and expects all weights
/// and states but the loss scale to keep their bits on every rank. Returns those of rank 0.
std::map<std::string, at::Tensor> expect_skipped_step_changes_no_state(
    const MeshCase& c, int steps, const ChangeOptions& change = {});

}  // namespace strata
