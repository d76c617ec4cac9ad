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

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
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

SampleBatch join(std::span<const SampleBatch* const> batches) {
  SampleBatch all = *batches.front();
  for (const SampleBatch* batch : batches.subspan(1)) {
    STRATA_CHECK_EQ(batch->categorical.size(), all.categorical.size(), "tabular.join");
    all.samples += batch->samples;
    append(all.numeric, batch->numeric);
    append(all.labels, batch->labels);
    append(all.groups, batch->groups);
    for (std::size_t i = 0; i < all.categorical.size(); ++i) {
      IdLists& lists = all.categorical[i];
      const IdLists& more = batch->categorical[i];
      const std::int64_t before = lists.offsets.back();
      for (std::size_t sample = 1; sample < more.offsets.size(); ++sample)
        lists.offsets.push_back(before + more.offsets[sample]);
      append(lists.ids, more.ids);
      append(lists.weights, more.weights);
    }
  }
  return all;
}

}  // namespace strata
