#include "strata/train/recommender_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "strata/base/errors.h"
#include "strata/checkpoint/folder.h"
#include "strata/embed/remote_servers.h"
#include "strata/embed/row_table_state.h"
#include "strata/embed/saved_rows.h"
#include "strata/embed/wire_messages.h"
#include "strata/tabular/click_metrics.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// Beside the checkpoints of the folder, or of the one that holds this checkpoint.
std::string rows_beside(const std::string& checkpoints) {
  const fs::path path = fs::path(checkpoints).lexically_normal();
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  return (step_of_folder_name(folder.filename()) ? folder.parent_path() : folder) / "rows";
}

// What the samples define; an AUC that isn't exact says by how much.
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

}  // namespace

RecommenderRun::RecommenderRun(const Recipe& recipe, StepPlan steps, const LogData& data,
                               RowsStart start)
    : recipe_(recipe),
      start_(std::move(start)),
      data_(data),
      steps_(std::move(steps)),
      mesh_(steps_.decisions().mesh),
      reading_stage_(steps_.pipeline_rank(steps_.dataflow().rows_layer)),
      tables_(worker_options(*recipe.recommender).tables) {
  const EmbeddingOptions& embedding = recipe.recommender->embedding;
  const bool offloads = !steps_.decisions().tiers.layers.empty();
  if (offloads && embedding.mode == EmbeddingMode::kAsynchronous)
    throw UserError({.operation = "train.embedding",
                     .where = "embedding.mode",
                     .what = "gradients of an asynchronous net stay on the device",
                     .expected = "a net that fits in memory.device",
                     .got = "one of which something lives on the host",
                     .fix = "set memory.device to more, or embedding.mode=hybrid"});
  if (!recipe.memory.disk.path.empty())
    throw UserError(
        {.operation = "train.embedding",
         .where = "memory.disk.path",
         .what = "a recommender's net does not live on a disk: commits there have no rows",
         .expected = "device or host memory",
         .got = recipe.memory.disk.path,
         .fix = "remove memory.disk; embedding.cold is the disk of rows"});
  if (!embedding.is_local()) return;
  if (start_.processes > 1)
    throw UserError({.operation = "train.embedding",
                     .where = "embedding.servers",
                     .what = "local rows live in one process, and the run has several",
                     .expected = "addresses of servers",
                     .got = "local",
                     .fix = "start servers and name them, or run all ranks in one process"});
  make_local_rows(start_);
}

void RecommenderRun::make_local_rows(const RowsStart& start) {
  const EmbeddingOptions& embedding = recipe_.recommender->embedding;
  const auto seed = static_cast<std::uint64_t>(recipe_.train.seed);
  const std::uint64_t fingerprint = fingerprint_of(tables_, seed);
  const int shards = static_cast<int>(embedding.shards);
  std::vector<std::shared_ptr<RowStore>> stores;
  for (int shard = 0; shard < shards; ++shard) {
    const std::string cold =
        embedding.cold.empty() ? "" : embedding.cold + "/shard-" + std::to_string(shard);
    shards_.push_back(make_row_table_state(
        tables_, {.seed = seed, .memory_bytes = embedding.memory.count, .cold = cold}));
    if (start.version > 0) {
      const std::string folder =
          embedding.folder.empty() ? rows_beside(start.resume) : embedding.folder;
      SavedRows(folder, fingerprint, 0).load(start.version, shard, shards, *shards_.back());
    }
    stores.push_back({shards_.back(), &shards_.back()->rows()});
  }
  LocalServersOptions options{.ranks = mesh_.dp, .wire = embedding.wire, .version = start.version};
  const std::string& checkpoints = recipe_.train.checkpoint_folder;
  const std::string folder = embedding.folder.empty() && !checkpoints.empty()
                                 ? rows_beside(checkpoints)
                                 : embedding.folder;
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
  const SampleRange part = replica_samples(loader.size(samples_seen, mini_batch), replica, mesh_.dp,
                                           steps_.decisions().micro_batch);
  return loader.at(samples_seen, mini_batch, part.first, part.samples);
}

