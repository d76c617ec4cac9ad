/// Holds what the ranks of a recommender's run share: its rows, and how it is evaluated.
///
/// Threads  made before the ranks; every rank calls evaluate() at the same time, and the other methods
///          for itself.
/// Errors   UserError: what check_planned_recommender(), servers and saved rows refuse.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strata/comm/group.h"
#include "strata/embed/local_servers.h"
#include "strata/embed/rows/shard_state.h"
#include "strata/train/embedded_rows.h"
#include "strata/train/recommender_findings.h"
#include "strata/train/rows_start.h"
#include "strata/train/run_data.h"
#include "strata/train/trainer.h"

namespace strata {

class RecommenderRun {
 public:
  RecommenderRun(const Recipe& recipe, StepPlan steps, const LogData& data, RowsStart start = {});

  /// For the rank that reads rows; null for others.
  std::unique_ptr<EmbeddedRows> rows_of(int rank);

  /// The mini-batch of a step, of which a rank has its own part alone. `rows`: of rows_of().
  MiniBatch mini_batch(std::int64_t step, std::int64_t samples_seen, int rank,
                       EmbeddedRows* rows) const;

  /// What ranks have read since they were asked last; the same on every rank.
  EmbeddingRecord exchange(EmbeddedRows* rows, Group& group) const;

  /// With the rows as the steps so far have left them. `rows`: of rows_of(). Each replica reads and scores
  /// its own part of the samples; the results are the same numbers on any mesh that gives the same scores.
  Evaluation evaluate(Trainer& trainer, EmbeddedRows* rows, Group& group) const;

  /// The same with one feature after the other permuted among the samples: what the net loses with it.
  /// Numeric features first, then categorical ones.
  std::vector<FeatureImportance> importance(Trainer& trainer, EmbeddedRows* rows,
                                            Group& group) const;

  /// By table, its `count` ids with the most updates, with their texts; after all ranks' await(). One rank asks.
  std::vector<HotTable> hot_ids(int count) const;

  bool has_local_rows() const { return recipe_.recommender->embedding.is_local(); }

  /// What each table holds now, on all shards; empty where a server does not answer. Any thread.
  std::vector<TableSize> sizes() const;

 private:
  SampleBatch part_of_mini_batch(std::int64_t samples_seen, int replica) const;

  void make_local_rows(const RowsStart& start);
  void name_hot_ids(std::vector<HotTable>& tables) const;

  // A feature that a sample has of another one.
  struct Permuted {
    bool numeric = true;
    std::size_t feature = 0;
  };
  std::int64_t validation_samples() const;
  SampleBatch validation_part(std::int64_t first, std::int64_t count,
                              const Permuted* permuted) const;
  Evaluation evaluate(Trainer& trainer, EmbeddedRows* rows, Group& group,
                      const Permuted* permuted) const;

  const Recipe& recipe_;
  RowsStart start_;
  const LogData& data_;
  StepPlan steps_;
  Mesh mesh_;
  int reading_stage_;  // the pipeline rank
  const WorkerOptions worker_;
  std::vector<std::shared_ptr<ShardState>> shards_;   // of local rows
  std::vector<std::unique_ptr<RowServers>> servers_;  // of local rows, by replica
};

}  // namespace strata
