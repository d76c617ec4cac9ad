// Copies in one of three ways: equal rows are read directly into the state; rows that widen pass
// through a buffer of narrow ones; transposed tensors are read in blocks of the file's rows,
// sixteen of our rows at a time, so that cache lines are used whole.
#include "strata/checkpoint/file_tensors.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <sstream>
#include <type_traits>

#include "strata/base/errors.h"
#include "strata/models/hugging_face.h"

namespace strata {
namespace {

constexpr std::size_t kRowsAtOnce = 16;  // fp32: a cache line of a transposed tensor
constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;

template <typename From>
From load(const std::byte* bytes) {
  From value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Elements [begin, end) of one of our weight's rows.
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

// Reads blocks of our columns, which are the file's rows; each block once.
template <typename From, typename To>
void copy_transposed(const TensorFile& file, const FileTensor& part, const std::vector<Run>& runs,
                     To* local) {
  const std::vector<RowPart> all = row_parts(runs, part);
  std::int64_t begin = part.columns, end = 0;
  for (const RowPart& row : all) {
    begin = std::min(begin, row.begin);
    end = std::max(end, row.end);
  }
  const auto row_bytes = part.rows * static_cast<std::int64_t>(sizeof(From));
  const std::int64_t at_once =
      std::max<std::int64_t>(1, kBlockBytes / std::max<std::int64_t>(1, row_bytes));
  std::vector<std::byte> block;
  for (; begin < end; begin += at_once) {
    const std::int64_t last = std::min(end, begin + at_once);
    block.resize(static_cast<std::size_t>((last - begin) * row_bytes));
    file.read(part.name, begin * part.rows, block);
    for (std::size_t first = 0; first < all.size(); first += kRowsAtOnce) {
      const std::span rows =
          std::span(all).subspan(first, std::min(kRowsAtOnce, all.size() - first));
      for (std::int64_t column = begin; column < last; ++column) {
        const std::byte* bytes = block.data() + (column - begin) * row_bytes;
        for (const RowPart& row : rows) {
          if (column < row.begin || column >= row.end) continue;
          local[row.local + column - row.begin] = static_cast<To>(
              load<From>(bytes + row.row * static_cast<std::int64_t>(sizeof(From))));
        }
      }
    }
  }
}

// Reads elements in ascending order, many short runs per read.
template <typename From>
class ElementStream {
 public:
  /// The stream ends before element `end`.
  ElementStream(const TensorFile& file, const std::string& name, std::int64_t end)
      : file_(file), name_(name), end_(end) {}

  void read(std::int64_t begin, std::span<std::byte> out) {
    const auto count = static_cast<std::int64_t>(out.size() / sizeof(From));
    if (static_cast<std::int64_t>(out.size()) >= kBlockBytes) return file_.read(name_, begin, out);
    if (begin < first_ || begin + count > last_) {
      first_ = begin;
      last_ = std::min(end_, begin + kBlockBytes / static_cast<std::int64_t>(sizeof(From)));
      block_.resize(static_cast<std::size_t>(last_ - first_) * sizeof(From));
      file_.read(name_, first_, block_);
    }
    std::memcpy(out.data(), block_.data() + static_cast<std::size_t>(begin - first_) * sizeof(From),
                out.size());
  }

 private:
  const TensorFile& file_;
  const std::string& name_;
  std::int64_t end_, first_ = 0, last_ = 0;
  std::vector<std::byte> block_;
};

template <typename From, typename To>
void copy(const TensorFile& file, const FileTensor& part, const NamedState& state) {
  To* local = static_cast<To*>(state.local.mutable_data_ptr());
  if (part.transposed) return copy_transposed<From, To>(file, part, state.runs, local);
  const std::int64_t first = part.row_begin * part.columns;
  const std::int64_t last = first + part.rows * part.columns;
  std::int64_t wanted = first;
  for (const Run& run : state.runs)
    wanted = std::max(wanted, std::min(run.global + run.numel, last));
  ElementStream<From> stream(file, part.name, wanted - first);
  [[maybe_unused]] std::vector<From> narrow;
  for (const Run& run : state.runs) {
    const std::int64_t begin = std::max(run.global, first);
    const std::int64_t end = std::min(run.global + run.numel, last);
    if (begin >= end) continue;
    To* target = local + run.local + begin - run.global;
    if constexpr (std::is_same_v<From, To>) {
      stream.read(begin - first, std::as_writable_bytes(std::span(target, end - begin)));
    } else {
      constexpr std::int64_t kAtOnce = kBlockBytes / static_cast<std::int64_t>(2 * sizeof(From));
      for (std::int64_t at = begin; at < end; at += kAtOnce) {
        narrow.resize(static_cast<std::size_t>(std::min(kAtOnce, end - at)));
        stream.read(at - first, std::as_writable_bytes(std::span(narrow)));
        std::transform(narrow.begin(), narrow.end(), target + (at - begin),
                       [](From value) { return static_cast<To>(value); });
      }
    }
  }
}

std::string text_of(at::IntArrayRef shape, at::ScalarType dtype) {
  std::ostringstream text;
  text << shape << " of " << c10::toString(dtype);
  return text.str();
}

[[noreturn]] void refuse(const TensorFile& file, const FileTensor& part, at::ScalarType expected) {
  throw UserError(
      {.operation = "checkpoint.open",
       .where = file.path(),
       .what = "'" + part.name + "' has another shape or dtype",
       .expected = text_of(part.shape, expected) + " in the model",
       .got = text_of(file.shape(part.name), file.dtype(part.name)) + " in the checkpoint",
       .fix = "load it with the model and optimizer that its manifest names"});
}

}  // namespace

std::vector<FileTensor> file_tensors(const FileNames& names, const NamedState& weight) {
  const std::int64_t rows = weight.shape.empty() ? 1 : weight.shape[0];
  const std::int64_t columns = rows == 0 ? 0 : weight.numel() / rows;
  if (!names.decoder) {
    const std::string& name = names.others ? names.others->at(weight.name) : weight.name;
    return {{name, weight.shape, 0, rows, columns, false}};
  }
  std::vector<FileTensor> tensors;
  std::int64_t covered = 0;
  for (const HuggingFaceTensor& part : hugging_face_tensors(*names.decoder, weight.name)) {
    const std::int64_t count = part.rows == 0 ? rows - part.row_begin : part.rows;
    STRATA_CHECK(part.row_begin >= 0 && count >= 0 && part.row_begin + count <= rows,
                 "checkpoint.file_tensors");
    STRATA_CHECK(!part.transposed || weight.shape.size() == 2, "checkpoint.file_tensors");
    std::vector<std::int64_t> shape = weight.shape;
    if (!shape.empty()) shape[0] = count;
    if (part.transposed) shape = {columns, count};
    tensors.push_back(
        {part.name, std::move(shape), part.row_begin, count, columns, part.transposed});
    covered += count;
  }
  STRATA_CHECK_EQ(covered, rows, "checkpoint.file_tensors");
  return tensors;
}

void copy_runs(const TensorFile& file, const FileTensor& named, const NamedState& state) {
  if (state.runs.empty()) return;
  FileTensor part = named;
  if (part.transposed && file.outputs_first()) {
    part.transposed = false;
    std::ranges::reverse(part.shape);
  }
  const at::ScalarType from = file.dtype(part.name), to = state.local.scalar_type();
  STRATA_CHECK(state.local.is_contiguous() && state.local.is_cpu(), "checkpoint.copy_runs");
  for (const Run& run : state.runs)
    STRATA_CHECK(run.local >= 0 && run.local + run.numel <= state.local.numel(),
                 "checkpoint.copy_runs");
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
