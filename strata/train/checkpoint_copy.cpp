#include "strata/train/checkpoint_copy.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <sstream>
#include <type_traits>

#include "strata/base/errors.h"
#include "strata/train/named_state.h"

namespace strata {
namespace {

constexpr std::size_t kRowsAtOnce = 16;  // fp32: a cache line of a transposed tensor

template <typename From>
From load(const std::byte* bytes) {
  From value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Elements [begin, end) of one of our rows.
struct RowPart {
  std::int64_t row;  // within the file's tensor
  std::int64_t begin, end;
  std::int64_t local;
};

// The parts of a run that lie in the file's rows.
std::vector<RowPart> row_parts(const std::vector<Run>& runs, const FileTensor& part) {
  std::vector<RowPart> parts;
  if (part.columns == 0) return parts;
  const std::int64_t first = part.row_begin * part.columns;
  const std::int64_t last = first + part.rows * part.columns;
  for (const Run& run : runs) {
    std::int64_t global = std::max(run.global, first);
    const std::int64_t end = std::min(run.global + run.numel, last);
    while (global < end) {
      const std::int64_t row = global / part.columns, column = global % part.columns;
      const std::int64_t count = std::min(part.columns - column, end - global);
      parts.push_back(
          {row - part.row_begin, column, column + count, run.local + global - run.global});
      global += count;
    }
  }
  return parts;
}

template <typename From, typename To>
void copy_transposed(const SafetensorsFile& file, const FileTensor& part,
                     const std::vector<Run>& runs, To* local) {
  const std::vector<RowPart> all = row_parts(runs, part);
  for (std::size_t first = 0; first < all.size(); first += kRowsAtOnce) {
    const std::span rows = std::span(all).subspan(first, std::min(kRowsAtOnce, all.size() - first));
    std::int64_t begin = part.columns, end = 0, top = part.rows, bottom = 0;
    for (const RowPart& row : rows) {
      begin = std::min(begin, row.begin);
      end = std::max(end, row.end);
      top = std::min(top, row.row);
      bottom = std::max(bottom, row.row);
    }
    const std::int64_t origin = begin * part.rows + top;
    const std::byte* bytes =
        file.elements(part.name, origin, (end - 1) * part.rows + bottom + 1).data();
    for (std::int64_t column = begin; column < end; ++column) {
      for (const RowPart& row : rows) {
        if (column < row.begin || column >= row.end) continue;
        const std::int64_t place = column * part.rows + row.row - origin;
        local[row.local + column - row.begin] =
            static_cast<To>(load<From>(bytes + place * static_cast<std::int64_t>(sizeof(From))));
      }
    }
  }
}

template <typename From, typename To>
void copy(const SafetensorsFile& file, const FileTensor& part, const NamedState& state) {
  To* local = static_cast<To*>(state.local.mutable_data_ptr());
  if (part.transposed) return copy_transposed<From, To>(file, part, state.runs, local);
  const std::int64_t first = part.row_begin * part.columns;
  const std::int64_t last = first + part.rows * part.columns;
  for (const Run& run : state.runs) {
    const std::int64_t begin = std::max(run.global, first);
    const std::int64_t end = std::min(run.global + run.numel, last);
    if (begin >= end) continue;
    const std::byte* bytes = file.elements(part.name, begin - first, end - first).data();
    To* target = local + run.local + begin - run.global;
    if constexpr (std::is_same_v<From, To>) {
      std::memcpy(target, bytes, static_cast<std::size_t>(end - begin) * sizeof(To));
    } else {
      for (std::int64_t i = 0; i < end - begin; ++i)
        target[i] =
            static_cast<To>(load<From>(bytes + i * static_cast<std::int64_t>(sizeof(From))));
    }
  }
}

std::string text_of(at::IntArrayRef shape, at::ScalarType dtype) {
  std::ostringstream text;
  text << shape << " of " << c10::toString(dtype);
  return text.str();
}

[[noreturn]] void refuse(const SafetensorsFile& file, const FileTensor& part,
                         at::ScalarType expected) {
  throw UserError(
      {.operation = "train.open_checkpoint",
       .where = file.path(),
       .what = "'" + part.name + "' has another shape or dtype",
       .expected = text_of(part.shape, expected),
       .got = text_of(file.shape(part.name), file.dtype(part.name)),
       .fix =
           "load it with the model and optimizer that its manifest's recipe or config.json names"});
}

}  // namespace

void copy_runs(const SafetensorsFile& file, const FileTensor& part, const NamedState& state) {
  if (state.runs.empty()) return;
  const at::ScalarType from = file.dtype(part.name), to = state.local.scalar_type();
  STRATA_CHECK(state.local.is_contiguous() && state.local.is_cpu(), "train.copy_runs");
  for (const Run& run : state.runs)
    STRATA_CHECK(run.local >= 0 && run.local + run.numel <= state.local.numel(), "train.copy_runs");
  if (file.shape(part.name) != part.shape) refuse(file, part, to);
  if (to == at::kFloat && from == at::kFloat) return copy<float, float>(file, part, state);
  if (to == at::kFloat && from == at::kBFloat16)
    return copy<c10::BFloat16, float>(file, part, state);
  if (to == at::kFloat && from == at::kHalf) return copy<c10::Half, float>(file, part, state);
  if (to != from) refuse(file, part, to);
  switch (c10::elementSize(to)) {
    case 1:
      return copy<std::uint8_t, std::uint8_t>(file, part, state);
    case 2:
      return copy<std::uint16_t, std::uint16_t>(file, part, state);
    case 4:
      return copy<std::uint32_t, std::uint32_t>(file, part, state);
    default:
      return copy<std::uint64_t, std::uint64_t>(file, part, state);
  }
}

at::Tensor part_of(const at::Tensor& whole, const FileTensor& part) {
  if (whole.dim() == 0) return whole;
  const at::Tensor rows = whole.narrow(0, part.row_begin, part.rows);
  return part.transposed ? rows.t().contiguous() : rows;
}

}  // namespace strata
