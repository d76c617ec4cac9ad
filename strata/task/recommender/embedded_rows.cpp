#include "strata/task/recommender/embedded_rows.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"

namespace strata {

EmbeddedRows::EmbeddedRows(WorkerOptions options, std::unique_ptr<RowServers> servers,
                           SampleOrder order, RowsAheadOptions ahead)
    : order_(std::move(order)),
      ahead_(std::move(ahead)),
      servers_(std::move(servers)),
      worker_(std::move(options), *servers_,
              [this](std::int64_t step) { return part_of_step(step); }) {}

void EmbeddedRows::begin(std::int64_t step, std::int64_t samples_seen) {
  seen_at_ = {{step, samples_seen}};
  worker_.begin(step, ahead_.load(step));
}

void EmbeddedRows::save(std::int64_t version) {
  worker_.save(version);
  ahead_.save(version, worker_.rows_ahead(version));
}

// A step begins at the sample after the previous step's last; callers request steps in order.
SampleBatch EmbeddedRows::part_of_step(std::int64_t step) {
  auto known = std::prev(seen_at_.upper_bound(step));
  while (known->first < step)
    known = seen_at_.emplace(known->first + 1, order_.seen_after(known->second)).first;
  seen_at_.erase(seen_at_.begin(), known);
  return order_.part(known->second);
}

void EmbeddedRows::fetch(std::int64_t step, bool training, const at::Tensor& rows) {
  const std::span<float> all(rows.mutable_data_ptr<float>(),
                             static_cast<std::size_t>(rows.numel()));
  samples_ = training ? worker_.samples(step)->samples : evaluated_.samples;
  const auto without_padding = all.first(static_cast<std::size_t>(samples_ * width()));
  std::ranges::fill(all.subspan(without_padding.size()), 0.0f);
  if (training) return worker_.fetch(step, without_padding);
  worker_.read(evaluated_version_, evaluated_, without_padding);
}

void EmbeddedRows::send_gradients(std::int64_t step, const at::Tensor& gradients) {
  STRATA_CHECK(gradients.is_contiguous() && gradients.is_cpu(), "train.embedded_rows");
  const float* values = gradients.const_data_ptr<float>();
  worker_.send_gradients(step, {values, values + samples_ * width()});
}

void EmbeddedRows::evaluate(std::int64_t version, SampleBatch part) {
  evaluated_version_ = version;
  evaluated_ = std::move(part);
}

}  // namespace strata
