#include "strata/train/recommender_run.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/sampler.h"
#include "strata/device/device.h"
#include "strata/embed/rows/row_table_state.h"
#include "strata/embed/saved_rows.h"
#include "strata/embed/wire/grpc_client.h"
#include "strata/embed/wire/question.h"
#include "strata/embed/wire/remote_servers.h"
#include "strata/embed/wire/wire_messages.h"
#include "strata/tabular/click_metrics.h"
#include "strata/tabular/id_texts.h"
#include "strata/train/recommender_limits.h"
#include "strata/train/row_lookup.h"

namespace strata {
namespace {

constexpr std::uint64_t kPermutationKey = 0x696D706F7274;  // "import"
constexpr double kAnswerSeconds = 60;

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

Evaluation evaluation_of(const ClickQuality& quality) {
  return {.loss = quality.log_loss, .metrics = named(quality)};
}

// Of the samples of all ranks, on every rank. Collective.
ClickQuality quality_of_all(Group& group, const ClickMetrics& mine) {
  const MessageTag tag = group.next_collective();
  ClickQuality all;
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
    all = merged.quality();
  }
  std::vector<double> numbers = {static_cast<double>(all.samples),
                                 all.auc,
                                 all.auc_error,
                                 all.grouped_auc,
                                 all.log_loss,
                                 all.normalized_entropy,
                                 all.calibration};
  group.all_reduce(numbers);
  return {.samples = static_cast<std::int64_t>(numbers[0]),
          .auc = numbers[1],
          .auc_error = numbers[2],
          .grouped_auc = numbers[3],
          .log_loss = numbers[4],
          .normalized_entropy = numbers[5],
          .calibration = numbers[6]};
}

// As a server answers.
HotRows hot_rows_of(const std::string& answer, int count) {
  const auto json = nlohmann::json::parse(answer);
  HotRows hot(count);
  hot.rows = json.at("rows"), hot.cold_rows = json.at("cold_rows");
  hot.updates = json.at("updates"), hot.cold_updates = json.at("cold_updates");
  for (const auto& id : json.at("ids"))
    hot.add(HotId{
        .id = id.at("id"),
        .hits = id.at("updates"),
        .tier = id.at("tier") == name_of(RowTier::kDisk) ? RowTier::kDisk : RowTier::kMemory});
  return hot;
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
      worker_(worker_options(*recipe.recommender)) {
  const EmbeddingOptions& embedding = recipe.recommender->embedding;
  check_planned_recommender(recipe, steps_.decisions(), start_.processes);
  if (embedding.is_local()) make_local_rows(start_);
}

void RecommenderRun::make_local_rows(const RowsStart& start) {
  const EmbeddingOptions& embedding = recipe_.recommender->embedding;
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
      SavedRows(saved_rows_folder(recipe_, start.resume), fingerprint, 0)
          .load(start.version, shard, shards, *shards_.back());
    }
    stores.push_back({shards_.back(), &shards_.back()->rows()});
  }
  LocalServersOptions options{.ranks = mesh_.dp, .wire = embedding.wire, .version = start.version};
  const std::string& checkpoints = recipe_.train.checkpoint_folder;
  const std::string folder =
      checkpoints.empty() ? embedding.folder : saved_rows_folder(recipe_, checkpoints);
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
                                 .features = worker_.tables,
                                 .seed = static_cast<std::uint64_t>(recipe_.train.seed),
                                 .rank = place.dp,
                                 .ranks = mesh_.dp,
                                 .run = start_.run,
                                 .follows = start_.follows,
                                 .holder = start_.holder,
                                 .version = start_.version,
                                 .abandoned = start_.abandoned,
                                 .wire = embedding.wire,
                                 .access = access_from_environment(),
                                 .notice = place.dp == 0 ? start_.notice : nullptr,
                                 .stop = start_.stop});
  const std::string& checkpoints = recipe_.train.checkpoint_folder;
  const bool stale =
      std::ranges::any_of(worker_.staleness, [](int staleness) { return staleness > 1; });
  const bool goes_on = start_.version > 0 && start_.version < recipe_.train.steps;
  RowsAheadOptions ahead{
      .from =
          stale && goes_on && !embedding.reread ? saved_rows_folder(recipe_, start_.resume) : "",
      .to = checkpoints.empty() ? "" : saved_rows_folder(recipe_, checkpoints),
      .fingerprint = fingerprint_of(worker_.tables, static_cast<std::uint64_t>(recipe_.train.seed)),
      .rank = place.dp,
      .ranks = mesh_.dp,
      .keep = recipe_.train.keep_checkpoints,
      .tables = worker_.tables};
  return std::make_unique<EmbeddedRows>(
      worker_, std::move(servers),
      SampleOrder{.seen_after = [this](std::int64_t seen) { return data_.seen_after(seen); },
                  .part = [this, replica = place.dp](
                              std::int64_t seen) { return part_of_mini_batch(seen, replica); }},
      std::move(ahead));
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
  std::size_t size = static_cast<std::size_t>(group.size());
  for (const int staleness : worker_.staleness) size += static_cast<std::size_t>(staleness);
  std::vector<double> numbers(size, 0.0);  // waits by rank, then counts table by table
  if (rows) {
    const EmbeddedRows::Use use = rows->take_use();
    numbers[static_cast<std::size_t>(group.rank())] = use.wait_seconds;
    auto number = numbers.begin() + group.size();
    for (std::size_t table = 0; table < use.lacked.size(); ++table) {
      std::ranges::copy(use.lacked[table], number);
      number += worker_.staleness[table];
    }
  }
  group.all_reduce(numbers);
  const auto counts = numbers.begin() + group.size();
  EmbeddingRecord record{.wait_seconds = *std::max_element(numbers.begin(), counts)};
  auto number = counts;
  for (std::size_t table = 0; table < worker_.tables.size(); ++table) {
    const auto end = number + worker_.staleness[table];
    record.staleness.emplace_back(worker_.tables[table].name,
                                  std::vector<std::int64_t>(number, end));
    number = end;
  }
  return record;
}

