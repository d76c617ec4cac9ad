#include "strata/task/recommender/recommender_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "strata/base/errors.h"
#include "strata/embed/saved_rows.h"
#include "strata/rowserver/rows/row_table_state.h"
#include "strata/rowserver/wire/grpc_inspection.h"
#include "strata/rowserver/wire/remote_servers.h"
#include "strata/tabular/id_texts.h"
#include "strata/task/recommender/abandoned_runs.h"
#include "strata/task/recommender/delayed_gradients.h"
#include "strata/task/recommender/recommender_limits.h"
#include "strata/task/recommender/rows_cost.h"

namespace strata {
namespace {

constexpr double kAnswerSeconds = 60;

class RecommenderRank final : public TaskRank {
 public:
  RecommenderRank(RecommenderRun& run, int rank)
      : run_(run), rank_(rank), rows_(run.rows_of(rank)) {
    if (run.gradient_delay() > 0) delayed_.emplace(run.gradient_delay());
  }

  BatchRows* rows() override { return rows_.get(); }
  GradientFilter* gradient_filter() override { return delayed_ ? &*delayed_ : nullptr; }

  void begin(const TrainingPosition& position) override {
    if (rows_) rows_->begin(position.steps_done, position.samples_seen);
  }

  MiniBatch mini_batch(std::int64_t step, std::int64_t samples_seen) override {
    return run_.mini_batch(step, samples_seen, rank_, rows_.get());
  }

  void add_statistics(StepSums& sums, StepRecord& record) override {
    const EmbeddedRows::Use use = rows_ ? rows_->take_use() : EmbeddedRows::Use{};
    EmbeddingRecord& embedding = record.embedding.emplace();
    sums.largest(use.wait_seconds, &embedding.wait_seconds);
    const WorkerOptions& worker = run_.worker();
    embedding.staleness.resize(worker.tables.size());
    for (std::size_t table = 0; table < worker.tables.size(); ++table) {
      auto& [name, rows_by_lag] = embedding.staleness[table];
      name = worker.tables[table].name;
      rows_by_lag.resize(static_cast<std::size_t>(worker.staleness[table]));
      for (std::size_t lag = 0; lag < rows_by_lag.size(); ++lag)
        sums.sum(use.lacked.empty() ? std::int64_t{0} : use.lacked[table][lag], &rows_by_lag[lag]);
    }
  }

  void complete_record(StepRecord& record, bool waits) override {
    // servers are queried only when the run waits anyway
    if (!run_.has_local_rows() && !waits) return;
    if (const std::vector<TableSize> tables = run_.table_sizes(); !tables.empty())
      record.embedding->size = sum_of(tables);
  }

  Evaluation evaluate(Trainer& trainer, Group& group) override {
    return run_.evaluation().evaluate(trainer, rows_.get(), group);
  }

  void save(std::int64_t steps_done, Group& group) override {
    if (rows_) rows_->save(steps_done);
    group.barrier();  // a checkpoint is complete only with the rows of all ranks
  }

  Inspection inspect(Trainer& trainer, Group& group, const InspectionRequest& request,
                     const Evaluation& evaluation) override {
    RecommenderInspection found{.steps = trainer.steps_done(), .evaluation = evaluation};
    if (request.importance) {
      group.report_progress("feature importance");
      found.importance = run_.evaluation().importance(trainer, rows_.get(), group);
    }
    const int hot_ids = request.hot_ids > 0 ? request.hot_ids : request.report ? kReportHotIds : 0;
    if (hot_ids > 0) {
      group.report_progress("hot ids");
      if (rows_) rows_->await(trainer.steps_done());
      group.barrier();
      if (group.rank() == 0) found.hot = run_.hot_ids(hot_ids);
    }
    return inspection_of(found, /*hot_ids_in_report_alone=*/request.hot_ids == 0);
  }

 private:
  static constexpr int kReportHotIds = 10;  // per table

