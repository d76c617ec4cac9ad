#include "strata/task/mean_loss_run.h"

#include <numeric>
#include <vector>

#include "strata/device/account.h"
#include "strata/train/step_sums.h"

namespace strata {
namespace {

class MeanLossRank final : public TaskRank {
 public:
  MeanLossRank(const TaskData& data, const std::string& score) : data_(data), score_(score) {}

  MiniBatch mini_batch(std::int64_t, std::int64_t samples_seen) override {
    return data_.at(samples_seen);
  }

  Evaluation evaluate(Trainer& trainer, Group& group) override {
    if (validation_.empty() || data_.validation_changes()) {
      // The host keeps these batches; the device holds one micro-batch of them at a time.
      const UnchargedScope uncharged;
      validation_ = data_.validation();
    }
    if (!score_.empty()) return scored(trainer, group);
    return {.loss = trainer.evaluate(validation_), .metrics = {}};
  }

 private:
  // The last stage of each replica has its scores.
  Evaluation scored(Trainer& trainer, Group& group) {
    double losses = 0, valid = 0, mine = 0, all = 0;
    for (const MiniBatch& batch : validation_) {
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
    return {.loss = losses / valid, .metrics = {{score_, all / valid}}};
  }

  const TaskData& data_;
  const std::string& score_;
  std::vector<MiniBatch> validation_;
};

}  // namespace

int validation_shapes(const TrainOptions& options) {
  const std::int64_t samples = options.validation_samples, whole = options.mini_batch;
  return samples == 0 ? 2 : (samples >= whole ? 1 : 0) + (samples % whole > 0 ? 1 : 0);
}

std::unique_ptr<TaskRank> MeanLossRun::rank(Group&) {
  return std::make_unique<MeanLossRank>(data_, score_);
}

}  // namespace strata
