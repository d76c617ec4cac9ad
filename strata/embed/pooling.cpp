// Loops over the elements of a row are plain. Compilers vectorise them, and no sum crosses
// elements, so vectors of any width give the same bits.
#include "strata/embed/pooling.h"

#include <hwy/contrib/sort/vqsort.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "strata/base/errors.h"

namespace strata {
namespace {

// The occurrences [begin, end) of a sample that are pooled.
struct Occurrences {
  std::int64_t begin, end;
};

Occurrences occurrences_of(const PooledFeature& feature, const IdLists& lists,
                           std::int64_t sample) {
  const std::int64_t end = lists.offsets[sample + 1];
  std::int64_t begin = lists.offsets[sample];
  if (feature.pooling == Pooling::kSequence) begin = std::max(begin, end - feature.length);
  if (feature.pooling == Pooling::kLast) begin = std::max(begin, end - 1);
  return {begin, end};
}

// The factor of an occurrence's row.
float factor_of(const PooledFeature& feature, const IdLists& lists, Occurrences all,
                std::int64_t occurrence) {
  const auto count = static_cast<float>(all.end - all.begin);
  switch (feature.pooling) {
    case Pooling::kMean:
      return 1 / count;
    case Pooling::kSqrtN:
      return 1 / std::sqrt(count);
    case Pooling::kWeighted:
      return lists.weights.empty() ? 1.0f : lists.weights[occurrence];
    default:
      return 1;
  }
}

// Finds, for every element, the occurrence whose row has the largest value; a NaN wins over later
// rows.
void find_largest(int width, Occurrences all, std::span<const std::int32_t> row_of,
                  const float* rows, std::int64_t* largest) {
  std::fill_n(largest, width, all.begin);
  for (std::int64_t o = all.begin + 1; o < all.end; ++o) {
    const float* row = rows + std::int64_t{row_of[o]} * width;
    for (int i = 0; i < width; ++i)
      if (row[i] > rows[std::int64_t{row_of[largest[i]]} * width + i]) largest[i] = o;
  }
}

// Whether every sample has one id, whose row is pooled as it is.
bool pools_one_row_each(const PooledFeature& feature, const IdLists& lists) {
  if (feature.pooling == Pooling::kMax || feature.pooling == Pooling::kWeighted ||
      feature.pooling == Pooling::kSequence ||
      static_cast<std::int64_t>(lists.ids.size()) != lists.samples())
    return false;
  for (std::int64_t sample = 0; sample < lists.samples(); ++sample)
    if (lists.offsets[sample] != sample) return false;
  return true;
}

// Calls body(width); usual widths are constants, for which compilers unroll loops.
template <typename Body>
void with_width(int width, Body body) {
  switch (width) {
    case 8:
      return body(std::integral_constant<int, 8>());
    case 16:
      return body(std::integral_constant<int, 16>());
    case 32:
      return body(std::integral_constant<int, 32>());
    case 64:
      return body(std::integral_constant<int, 64>());
    default:
      return body(width);
  }
}

}  // namespace

DistinctIds distinct_ids(std::span<const IdLists* const> lists) {
  // The largest id is not sorted: Highway fills short vectors with it, and would mix up its places.
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
  std::vector<hwy::K64V64> sorted, largest;  // ids with their places
  std::size_t count = 0;
  for (const IdLists* list : lists) count += list->ids.size();
  sorted.reserve(count);
  std::uint64_t place = 0;
  for (const IdLists* list : lists)
    for (const std::uint64_t id : list->ids)
      (id == kLargest ? largest : sorted).push_back({.value = place++, .key = id});
  hwy::Sorter()(sorted.data(), sorted.size(), hwy::SortAscending());
  sorted.insert(sorted.end(), largest.begin(), largest.end());
  DistinctIds distinct{.row_of = std::vector<std::int32_t>(sorted.size())};
  distinct.ids.reserve(sorted.size());
  for (const hwy::K64V64& occurrence : sorted) {
    if (distinct.ids.empty() || distinct.ids.back() != occurrence.key)
      distinct.ids.push_back(occurrence.key);
    distinct.row_of[occurrence.value] = static_cast<std::int32_t>(distinct.ids.size()) - 1;
  }
  return distinct;
}

void pool(const PooledFeature& feature, const IdLists& lists, std::span<const std::int32_t> row_of,
          const float* rows, float* pooled, std::int64_t stride) {
  STRATA_CHECK_EQ(row_of.size(), lists.ids.size(), "embed.pool");
  const int width = feature.row_width;
  if (pools_one_row_each(feature, lists))
    return with_width(width, [&](auto elements) {
      for (std::int64_t sample = 0; sample < lists.samples(); ++sample)
        for (int i = 0; i < elements; ++i)
          // Like any sum, it begins with 0: an element of -0 becomes 0.
          pooled[sample * stride + i] = 0.0f + rows[std::int64_t{row_of[sample]} * elements + i];
    });
  std::vector<std::int64_t> largest(feature.pooling == Pooling::kMax ? width : 0);
  for (std::int64_t sample = 0; sample < lists.samples(); ++sample, pooled += stride) {
    std::fill_n(pooled, feature.width(), 0.0f);
    const Occurrences all = occurrences_of(feature, lists, sample);
    if (all.begin == all.end) continue;
    if (feature.pooling == Pooling::kMax) {
      find_largest(width, all, row_of, rows, largest.data());
      for (int i = 0; i < width; ++i)
        pooled[i] = rows[std::int64_t{row_of[largest[i]]} * width + i];
      continue;
    }
    for (std::int64_t o = all.begin; o < all.end; ++o) {
      const float factor = factor_of(feature, lists, all, o);
      const float* row = rows + std::int64_t{row_of[o]} * width;
      float* to = feature.pooling == Pooling::kSequence ? pooled + (o - all.begin) * width : pooled;
      for (int i = 0; i < width; ++i) to[i] += factor * row[i];
    }
  }
}

void add_row_gradients(const PooledFeature& feature, const IdLists& lists,
                       std::span<const std::int32_t> row_of, const float* rows,
                       const float* gradients, std::int64_t stride, float* row_gradients) {
  STRATA_CHECK_EQ(row_of.size(), lists.ids.size(), "embed.add_row_gradients");
  const int width = feature.row_width;
  if (pools_one_row_each(feature, lists))
    return with_width(width, [&](auto elements) {
      for (std::int64_t sample = 0; sample < lists.samples(); ++sample)
        for (int i = 0; i < elements; ++i)
          row_gradients[std::int64_t{row_of[sample]} * elements + i] +=
              gradients[sample * stride + i];
    });
  std::vector<std::int64_t> largest(feature.pooling == Pooling::kMax ? width : 0);
  for (std::int64_t sample = 0; sample < lists.samples(); ++sample, gradients += stride) {
    const Occurrences all = occurrences_of(feature, lists, sample);
    if (all.begin == all.end) continue;
    if (feature.pooling == Pooling::kMax) {
      find_largest(width, all, row_of, rows, largest.data());
      for (int i = 0; i < width; ++i)
        row_gradients[std::int64_t{row_of[largest[i]]} * width + i] += gradients[i];
      continue;
    }
    for (std::int64_t o = all.begin; o < all.end; ++o) {
      const float factor = factor_of(feature, lists, all, o);
      const float* from =
          feature.pooling == Pooling::kSequence ? gradients + (o - all.begin) * width : gradients;
      float* to = row_gradients + std::int64_t{row_of[o]} * width;
      for (int i = 0; i < width; ++i) to[i] += factor * from[i];
    }
  }
}

}  // namespace strata
