#include "strata/task/mean_loss_run.h"

#include <vector>

#include "strata/device/account.h"

namespace strata {
namespace {

class MeanLossRank final : public TaskRank {
 public:
  explicit MeanLossRank(const TaskData& data) : data_(data) {}

  MiniBatch mini_batch(std::int64_t, std::int64_t samples_seen) override {
    return data_.at(samples_seen);
  }

  Evaluation evaluate(Trainer& trainer, Group&) override {
    if (validation_.empty()) {
      // The host keeps these batches; the device holds one micro-batch of them at a time.
      const UnchargedScope uncharged;
      validation_ = data_.validation();
    }
    return {.loss = trainer.evaluate(validation_), .metrics = {}};
  }

 private:
  const TaskData& data_;
  std::vector<MiniBatch> validation_;
};

}  // namespace

std::unique_ptr<TaskRank> MeanLossRun::rank(Group&) {
  return std::make_unique<MeanLossRank>(data_);
}

}  // namespace strata
