#include "strata/task/recommender/rows_cost.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <thread>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/base/processor_time.h"
#include "strata/comm/ranks.h"
#include "strata/data/batch.h"
#include "strata/device/device.h"
#include "strata/measure/probe_cache.h"
#include "strata/measure/processor.h"
#include "strata/pipeline/layer_seconds.h"
#include "strata/rowserver/capacity.h"
#include "strata/rowserver/local_servers.h"
#include "strata/rowserver/rows/row_table.h"
#include "strata/task/recommender/embedded_rows.h"

namespace strata {
namespace {

// Assumed where nothing is measured: about what one server core achieves, and its network.
constexpr double kAssumedSampleSeconds = 1e-6;  // to parse a sample
// to parse an id and to read, pool and update its row
constexpr double kAssumedIdSeconds = 0.5e-6;
constexpr double kAssumedRankShare = 0.2;  // share of that on the rank's own thread
constexpr double kAssumedNetworkRate = 1.25e9;
constexpr double kAssumedNetworkLatency = 1e-4;

constexpr int kWarmProbeSteps = 3;
constexpr int kMostProbeSteps = 60;
constexpr double kRowsProbeSeconds = 0.4;
constexpr const char* kProbeKey =
    "rows 3 ";  // changed with the measurement, so that older entries are not used

std::int64_t replica_mini_batch(const Recipe& recipe) {
  return (recipe.train.mini_batch + recipe.mesh.axes[Axis::kData] - 1) /
         recipe.mesh.axes[Axis::kData];
}

std::int64_t pipeline_ranks(const Recipe& recipe) { return recipe.mesh.axes[Axis::kPipeline]; }

// Adds to measured or assumed seconds: the staleness, the processors that threads share, and the
// network.
RowsCost completed(RowsCost cost, const RecommenderFields& fields, const Recipe& recipe,
                   const MachineProfile& machine, const std::vector<double>& rows) {
  const EmbeddingOptions& embedding = fields.embedding;
  const WorkerOptions worker = worker_options(fields);
  // A step waits for the table with the smallest staleness.
  cost.staleness = *std::ranges::min_element(worker.staleness) - 1;
  const auto cores = machine.host.cores > 0 ? static_cast<double>(machine.host.cores)
                                            : std::thread::hardware_concurrency();
  const auto threads = static_cast<double>(recipe.threads_per_rank());
  const auto replicas = static_cast<double>(recipe.mesh.axes[Axis::kData]);
  // Computation on a GPU uses no processor.
  cost.rank_threads = recipe.device_kind() == DeviceKind::kCuda ? 0 : threads;
  const double wanted = static_cast<double>(pipeline_ranks(recipe)) * threads + 1;
  if (replicas * wanted > cores) cost.processors = cores / replicas;
  if (embedding.is_local()) return cost;
  const auto shards = static_cast<std::int64_t>(embedding.servers.size());
  const double rate = machine.network.bandwidth.count > 0
                          ? static_cast<double>(machine.network.bandwidth.count)
                          : kAssumedNetworkRate;
  const double latency =
      machine.network.latency > 0 ? machine.network.latency : kAssumedNetworkLatency;
  const WireBytes bytes = wire_bytes(worker.tables, rows, shards, embedding.wire);
  // Gradients and the next requests go to the servers, then the rows come back. Transfers in both
  // directions overlap with later steps; a server's link carries its share of all replicas' bytes.
  const double one_server = replicas / static_cast<double>(shards);
  cost.wait_seconds += 2 * latency + bytes.total() / rate;
  cost.beside_seconds = std::max(
      cost.beside_seconds, std::max(bytes.received, bytes.sent) * std::max(1.0, one_server) / rate);
  return cost;
}

std::vector<double> most_rows(const RecommenderFields& fields, const Recipe& recipe) {
  const WorkerOptions worker = worker_options(fields);
  std::vector<double> rows = sample_ids(fields, worker).of_table;
  for (double& count : rows) count *= static_cast<double>(replica_mini_batch(recipe));
  return rows;
}

// Runs steps of all replicas at once, without a net.
class RowsProbe {
 public:
  RowsProbe(const RecommenderFields& fields, const Recipe& recipe, const ClickData& data)
      : fields_(fields),
        recipe_(recipe),
        data_(data),
        replicas_(recipe.mesh.axes[Axis::kData]),
        worker_(worker_options(fields, recipe.threads_per_rank())) {
    worker_.staleness.assign(worker_.tables.size(), 1);
  }

  // The measured steps of a replica.
  struct Measured {
    RowsCost cost;
    std::vector<double> rows;
    double steps = 0;
  };

