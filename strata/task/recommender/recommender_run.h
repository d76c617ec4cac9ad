/// Feeds a run with the samples of logs and the embeddings of their ids.
///
/// Threads  a RecommenderRun is made before the ranks; each rank makes and uses its own part.
/// Errors   UserError: what check_planned_recommender(), servers and saved rows refuse.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strata/rowserver/local_servers.h"
#include "strata/rowserver/rows/shard_state.h"
#include "strata/task/recommender/click_data.h"
#include "strata/task/recommender/click_evaluation.h"
#include "strata/task/recommender/embedded_rows.h"
#include "strata/task/recommender/inspection.h"
#include "strata/task/recommender/rows_start.h"
#include "strata/task/task_run.h"

namespace strata {

class RecommenderRun final : public TaskRun {
 public:
  RecommenderRun(const RecommenderFields& fields, const Recipe& recipe, const StepPlan& steps,
                 const ClickData& data, RowsStart start = {});

  std::unique_ptr<TaskRank> rank(Group& group) override;
  std::vector<TableSize> table_sizes() const override;
  void checkpoint_complete(const std::string& checkpoint_folder) override;

  /// The rows for a rank that reads them; null for others.
  std::unique_ptr<EmbeddedRows> rows_of(int rank);

  /// The mini-batch of a step, with the samples of the rank's replica only. `rows`: from rows_of().
  MiniBatch mini_batch(std::int64_t step, std::int64_t samples_seen, int rank,
                       EmbeddedRows* rows) const;

  /// For each table the `count` ids with the most updates, with their texts; call it after all
  /// ranks' await().
  std::vector<HotTable> hot_ids(int count) const;

  /// Updates that the net's gradients wait for: as many as rows may lack; 0: they do not wait.
  int gradient_delay() const;
  bool has_local_rows() const { return fields_.embedding.is_local(); }
  const WorkerOptions& worker() const { return worker_; }
  const ClickEvaluation& evaluation() const { return evaluation_; }

 private:
  SampleBatch part_of_mini_batch(std::int64_t samples_seen, int replica) const;
  void make_local_rows(const RowsStart& start);
  void name_hot_ids(std::vector<HotTable>& tables) const;

  const RecommenderFields& fields_;
  const Recipe& recipe_;
  RowsStart start_;
  const ClickData& data_;
  Mesh mesh_;
  std::int64_t micro_batch_;
  int reading_stage_;  // pipeline rank that reads embeddings
  const WorkerOptions worker_;
  ClickEvaluation evaluation_;
  std::vector<std::shared_ptr<ShardState>> shards_;   // for local rows
  std::vector<std::unique_ptr<RowServers>> servers_;  // for local rows, by replica
};

}  // namespace strata
