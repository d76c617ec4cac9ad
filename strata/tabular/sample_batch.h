/// Carries samples of logs as plain arrays: numbers, labels, and lists of ids by feature.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata {

/// The ids of one feature: those of sample s are ids[offsets[s], offsets[s + 1]), possibly none.
struct IdLists {
  std::vector<std::int64_t> offsets = {0};  ///< samples + 1 of them
  std::vector<std::uint64_t> ids;
  std::vector<float> weights;  ///< parallel to ids; empty: all weights are 1
  std::int64_t samples() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
};

struct SampleBatch {
  std::int64_t samples = 0;
  std::vector<float> numeric;         ///< [samples, numeric features], as models read them
  std::vector<float> labels;          ///< [samples], 0 or 1
  std::vector<IdLists> categorical;   ///< by feature
  std::vector<std::uint64_t> groups;  ///< [samples]: the group that AUC is averaged over; or empty
};

/// Samples [first, first + count) of the batch.
SampleBatch part_of(const SampleBatch& batch, std::int64_t first, std::int64_t count);

/// The samples of all batches, which have the same features, in their order; at least one batch.
SampleBatch join(std::span<const SampleBatch* const> batches);

}  // namespace strata
