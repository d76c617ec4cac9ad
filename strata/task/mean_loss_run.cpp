#include "strata/task/mean_loss_run.h"

#include <cstdint>
#include <exception>
#include <mutex>
#include <numeric>
#include <vector>

#include "strata/device/account.h"
#include "strata/device/thread_pool.h"
#include "strata/train/step_sums.h"

namespace strata {
namespace {

class MeanLossRank final : public TaskRank {
 public:
  explicit MeanLossRank(MeanLossRun& run) : run_(run) {}

  MiniBatch mini_batch(std::int64_t step, std::int64_t samples_seen) override {
    return run_.mini_batch(step, samples_seen);
  }

  Evaluation evaluate(Trainer& trainer, Group& group) override {
    const std::vector<MiniBatch> batches = run_.validation();
    if (!run_.score().empty()) return scored(trainer, group, batches);
    return {.loss = trainer.evaluate(batches), .metrics = {}};
  }

 private:
  // The last stage of each replica has its scores.
  Evaluation scored(Trainer& trainer, Group& group, const std::vector<MiniBatch>& batches) {
    double losses = 0, valid = 0, mine = 0, all = 0;
    for (const MiniBatch& batch : batches) {
      if (batch.valid_tokens == 0) continue;
      const ReplicaScores scores = trainer.score(batch);
      const auto count = static_cast<double>(batch.valid_tokens);
      losses += scores.loss * count;
      valid += count;
      mine = std::accumulate(scores.values.begin(), scores.values.end(), mine);
    }
    StepSums sums(group);
    sums.sum(mine, &all);
    sums.share();
    return {.loss = losses / valid, .metrics = {{run_.score(), all / valid}}};
  }

  MeanLossRun& run_;
};

}  // namespace

int validation_shapes(const TrainOptions& options) {
  const std::int64_t samples = options.validation_samples, whole = options.mini_batch;
  return samples == 0 ? 2 : (samples >= whole ? 1 : 0) + (samples % whole > 0 ? 1 : 0);
}

std::unique_ptr<TaskRank> MeanLossRun::rank(Group&) {
  std::call_once(reads_ahead_, [&] {
    if (!data_.is_read_ahead()) return;
    ahead_.emplace(MiniBatchSource{[&](std::int64_t seen) { return data_.at(seen); },
                                   [&](std::int64_t seen) { return data_.seen_after(seen); }},
                   thread_pool().threads());
  });
  return std::make_unique<MeanLossRank>(*this);
}

MiniBatch MeanLossRun::mini_batch(std::int64_t step, std::int64_t samples_seen) {
  return ahead_ ? ahead_->at(samples_seen, step + 1 >= data_.steps()) : data_.at(samples_seen);
}

std::vector<MiniBatch> MeanLossRun::validation() {
  // The host keeps these batches; the device holds one micro-batch of them at a time.
  const UnchargedScope uncharged;
  if (data_.validation_changes()) return data_.validation();
  std::call_once(reads_validation_, [&] {
    try {
      validation_ = data_.validation();
    } catch (...) {
      validation_error_ = std::current_exception();
    }
  });
  if (validation_error_) std::rethrow_exception(validation_error_);
  return validation_;
}

}  // namespace strata
