#include "strata/checkpoint/quantised_rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/models/quantised_model.h"

namespace strata {
namespace {

constexpr std::int64_t kReadElements = std::int64_t{1} << 20;

// Runs that end with their rows, in the order of the whole.
std::vector<Run> within_rows(const std::vector<Run>& runs, std::int64_t columns) {
  std::vector<Run> pieces;
  for (const Run& run : runs)
    for (std::int64_t done = 0; done < run.numel;) {
      const std::int64_t global = run.global + done;
      const std::int64_t count = std::min(run.numel - done, columns - global % columns);
      pieces.push_back({.local = run.local + done, .global = global, .numel = count});
      done += count;
    }
  std::ranges::sort(pieces, {}, &Run::global);
  return pieces;
}

// Whole rows that follow each other, and the pieces that lie in them.
struct RowBlock {
  std::int64_t begin = 0, end = 0;  // rows
  std::vector<Run> pieces;
};

std::vector<RowBlock> row_blocks(const std::vector<Run>& runs, std::int64_t columns) {
  const std::int64_t most = std::max<std::int64_t>(1, kReadElements / columns);
  std::vector<RowBlock> blocks;
  for (const Run& piece : within_rows(runs, columns)) {
    const std::int64_t row = piece.global / columns;
    if (blocks.empty() || row > blocks.back().end || row >= blocks.back().begin + most)
      blocks.push_back({.begin = row});
    blocks.back().end = row + 1;
    blocks.back().pieces.push_back(piece);
  }
  return blocks;
}

}  // namespace

void read_quantised_rows(kernels::QuantisedType type, const NamedState& part,
                         const ReadStates& read,
                         const std::function<void(const QuantisedPiece&)>& use) {
  STRATA_CHECK_EQ(part.shape.size(), std::size_t{2}, "checkpoint.quantised");
  const UnchargedScope reading;
  const std::int64_t columns = part.shape[1];
  kernels::QuantisedRow rounded(type, columns);
  for (const RowBlock& block : row_blocks(part.runs, columns)) {
    NamedState rows{.name = part.name, .shape = part.shape};
    const std::int64_t numel = (block.end - block.begin) * columns;
    rows.local = at::empty({numel}, host_options(at::kFloat));
    rows.runs = {{.local = 0, .global = block.begin * columns, .numel = numel}};
    read({rows});
    const float* values = rows.local.const_data_ptr<float>();
    std::int64_t last = -1;
    for (const Run& piece : block.pieces) {
      const std::int64_t row = piece.global / columns;
      if (row != last) rounded.round(values + (row - block.begin) * columns);
      last = row;
      use({.row = rounded,
           .begin = piece.global % columns,
           .count = piece.numel,
           .local = piece.local});
    }
  }
}

void read_rounded(kernels::QuantisedType type, const std::vector<NamedState>& weights,
                  const ReadStates& read) {
  for (const NamedState& weight : weights) {
    if (!keeps_fewer_bits(weight.name, weight.shape)) {
      read({weight});
      continue;
    }
    STRATA_CHECK(
        weight.runs.empty() || (weight.local.is_cpu() && weight.local.scalar_type() == at::kFloat),
        "checkpoint.quantised");
    float* local = weight.runs.empty() ? nullptr : weight.local.data_ptr<float>();
    read_quantised_rows(type, weight, read, [&](const QuantisedPiece& piece) {
      for (std::int64_t i = 0; i < piece.count; ++i)
        local[piece.local + i] = piece.row.value(piece.begin + i);
    });
  }
}

}  // namespace strata