std::int64_t RecommenderRun::validation_samples() const {
  const std::int64_t all = data_.tabular().validation.samples();
  const std::int64_t most = recipe_.train.validation_samples;
  return most == 0 ? all : std::min(most, all);
}

// Whose feature a sample has is a function of its number alone, so that no rank has to know of another.
SampleBatch RecommenderRun::validation_part(std::int64_t first, std::int64_t count,
                                            const Permuted* permuted) const {
  const TabularValidationLoader& loader = data_.tabular().validation;
  std::vector<std::int64_t> which(static_cast<std::size_t>(count));
  std::iota(which.begin(), which.end(), first);
  SampleBatch part = loader.read(which);
  if (permuted == nullptr) return part;
  const Permutation order(validation_samples());
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

Evaluation RecommenderRun::evaluate(Trainer& trainer, EmbeddedRows* rows, Group& group) const {
  return evaluate(trainer, rows, group, nullptr);
}

Evaluation RecommenderRun::evaluate(Trainer& trainer, EmbeddedRows* rows, Group& group,
                                    const Permuted* permuted) const {
  const std::int64_t samples = validation_samples();
  const std::int64_t mini_batch = recipe_.train.mini_batch;
  const int replica = mesh_.place(group.rank()).dp;
  ClickMetrics clicks;
  for (std::int64_t first = 0; first < samples; first += mini_batch) {
    const std::int64_t count = std::min(mini_batch, samples - first);
    const SampleRange mine =
        replica_samples(count, replica, mesh_.dp, steps_.decisions().micro_batch);
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

std::vector<FeatureImportance> RecommenderRun::importance(Trainer& trainer, EmbeddedRows* rows,
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

std::vector<HotTable> RecommenderRun::hot_ids(int count) const {
  std::vector<HotTable> all;
  for (int table = 0; table < static_cast<int>(worker_.tables.size()); ++table) {
    HotTable& hot = all.emplace_back(
        HotTable{worker_.tables[static_cast<std::size_t>(table)].name, HotRows(count)});
    for (const auto& shard : shards_) hot.rows.add(shard->hottest(table, count));
    if (has_local_rows()) continue;
    for (const std::string& server : recipe_.recommender->embedding.servers)
      hot.rows.add(hot_rows_of(
          grpc_ask(server, access_from_environment(),
                   "hot " + word_of_name(hot.table) + " " + std::to_string(count), kAnswerSeconds),
          count));
  }
  name_hot_ids(all);
  return all;
}

// Features that share a table may each have a text for the same id.
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

std::vector<TableSize> RecommenderRun::sizes() const {
  std::vector<TableSize> tables;
  for (const FeatureSpec& table : worker_.tables) tables.push_back({table.name, {}});
  const auto add = [&](std::size_t table, std::int64_t rows, std::int64_t bytes,
                       std::int64_t cold_rows, std::int64_t cold_bytes) {
    tables[table].size += {.rows = rows,
                           .bytes = bytes,
                           .cold_rows = cold_rows,
                           .cold_bytes = cold_bytes,
                           .parameters = (rows + cold_rows) * worker_.tables[table].width};
  };
  for (const auto& shard : shards_) {
    const std::vector<FeatureCounts> counts = shard->counts();
    for (std::size_t i = 0; i < counts.size(); ++i)
      add(i, counts[i].rows, counts[i].bytes, counts[i].cold_rows, counts[i].cold_bytes);
  }
  if (has_local_rows()) return tables;
  try {
    for (const std::string& server : recipe_.recommender->embedding.servers) {
      const auto json = nlohmann::json::parse(
          grpc_ask(server, access_from_environment(), "sizes", kAnswerSeconds));
      for (std::size_t i = 0; i < tables.size(); ++i)
        add(i, json.at(i).at("rows"), json.at(i).at("bytes"), json.at(i).at("cold_rows"),
            json.at(i).at("cold_bytes"));
    }
  } catch (const SystemError&) {
    return {};  // training goes on when the server is back; its size is not worth an end
  }
  return tables;
}

}  // namespace strata
