/// Computes in fp32 whatever tensors hold.
///
/// fp32 tensors are used where they lie, all rows at once. 16-bit tensors are converted a few rows
/// at a time, so that the copies stay small and in the cache; results are rounded once, to nearest
/// even. How many rows depends on their width alone: sums over them have the same bits on any mesh.
///
/// Shapes  contiguous tensors of `rows` rows, each of any width.
/// Cost    fp32: nothing. 16 bit: a copy of at most kFp32Piece elements, or one row, of each
///         tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <initializer_list>
#include <span>

namespace strata {

inline constexpr std::int64_t kFp32Piece = 1 << 16;  // elements

using Fp32Sources = std::span<const float* const>;
using Fp32Targets = std::span<float* const>;

/// Calls f(first, count, from, to) until all rows were [first, first + count) once: the pointers,
/// in the order of the tensors, are at row `first`. A tensor may be input and output: in fp32 both
/// pointers are then the same.
void in_fp32_pieces(
    std::int64_t rows, std::initializer_list<at::Tensor> inputs,
    std::initializer_list<at::Tensor> outputs,
    c10::function_ref<void(std::int64_t, std::int64_t, Fp32Sources, Fp32Targets)> f);

/// The whole of a small tensor; itself if it is fp32.
at::Tensor in_fp32(const at::Tensor& x);

/// sum += x, in fp32.
/// Shapes  both [rows, columns]; sum fp32.
void add_in_fp32(const at::Tensor& sum, const at::Tensor& x);

}  // namespace strata