  Measured run() {
    std::vector<std::shared_ptr<RowStore>> stores = {std::make_shared<RowTable>(
        worker_.tables, RowTableOptions{.seed = static_cast<std::uint64_t>(recipe_.train.seed)})};
    shards_ = std::make_shared<LocalShards>(
        std::move(stores), LocalServersOptions{.ranks = replicas_,
                                               .threads = local_row_threads(recipe_),
                                               .wire = fields_.embedding.wire});
    servers_ = make_local_servers(shards_);
    std::mutex mutex;
    std::vector<Measured> all;
    run_thread_ranks({.ranks = replicas_, .threads_per_rank = 1},
                     [&](Group& group, MemoryAccount&) {
                       const Measured mine = steps(group);
                       const std::lock_guard lock(mutex);
                       all.push_back(mine);
                     });
    Measured mean = all.front();
    for (std::size_t i = 1; i < all.size(); ++i) {
      mean.cost.wait_seconds += all[i].cost.wait_seconds;
      mean.cost.rank_seconds += all[i].cost.rank_seconds;
      mean.cost.beside_seconds += all[i].cost.beside_seconds;
      mean.cost.work_seconds += all[i].cost.work_seconds;
      for (std::size_t table = 0; table < mean.rows.size(); ++table)
        mean.rows[table] += all[i].rows[table];
    }
    const auto count = static_cast<double>(all.size());
    mean.cost.wait_seconds /= count;
    mean.cost.rank_seconds /= count;
    mean.cost.beside_seconds /= count;
    mean.cost.work_seconds =
        (mean.cost.work_seconds + shards_->take_helped_seconds() / mean.steps) / count;
    for (double& rows : mean.rows) rows /= count;
    return mean;
  }

 private:
  SampleRange part(std::int64_t seen, int replica) const {
    return replica_samples(data_.tabular().train.size(seen, recipe_.train.mini_batch), replica,
                           replicas_, recipe_.train.micro_batch);
  }

  // As with staleness 1, but a step first waits for the samples of the next one, so that its wait
  // for rows includes nothing else.
  Measured steps(Group& group) {
    const int replica = group.rank();
    EmbeddedRows rows(
        worker_, std::move(servers_[static_cast<std::size_t>(replica)]),
        SampleOrder{.seen_after = [this](std::int64_t seen) { return data_.seen_after(seen); },
                    .part =
                        [this, replica](std::int64_t seen) {
                          const SampleRange mine = part(seen, replica);
                          return data_.tabular().train.at(seen, recipe_.train.mini_batch,
                                                          mine.first, mine.samples);
                        }});
    std::vector<double> rank, worker, work, wait;
    Measured measured{.cost = {}, .rows = std::vector<double>(worker_.tables.size())};
    rows.begin(0, 0);
    at::Tensor gradients;
    std::int64_t seen = 0;
    const double start = now_seconds();
    for (std::int64_t step = 0; step < kMostProbeSteps; ++step) {
      const double began = thread_cpu_seconds();
      const std::int64_t samples = data_.tabular().train.size(seen, recipe_.train.mini_batch);
      const auto mine = rows.samples(step);
      const MiniBatch batch = data_.tensors_of(*mine, part(seen, replica).first, samples);
      if (step > 0) rows.send_gradients(step - 1, gradients);
      rows.prefetch(step);
      const at::Tensor pooled = at::empty({mine->samples, rows.width()}, host_options(at::kFloat));
      rows.fetch(step, /*training=*/true, pooled);
      const double used = thread_cpu_seconds() - began;
      gradients = at::full({mine->samples, rows.width()}, kGradient, host_options(at::kFloat));
      rows.await(step);
      const EmbeddedRows::Use use = rows.take_use();
      const EmbeddingWorker::Worked worked = rows.take_worked();
      seen = data_.seen_after(seen);
      if (step >= kWarmProbeSteps) {
        rank.push_back(used);
        worker.push_back(worked.busiest);
        work.push_back(worked.total);
        wait.push_back(use.wait_seconds);
        for (std::size_t table = 0; table < use.lacked.size(); ++table)
          for (const std::int64_t count : use.lacked[table])
            measured.rows[table] += static_cast<double>(count);
      }
      const bool enough = step >= 3 * kWarmProbeSteps && now_seconds() - start > kRowsProbeSeconds;
      double stop[] = {replica == 0 && enough ? 1.0 : 0.0};
      group.all_reduce(stop);
      // Rows are created in the first steps; all replicas have ended them.
      if (step + 1 == kWarmProbeSteps && replica == 0) shards_->take_helped_seconds();
      if (stop[0] > 0) break;
    }
    for (double& count : measured.rows) count /= static_cast<double>(rank.size());
    measured.steps = static_cast<double>(rank.size());
    measured.cost.rank_seconds = timing_of(std::move(rank)).seconds;
    measured.cost.beside_seconds = timing_of(std::move(worker)).seconds;
    measured.cost.work_seconds = timing_of(std::move(work)).seconds;
    measured.cost.wait_seconds = timing_of(std::move(wait)).seconds;
    return measured;
  }

  static constexpr double kGradient = 1e-4;

