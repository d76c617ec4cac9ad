// Four passes over the specs make four ranges: the optimizer processes the first two as one piece
// each, and borrowed weights follow all updated ones.
#include "strata/nn/graph/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "strata/base/errors.h"

namespace strata {
namespace {

std::int64_t align(std::int64_t numel, at::ScalarType dtype, std::int64_t alignment_bytes) {
  const std::int64_t unit = alignment_bytes / static_cast<std::int64_t>(c10::elementSize(dtype));
  return (numel + unit - 1) / unit * unit;
}

std::int64_t product(const std::vector<std::int64_t>& sizes, std::size_t begin, std::size_t end) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(begin),
                         sizes.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{1},
                         std::multiplies<>());
}

// Length of a rank's part of one section, including the padding of the last ones.
std::int64_t slice_length(std::int64_t section, std::int64_t unit, int ranks) {
  const std::int64_t units = (section + unit - 1) / unit;
  return (units + ranks - 1) / ranks * unit;
}

std::vector<std::int64_t> sections_of(const WeightSpec& spec) {
  if (!spec.split.sections.empty()) return spec.split.sections;
  return {spec.shape[spec.split.axis]};
}

void append(std::vector<Run>& runs, const Run& run) {
  if (run.numel == 0) return;
  if (!runs.empty() && runs.back().local + runs.back().numel == run.local &&
      runs.back().global + runs.back().numel == run.global) {
    runs.back().numel += run.numel;
  } else {
    runs.push_back(run);
  }
}

}  // namespace

LayerLayout make_layout(std::vector<WeightSpec> specs, const std::vector<bool>& borrowed, int ranks,
                        at::ScalarType dtype, std::int64_t alignment_bytes) {
  STRATA_CHECK_EQ(specs.size(), borrowed.size(), "nn.make_layout");
  LayerLayout layout;
  layout.placements.resize(specs.size());
  std::int64_t offset = 0;
  const auto place = [&](auto belongs) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!belongs(i)) continue;
      std::vector<std::int64_t> shape = slice_shape(specs[i], ranks);
      const std::int64_t numel = TensorSpec{shape}.numel();
      layout.placements[i] = {
          .shape = std::move(shape), .offset = offset, .numel = numel, .borrowed = borrowed[i]};
      offset += align(numel, dtype, alignment_bytes);
    }
    return offset;
  };
  layout.decay_numel = place([&](std::size_t i) { return !borrowed[i] && specs[i].decay; });
  const auto is_statistic = [&](std::size_t i) { return specs[i].statistic != Statistic::kNone; };
  layout.trained_numel =
      place([&](std::size_t i) { return !borrowed[i] && !specs[i].decay && !is_statistic(i); });
  layout.own_numel = place([&](std::size_t i) { return !borrowed[i] && is_statistic(i); });
  layout.total_numel = place([&](std::size_t i) { return borrowed[i]; });
  layout.specs = std::move(specs);
  return layout;
}

std::vector<FlatRange> matrices_of(const LayerLayout& layout) {
  std::vector<FlatRange> matrices;
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const WeightPlacement& place = layout.placements[i];
    if (!place.borrowed && place.shape.size() >= 2 && layout.specs[i].statistic == Statistic::kNone)
      matrices.push_back({place.offset, place.offset + place.numel});
  }
  std::ranges::sort(matrices, {}, &FlatRange::begin);
  return matrices;
}

std::vector<std::int64_t> slice_shape(const WeightSpec& spec, int ranks) {
  std::vector<std::int64_t> shape = spec.shape;
  if (spec.split.axis < 0 || ranks == 1) return shape;
  std::int64_t size = 0;
  for (const std::int64_t section : sections_of(spec))
    size += slice_length(section, spec.split.unit, ranks);
  shape[spec.split.axis] = size;
  return shape;
}

std::vector<Run> slice_runs(const WeightSpec& spec, int rank, int ranks) {
  const std::int64_t numel = product(spec.shape, 0, spec.shape.size());
  if (spec.split.axis < 0 || ranks == 1) return {{0, 0, numel}};
  const auto axis = static_cast<std::size_t>(spec.split.axis);
  const std::int64_t outer = product(spec.shape, 0, axis);
  const std::int64_t inner = product(spec.shape, axis + 1, spec.shape.size());
  const std::int64_t size = spec.shape[axis], local_size = slice_shape(spec, ranks)[axis];
  std::vector<Run> runs;
  for (std::int64_t o = 0; o < outer; ++o) {
    std::int64_t local = 0, global = 0;  // starts of the section along the axis
    for (const std::int64_t section : sections_of(spec)) {
      const std::int64_t length = slice_length(section, spec.split.unit, ranks);
      const std::int64_t begin = std::min(length * rank, section);
      const std::int64_t end = std::min(begin + length, section);
      append(runs, {(o * local_size + local) * inner, (o * size + global + begin) * inner,
                    (end - begin) * inner});
      local += length;
      global += section;
    }
  }
  return runs;
}

std::vector<Run> clip_runs(const std::vector<Run>& runs, std::int64_t begin, std::int64_t end) {
  std::vector<Run> clipped;
  for (const Run& run : runs) {
    const std::int64_t from = std::max(begin, run.local);
    const std::int64_t to = std::min(end, run.local + run.numel);
    if (from < to) clipped.push_back({from, run.global + from - run.local, to - from});
  }
  return clipped;
}

}  // namespace strata
