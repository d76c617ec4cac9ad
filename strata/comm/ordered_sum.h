/// Sums terms of several ranks, always in rank order: the same bits on every rank, for any timing.
///
/// Shapes  fp64, fp32, bf16, fp16; sums of 16-bit floats are kept in fp32 until the last term.
/// Threads  the rank's.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "strata/comm/group.h"
#include "strata/comm/shared_buffer.h"

namespace strata {

/// out = terms[0] + terms[1] + ..., each element in that order, for the next out.numel() of each;
/// out may be one of the terms. In host memory.
void sum_in_order(std::vector<ImportedChunks>& terms, const at::Tensor& out);

/// The same of whole terms, where out is: on the rank's device, in the order of its stream, or in
/// host memory.
void sum_whole(Group& group, std::vector<ImportedChunks>& terms, const at::Tensor& out);
void sum_whole(Group& group, const std::vector<ImportedBuffer>& terms, const at::Tensor& out);

/// The largest of each element.
void max_whole(Group& group, const std::vector<ImportedBuffer>& terms, const at::Tensor& out);

}  // namespace strata