  RecommenderRun& run_;
  int rank_;
  std::unique_ptr<EmbeddedRows> rows_;  // null: this rank reads none
  std::optional<DelayedGradients> delayed_;
};

}  // namespace

RecommenderRun::RecommenderRun(const RecommenderFields& fields, const Recipe& recipe,
                               const StepPlan& steps, const ClickData& data, RowsStart start)
    : fields_(fields),
      recipe_(recipe),
      start_(std::move(start)),
      data_(data),
      mesh_(steps.decisions().mesh),
      micro_batch_(steps.decisions().micro_batch),
      reading_stage_(steps.pipeline_rank(steps.dataflow().rows_layer)),
      worker_(worker_options(fields, recipe.threads_per_rank())),
      evaluation_(data, steps, recipe.train) {
  check_planned_recommender(fields, steps.decisions(), start_.processes);
  if (has_local_rows()) make_local_rows(start_);
}

int RecommenderRun::gradient_delay() const {
  if (fields_.embedding.mode != EmbeddingMode::kAsynchronous) return 0;
  return static_cast<int>(fields_.embedding.rows.staleness) - 1;
}

std::unique_ptr<TaskRank> RecommenderRun::rank(Group& group) {
  return std::make_unique<RecommenderRank>(*this, group.rank());
}

void RecommenderRun::checkpoint_complete(const std::string& checkpoint_folder) {
  forget_runs(checkpoint_folder);
}

void RecommenderRun::make_local_rows(const RowsStart& start) {
  const EmbeddingOptions& embedding = fields_.embedding;
  const auto seed = static_cast<std::uint64_t>(recipe_.train.seed);
  const std::uint64_t fingerprint = fingerprint_of(worker_.tables, seed);
  const int shards = static_cast<int>(embedding.shards);
  std::vector<std::shared_ptr<RowStore>> stores;
  for (int shard = 0; shard < shards; ++shard) {
    const std::string cold =
        embedding.cold.empty() ? "" : embedding.cold + "/shard-" + std::to_string(shard);
    shards_.push_back(make_row_table_state(
        worker_.tables, {.seed = seed, .memory_bytes = embedding.memory.count, .cold = cold}));
    if (start.version > 0) {
      SavedRows(saved_rows_folder(fields_, start.resume), fingerprint, 0)
          .load(start.version, shard, shards, *shards_.back());
    }
    stores.push_back({shards_.back(), &shards_.back()->rows()});
  }
  LocalServersOptions options{.ranks = mesh_[Axis::kData],
                              .threads = local_row_threads(recipe_),
                              .wire = embedding.wire,
                              .version = start.version};
  const std::string& checkpoints = recipe_.train.checkpoint_folder;
  const std::string folder =
      checkpoints.empty() ? embedding.folder : saved_rows_folder(fields_, checkpoints);
  if (!folder.empty())
    options.save = [this, shards,
                    saved = SavedRows(folder, fingerprint, recipe_.train.keep_checkpoints)](
                       int shard, std::int64_t version) {
      saved.save(version, shard, shards, *shards_[static_cast<std::size_t>(shard)]);
    };
  servers_ = make_local_servers(std::move(stores), options);
}

SampleBatch RecommenderRun::part_of_mini_batch(std::int64_t samples_seen, int replica) const {
  const std::int64_t mini_batch = recipe_.train.mini_batch;
  const TabularLoader& loader = data_.tabular().train;
  const SampleRange part = replica_samples(loader.size(samples_seen, mini_batch), replica,
                                           mesh_[Axis::kData], micro_batch_);
  return loader.at(samples_seen, mini_batch, part.first, part.samples);
}

std::unique_ptr<EmbeddedRows> RecommenderRun::rows_of(int rank) {
  const MeshPlace place = mesh_.place(rank);
  if (place[Axis::kPipeline] != reading_stage_) return nullptr;
  const EmbeddingOptions& embedding = fields_.embedding;
  std::unique_ptr<RowServers> servers =
      embedding.is_local()
          ? std::move(servers_[static_cast<std::size_t>(place[Axis::kData])])
          : make_remote_servers({.addresses = embedding.servers,
                                 .features = worker_.tables,
                                 .seed = static_cast<std::uint64_t>(recipe_.train.seed),
                                 .rank = place[Axis::kData],
                                 .ranks = mesh_[Axis::kData],
                                 .run = start_.run,
                                 .follows = start_.follows,
                                 .holder = start_.holder,
                                 .version = start_.version,
                                 .abandoned = start_.abandoned,
                                 .wire = embedding.wire,
                                 .access = access_from_environment(),
                                 .notice = place[Axis::kData] == 0 ? start_.notice : nullptr,
                                 .stop = start_.stop});
  const std::string& checkpoints = recipe_.train.checkpoint_folder;
  const bool stale =
      std::ranges::any_of(worker_.staleness, [](int staleness) { return staleness > 1; });
  const bool resumes = start_.version > 0 && start_.version < recipe_.train.steps;
  RowsAheadOptions ahead{
      .from =
          stale && resumes && !embedding.reread ? saved_rows_folder(fields_, start_.resume) : "",
      .to = checkpoints.empty() ? "" : saved_rows_folder(fields_, checkpoints),
      .fingerprint = fingerprint_of(worker_.tables, static_cast<std::uint64_t>(recipe_.train.seed)),
      .rank = place[Axis::kData],
      .ranks = mesh_[Axis::kData],
      .keep = recipe_.train.keep_checkpoints,
      .tables = worker_.tables};
  return std::make_unique<EmbeddedRows>(
      worker_, std::move(servers),
      SampleOrder{.seen_after = [this](std::int64_t seen) { return data_.seen_after(seen); },
                  .part = [this, replica = place[Axis::kData]](
                              std::int64_t seen) { return part_of_mini_batch(seen, replica); }},
      std::move(ahead));
}

MiniBatch RecommenderRun::mini_batch(std::int64_t step, std::int64_t samples_seen, int rank,
                                     EmbeddedRows* rows) const {
  const std::int64_t mini_batch = recipe_.train.mini_batch;
  const std::int64_t samples = data_.tabular().train.size(samples_seen, mini_batch);
  const int replica = mesh_.place(rank)[Axis::kData];
  const std::int64_t first =
      replica_samples(samples, replica, mesh_[Axis::kData], micro_batch_).first;
  if (rows) return data_.tensors_of(*rows->samples(step), first, samples);
  return data_.tensors_of(part_of_mini_batch(samples_seen, replica), first, samples);
}

std::vector<HotTable> RecommenderRun::hot_ids(int count) const {
  std::vector<HotTable> all;
  for (int table = 0; table < static_cast<int>(worker_.tables.size()); ++table) {
    HotTable& hot = all.emplace_back(
        HotTable{worker_.tables[static_cast<std::size_t>(table)].name, HotRows(count)});
    for (const auto& shard : shards_) hot.rows.add(shard->hottest(table, count));
    if (has_local_rows()) continue;
    for (const std::string& server : fields_.embedding.servers)
      hot.rows.add(remote_inspection(server, access_from_environment(), {.seconds = kAnswerSeconds})
                       ->hot(hot.table, count));
  }
  name_hot_ids(all);
  return all;
}

// Several features of a shared table may have a text for the same id.
void RecommenderRun::name_hot_ids(std::vector<HotTable>& tables) const {
  std::vector<std::vector<HotId>> ids;
  for (HotTable& hot : tables) {
    ids.push_back(hot.rows.ids());
    hot.texts.resize(ids.back().size());
  }
  const Preprocessing& preprocessing = *data_.tabular().preprocessing;
  std::vector<std::vector<std::uint64_t>> wanted(worker_.features.size());
  for (std::size_t feature = 0; feature < wanted.size(); ++feature)
    for (const HotId& id : ids[static_cast<std::size_t>(worker_.features[feature].table)])
      wanted[feature].push_back(id.id);
  const std::vector<IdTexts> texts =
      texts_of_ids(data_.tabular().train.reader(), preprocessing, wanted);
  for (std::size_t feature = 0; feature < wanted.size(); ++feature) {
    const auto table = static_cast<std::size_t>(worker_.features[feature].table);
    for (std::size_t i = 0; i < ids[table].size(); ++i) {
      const auto found = texts[feature].find(ids[table][i].id);
      if (found == texts[feature].end()) continue;
      std::string& text = tables[table].texts[i];
      if (text == found->second) continue;
      text += (text.empty() ? "" : " / ") + found->second;
    }
  }
  for (HotTable& hot : tables)
    if (std::ranges::all_of(hot.texts, &std::string::empty)) hot.texts.clear();
}

std::vector<TableSize> RecommenderRun::table_sizes() const {
  std::vector<TableSize> tables;
  for (const FeatureSpec& table : worker_.tables) tables.push_back({table.name, {}});
  const auto add = [&](std::size_t table, const FeatureCounts& counts) {
    tables[table].size +=
        {.rows = counts.rows,
         .bytes = counts.bytes,
         .cold_rows = counts.cold_rows,
         .cold_bytes = counts.cold_bytes,
         .parameters = (counts.rows + counts.cold_rows) * worker_.tables[table].width};
  };
  for (const auto& shard : shards_) {
    const std::vector<FeatureCounts> counts = shard->counts();
    for (std::size_t i = 0; i < counts.size(); ++i) add(i, counts[i]);
  }
  if (has_local_rows()) return tables;
  try {
    for (const std::string& server : fields_.embedding.servers) {
      const std::vector<TableCounts> counts =
          remote_inspection(server, access_from_environment(), {.seconds = kAnswerSeconds})
              ->sizes();
      for (std::size_t i = 0; i < tables.size(); ++i) add(i, counts.at(i).counts);
    }
  } catch (const SystemError&) {
    return {};  // training waits for the server; a missing size must not end it
  }
  return tables;
}

}  // namespace strata