  const RecommenderFields& fields_;
  const Recipe& recipe_;
  const ClickData& data_;
  int replicas_;
  WorkerOptions worker_;
  std::shared_ptr<LocalShards> shards_;
  std::vector<std::unique_ptr<RowServers>> servers_;
};

}  // namespace

int local_row_threads(const Recipe& recipe) {
  const int wanted = recipe.mesh.axes[Axis::kData] * recipe.threads_per_rank();
  return std::clamp(wanted, 1, std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
}

SampleIds sample_ids(const RecommenderFields& fields, const WorkerOptions& worker) {
  const TabularOptions data = complete(fields.data);
  SampleIds ids{.of_table = std::vector<double>(worker.tables.size()), .unbounded = {}};
  for (std::size_t i = 0; i < data.categorical.size(); ++i) {
    const CategoricalOptions& feature = data.categorical[i];
    std::int64_t most = feature.last;
    for (const SyntheticFeature& made : data.synthetic.features)
      if (data.format == SampleFormat::kSynthetic && made.name == feature.source() && most == 0)
        most = made.most_ids;
    const bool several = !feature.separator.empty() || data.format == SampleFormat::kLibsvm;
    if (several && most == 0) ids.unbounded.push_back(feature.name);
    ids.of_table[static_cast<std::size_t>(worker.features[i].table)] +=
        static_cast<double>(several ? std::max<std::int64_t>(1, most) : 1);
  }
  return ids;
}

RowsCost estimated_rows(const RecommenderFields& fields, const Recipe& recipe,
                        const MachineProfile& machine) {
  const std::vector<double> rows = most_rows(fields, recipe);
  const double ids = std::accumulate(rows.begin(), rows.end(), 0.0) * kAssumedIdSeconds;
  const double samples = static_cast<double>(replica_mini_batch(recipe)) * kAssumedSampleSeconds;
  return completed({.wait_seconds = ids,
                    .rank_seconds = kAssumedRankShare * ids,
                    .beside_seconds = std::max(ids, samples),
                    .work_seconds = ids + samples},
                   fields, recipe, machine, rows);
}

// Includes all fields of `data`: how samples are parsed, how many ids they have, and which ids and
// tables they use.
std::string rows_probe_key(const RecommenderFields& fields, const Recipe& recipe) {
  RecommenderFields recommender = fields;
  OptionSet set;
  describe(set, "data", recommender.data);
  const std::string data = set.to_yaml();
  std::string tables;
  for (const CategoricalOptions& feature : complete(recommender.data).categorical)
    tables += " " + row_options(recommender.embedding.rows, feature.embedding).table;
  return kProbeKey + ProcessorIdentity::of_this_machine().text() + " " +
         network_fields(recommender) + " tables" + tables + " " + recommender.data.train + " " +
         checksum_text(checksum(std::as_bytes(std::span(data)))) + " " +
         std::to_string(recipe.train.mini_batch) + " samples of " +
         std::to_string(recipe.mesh.axes[Axis::kData]) + " with " +
         std::to_string(recipe.threads_per_rank()) + " threads, " +
         std::to_string(local_row_threads(recipe)) + " for all rows " +
         name_of(recommender.embedding.wire.rows) + " " +
         name_of(recommender.embedding.wire.gradients);
}

RowsCost probed_rows(const RecommenderFields& fields, const Recipe& recipe,
                     const MachineProfile& machine, const std::string& cache_file,
                     const ClickData* data) {
  const std::string key = rows_probe_key(fields, recipe);
  nlohmann::json cache =
      cache_file.empty() ? nlohmann::json::object() : read_cache_file(cache_file);
  if (const auto known = cache.find(key); known != cache.end() && known->is_object()) {
    const RowsCost cost{.wait_seconds = known->value("wait", 0.0),
                        .rank_seconds = known->value("rank", 0.0),
                        .beside_seconds = known->value("beside", 0.0),
                        .work_seconds = known->value("work", 0.0)};
    return completed(cost, fields, recipe, machine, known->value("rows", std::vector<double>()));
  }
  RowsProbe::Measured measured;
  try {
    const std::optional<ClickData> opened =
        data ? std::nullopt : std::make_optional<ClickData>(fields, recipe.train);
    measured = RowsProbe(fields, recipe, data ? *data : *opened).run();
  } catch (const UserError&) {  // a plan needs no data; training reports the error
    return estimated_rows(fields, recipe, machine);
  }
  if (!cache_file.empty()) {
    cache[key] = {{"wait", measured.cost.wait_seconds},
                  {"rank", measured.cost.rank_seconds},
                  {"beside", measured.cost.beside_seconds},
                  {"work", measured.cost.work_seconds},
                  {"rows", measured.rows}};
    write_cache_file(cache_file, cache);
  }
  return completed(measured.cost, fields, recipe, machine, measured.rows);
}

}  // namespace strata
