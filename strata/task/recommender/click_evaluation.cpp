#include "strata/task/recommender/click_evaluation.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "strata/base/sampler.h"
#include "strata/device/device.h"
#include "strata/tabular/click_metrics.h"
#include "strata/train/step_sums.h"

namespace strata {
namespace {

constexpr std::uint64_t kPermutationKey = 0x696D706F7274;  // "import"

// The defined metrics; with an AUC that is not exact, also its error bound.
NamedMetrics named(const ClickQuality& quality) {
  NamedMetrics metrics;
  const auto add = [&](const char* name, double value) {
    if (!std::isnan(value)) metrics.emplace_back(name, value);
  };
  add("auc", quality.auc);
  if (quality.auc_error > 0) add("auc_error", quality.auc_error);
  add("grouped_auc", quality.grouped_auc);
  add("normalized_entropy", quality.normalized_entropy);
  add("calibration", quality.calibration);
  return metrics;
}

Evaluation evaluation_of(const ClickQuality& quality) {
  return {.loss = quality.log_loss, .metrics = named(quality)};
}

// The quality over the samples of all ranks, on every rank. Collective.
ClickQuality quality_of_all(Group& group, const ClickMetrics& mine) {
  const MessageTag tag = group.next_collective();
  ClickQuality found, all;
  if (group.rank() > 0) {
    const std::vector<std::byte> bytes = mine.encode();
    const at::Tensor message =
        at::empty({static_cast<std::int64_t>(bytes.size())}, host_options(at::kByte));
    std::memcpy(message.data_ptr(), bytes.data(), bytes.size());
    group.send(0, tag, message);
  } else {
    ClickMetrics merged = mine;
    for (int peer = 1; peer < group.size(); ++peer) {
      const at::Tensor message = group.receive(peer, tag);
      merged.merge(ClickMetrics::decode({static_cast<const std::byte*>(message.const_data_ptr()),
                                         static_cast<std::size_t>(message.numel())}));
    }
    found = merged.quality();
  }
  StepSums sums(group);
  sums.sum(found.samples, &all.samples);
  for (const auto metric :
       {&ClickQuality::auc, &ClickQuality::auc_error, &ClickQuality::grouped_auc,
        &ClickQuality::log_loss, &ClickQuality::normalized_entropy, &ClickQuality::calibration})
    sums.sum(found.*metric, &(all.*metric));
  sums.share();
  return all;
}

}  // namespace

ClickEvaluation::ClickEvaluation(const ClickData& data, const StepPlan& steps,
                                 const TrainOptions& train)
    : data_(data),
      train_(train),
      mesh_(steps.decisions().mesh),
      micro_batch_(steps.decisions().micro_batch) {}

// Which sample's feature a sample gets is a function of its number alone, so ranks need not
// communicate.
SampleBatch ClickEvaluation::validation_part(std::int64_t first, std::int64_t count,
                                             const Permuted* permuted) const {
  const TabularValidationLoader& loader = data_.tabular().validation;
  std::vector<std::int64_t> which(static_cast<std::size_t>(count));
  std::iota(which.begin(), which.end(), first);
  SampleBatch part = loader.read(which);
  if (permuted == nullptr) return part;
  const Permutation order(data_.validation_samples());
  for (std::int64_t& sample : which) sample = order.at(sample, kPermutationKey);
  SampleBatch others = loader.read(std::move(which));
  if (!permuted->numeric) {
    part.categorical[permuted->feature] = std::move(others.categorical[permuted->feature]);
    return part;
  }
  const std::size_t width = data_.tabular().preprocessing->options().numeric.size();
  for (std::size_t i = permuted->feature; i < part.numeric.size(); i += width)
    part.numeric[i] = others.numeric[i];
  return part;
}

Evaluation ClickEvaluation::evaluate(Trainer& trainer, EmbeddedRows* rows, Group& group,
                                     const Permuted* permuted) const {
  const std::int64_t samples = data_.validation_samples();
  const std::int64_t mini_batch = train_.mini_batch;
  const int replica = mesh_.place(group.rank())[Axis::kData];
  ClickMetrics clicks;
  for (std::int64_t first = 0; first < samples; first += mini_batch) {
    const std::int64_t count = std::min(mini_batch, samples - first);
    const SampleRange mine = replica_samples(count, replica, mesh_[Axis::kData], micro_batch_);
    SampleBatch part = validation_part(first + mine.first, mine.samples, permuted);
    const MiniBatch batch = data_.tensors_of(part, mine.first, count);
    const std::vector<float> labels = part.labels;
    const std::vector<std::uint64_t> groups = part.groups;
    if (rows) rows->evaluate(trainer.steps_done(), std::move(part));
    const ReplicaScores scores = trainer.score(batch);
    if (!scores.values.empty()) clicks.add(scores.values, labels, groups);
  }
  return evaluation_of(quality_of_all(group, clicks));
}

std::vector<FeatureImportance> ClickEvaluation::importance(Trainer& trainer, EmbeddedRows* rows,
                                                           Group& group) const {
  const TabularOptions& features = data_.tabular().preprocessing->options();
  std::vector<FeatureImportance> all;
  for (std::size_t i = 0; i < features.numeric.size(); ++i) {
    const Permuted permuted{.numeric = true, .feature = i};
    all.push_back({features.numeric[i].name, evaluate(trainer, rows, group, &permuted)});
  }
  for (std::size_t i = 0; i < features.categorical.size(); ++i) {
    const Permuted permuted{.numeric = false, .feature = i};
    all.push_back({features.categorical[i].name, evaluate(trainer, rows, group, &permuted)});
  }
  return all;
}

}  // namespace strata
