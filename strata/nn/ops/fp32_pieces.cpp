#include "strata/nn/ops/fp32_pieces.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

namespace strata {
namespace {

bool is_fp32(const at::Tensor& x) { return x.scalar_type() == at::kFloat; }

std::int64_t widest(std::initializer_list<at::Tensor> tensors, std::int64_t rows) {
  std::int64_t width = 1;
  for (const at::Tensor& x : tensors) width = std::max(width, x.numel() / rows);
  return width;
}

// Of the bytes alone: autograd doesn't hear of what is written there, as with pointers.
at::Tensor rows_of(const at::Tensor& x, std::int64_t rows, std::int64_t first, std::int64_t count) {
  return x.variable_data().view({rows, -1}).narrow(0, first, count);
}

}  // namespace

void in_fp32_pieces(
    std::int64_t rows, std::initializer_list<at::Tensor> inputs,
    std::initializer_list<at::Tensor> outputs,
    c10::function_ref<void(std::int64_t, std::int64_t, Fp32Sources, Fp32Targets)> f) {
  if (rows == 0) return;
  std::vector<const float*> from(inputs.size());
  std::vector<float*> to(outputs.size());
  if (is_fp32(*inputs.begin())) {
    std::transform(inputs.begin(), inputs.end(), from.begin(),
                   [](const at::Tensor& x) { return x.const_data_ptr<float>(); });
    std::transform(outputs.begin(), outputs.end(), to.begin(),
                   [](const at::Tensor& x) { return x.data_ptr<float>(); });
    return f(0, rows, from, to);
  }
  const std::int64_t width = std::max(widest(inputs, rows), widest(outputs, rows));
  const std::int64_t piece = std::max<std::int64_t>(1, kFp32Piece / width);
  for (std::int64_t first = 0; first < rows; first += piece) {
    const std::int64_t count = std::min(piece, rows - first);
    std::vector<at::Tensor> read, made;
    for (const at::Tensor& x : inputs) {
      read.push_back(rows_of(x, rows, first, count).to(at::kFloat));
      from[read.size() - 1] = read.back().const_data_ptr<float>();
    }
    for (const at::Tensor& x : outputs) {
      made.push_back(at::empty({count, x.numel() / rows}, at::kFloat));
      to[made.size() - 1] = made.back().data_ptr<float>();
    }
    f(first, count, from, to);
    std::size_t i = 0;
    for (const at::Tensor& x : outputs) rows_of(x, rows, first, count).copy_(made[i++]);
  }
}

at::Tensor in_fp32(const at::Tensor& x) { return is_fp32(x) ? x : x.detach().to(at::kFloat); }

void add_in_fp32(const at::Tensor& sum, const at::Tensor& x) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const std::int64_t piece = std::max<std::int64_t>(1, kFp32Piece / columns);
  // ATen converts what it adds as a whole.
  for (std::int64_t first = 0; first < rows; first += piece) {
    const std::int64_t count = std::min(piece, rows - first);
    sum.narrow(0, first, count).add_(x.narrow(0, first, count));
  }
}

}  // namespace strata
