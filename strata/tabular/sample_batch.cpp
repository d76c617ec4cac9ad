#include "strata/tabular/sample_batch.h"

#include "strata/base/errors.h"

namespace strata {
namespace {

template <typename T>
std::vector<T> part(const std::vector<T>& all, std::int64_t first, std::int64_t count) {
  if (all.empty()) return {};
  return {all.begin() + first, all.begin() + first + count};
}

IdLists part(const IdLists& all, std::int64_t first, std::int64_t count) {
  IdLists some{.offsets = part(all.offsets, first, count + 1)};
  const std::int64_t begin = some.offsets.front(), ids = some.offsets.back() - begin;
  some.ids = part(all.ids, begin, ids);
  some.weights = part(all.weights, begin, ids);
  for (std::int64_t& offset : some.offsets) offset -= begin;
  return some;
}

}  // namespace

SampleBatch part_of(const SampleBatch& batch, std::int64_t first, std::int64_t count) {
  STRATA_CHECK(first >= 0 && count >= 0 && first + count <= batch.samples, "tabular.part_of");
  const std::int64_t width =
      batch.samples > 0 ? static_cast<std::int64_t>(batch.numeric.size()) / batch.samples : 0;
  SampleBatch some{.samples = count,
                   .numeric = part(batch.numeric, first * width, count * width),
                   .labels = part(batch.labels, first, count),
                   .groups = part(batch.groups, first, count)};
  for (const IdLists& lists : batch.categorical)
    some.categorical.push_back(part(lists, first, count));
  return some;
}

}  // namespace strata