std::unique_ptr<EmbeddedRows> RecommenderRun::rows_of(int rank) {
  const MeshPlace place = mesh_.place(rank);
  if (place.pp != reading_stage_) return nullptr;
  const EmbeddingOptions& embedding = recipe_.recommender->embedding;
  std::unique_ptr<RowServers> servers =
      embedding.is_local()
          ? std::move(servers_[static_cast<std::size_t>(place.dp)])
          : make_remote_servers({.addresses = embedding.servers,
                                 .features = tables_,
                                 .seed = static_cast<std::uint64_t>(recipe_.train.seed),
                                 .rank = place.dp,
                                 .ranks = mesh_.dp,
                                 .run = start_.run,
                                 .version = start_.version,
                                 .wire = embedding.wire,
                                 .tls = tls_from_environment()});
  return std::make_unique<EmbeddedRows>(
      worker_options(*recipe_.recommender), std::move(servers),
      SampleOrder{.seen_after = [this](std::int64_t seen) { return data_.seen_after(seen); },
                  .part = [this, replica = place.dp](
                              std::int64_t seen) { return part_of_mini_batch(seen, replica); }});
}

MiniBatch RecommenderRun::mini_batch(std::int64_t step, std::int64_t samples_seen, int rank,
                                     EmbeddedRows* rows) const {
  const std::int64_t mini_batch = recipe_.train.mini_batch;
  const std::int64_t samples = data_.tabular().train.size(samples_seen, mini_batch);
  const int replica = mesh_.place(rank).dp;
  const std::int64_t first =
      replica_samples(samples, replica, mesh_.dp, steps_.decisions().micro_batch).first;
  if (rows) return data_.tensors_of(*rows->samples(step), first, samples);
  return data_.tensors_of(part_of_mini_batch(samples_seen, replica), first, samples);
}

EmbeddingRecord RecommenderRun::exchange(EmbeddedRows* rows, Group& group) const {
  const WorkerOptions worker = worker_options(*recipe_.recommender);
  std::size_t size = static_cast<std::size_t>(group.size());
  for (const int staleness : worker.staleness) size += static_cast<std::size_t>(staleness);
  std::vector<double> numbers(size, 0.0);  // waits by rank, then counts table by table
  if (rows) {
    const EmbeddedRows::Use use = rows->take_use();
    numbers[static_cast<std::size_t>(group.rank())] = use.wait_seconds;
    auto number = numbers.begin() + group.size();
    for (std::size_t table = 0; table < use.lacked.size(); ++table) {
      std::ranges::copy(use.lacked[table], number);
      number += worker.staleness[table];
    }
  }
  group.all_reduce(numbers);
  const auto counts = numbers.begin() + group.size();
  EmbeddingRecord record{.wait_seconds = *std::max_element(numbers.begin(), counts)};
  auto number = counts;
  for (std::size_t table = 0; table < worker.tables.size(); ++table) {
    const auto end = number + worker.staleness[table];
    record.staleness.emplace_back(worker.tables[table].name,
                                  std::vector<std::int64_t>(number, end));
    number = end;
  }
  return record;
}

Evaluation RecommenderRun::evaluate(Trainer& trainer, EmbeddedRows* rows, Group& group) const {
  const TabularValidationLoader& loader = data_.tabular().validation;
  const TrainOptions& train = recipe_.train;
  const std::int64_t samples = train.validation_samples == 0
                                   ? loader.samples()
                                   : std::min(train.validation_samples, loader.samples());
  const int replica = mesh_.place(group.rank()).dp;
  ClickMetrics clicks;
  double loss = 0;
  for (std::int64_t first = 0; first < samples; first += train.mini_batch) {
    const SampleBatch batch = loader.at(first, std::min(train.mini_batch, samples - first));
    const SampleRange part =
        replica_samples(batch.samples, replica, mesh_.dp, steps_.decisions().micro_batch);
    if (rows) rows->evaluate(trainer.steps_done(), part_of(batch, part.first, part.samples));
    const ReplicaScores mine = trainer.score(data_.tensors_of(batch, 0, batch.samples));
    std::vector<double> scores(static_cast<std::size_t>(batch.samples), 0.0);
    std::ranges::copy(mine.values, scores.begin() + mine.first_sample);
    group.all_reduce(scores);
    clicks.add(std::vector<float>(scores.begin(), scores.end()), batch.labels, batch.groups);
    loss += mine.loss * static_cast<double>(batch.samples);
  }
  return {.loss = loss / static_cast<double>(samples), .metrics = named(clicks.quality())};
}

}  // namespace strata
