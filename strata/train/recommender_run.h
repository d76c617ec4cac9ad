/// Holds what the ranks of a recommender's run share: its rows, and how it is evaluated.
///
/// Threads  made before the ranks; every rank calls evaluate() at the same time, and the other methods
///          for itself.
/// Errors   UserError: local rows where the run has several processes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strata/comm/group.h"
#include "strata/embed/local_servers.h"
#include "strata/report/metrics.h"
#include "strata/train/embedded_rows.h"
#include "strata/train/run_data.h"
#include "strata/train/trainer.h"

namespace strata {

/// What the validation samples say, the same on every rank.
struct Evaluation {
  double loss = 0;  ///< mean, nats a sample
  NamedMetrics metrics;
};

class RecommenderRun {
 public:
  RecommenderRun(const Recipe& recipe, StepPlan steps, const LogData& data, int processes = 1);

  /// For the rank that reads rows; null for others.
  std::unique_ptr<EmbeddedRows> rows_of(int rank);

  bool validates() const { return data_.tabular().validation.samples() > 0; }

  /// What ranks have read since they were asked last; the same on every rank.
  EmbeddingRecord exchange(EmbeddedRows* rows, Group& group) const;

  /// With the rows as the steps so far have left them. `rows`: of rows_of().
  Evaluation evaluate(Trainer& trainer, EmbeddedRows* rows, Group& group) const;

 private:
  SampleBatch part_of_mini_batch(std::int64_t samples_seen, int replica) const;

  const Recipe& recipe_;
  const LogData& data_;
  StepPlan steps_;
  Mesh mesh_;
  int reading_stage_;                                 // the pipeline rank
  std::vector<std::unique_ptr<RowServers>> servers_;  // by replica
};

}  // namespace strata
