/// Evaluates a recommender on its validation samples, unchanged or with one feature permuted among
/// them.
/// Each replica reads and scores its own part of the samples. The results are the same on every
/// mesh with the same scores.
///
/// Threads  collective: all ranks call the same methods in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "strata/comm/group.h"
#include "strata/task/recommender/click_data.h"
#include "strata/task/recommender/embedded_rows.h"
#include "strata/task/recommender/inspection.h"
#include "strata/train/trainer.h"

namespace strata {

class ClickEvaluation {
 public:
  /// A feature whose values are permuted: a sample gets another sample's value.
  struct Permuted {
    bool numeric = true;
    std::size_t feature = 0;
  };

  ClickEvaluation(const ClickData& data, const StepPlan& steps, const TrainOptions& train);

  /// Uses the embeddings after the steps so far. `rows`: null on ranks that read none.
  Evaluation evaluate(Trainer& trainer, EmbeddedRows* rows, Group& group,
                      const Permuted* permuted = nullptr) const;

  /// The loss of quality without each feature: numeric features first, then categorical ones.
  std::vector<FeatureImportance> importance(Trainer& trainer, EmbeddedRows* rows,
                                            Group& group) const;

 private:
  SampleBatch validation_part(std::int64_t first, std::int64_t count,
                              const Permuted* permuted) const;

  const ClickData& data_;
  TrainOptions train_;
  Mesh mesh_;
  std::int64_t micro_batch_;
};

}  // namespace strata
