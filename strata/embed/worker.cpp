// One executor sends all requests to the servers, in the order of the program, which the servers
// require. Another reads samples ahead, so that requests don't wait for it. The rank's thread only
// waits for rows and pools them.
#include "strata/embed/worker.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"

namespace strata {

EmbeddingWorker::EmbeddingWorker(WorkerOptions options, RowServers& servers, IdSource ids)
    : options_(std::move(options)),
      servers_(servers),
      ids_(std::move(ids)),
      features_of_(options_.tables.size()),
      helpers_(options_.threads),
      loads_({.name = "samples", .after_failure = AfterFailure::kFailRest}),
      requesting_({.name = "embedding", .after_failure = AfterFailure::kFailRest}) {
  STRATA_CHECK_EQ(options_.staleness.size(), options_.tables.size(), "embed.worker");
  for (std::size_t f = 0; f < options_.features.size(); ++f) {
    EmbeddedFeature& feature = options_.features[f];
    features_of_.at(feature.table).push_back(static_cast<int>(f));
    column_of_.push_back(width_);
    width_ += pooled_feature(f).width();
  }
  for (const int staleness : options_.staleness) {
    STRATA_CHECK(staleness >= 1, "embed.worker");
    largest_staleness_ = std::max(largest_staleness_, staleness);
  }
  take_staleness_counts();
}

PooledFeature EmbeddingWorker::pooled_feature(std::size_t feature) const {
  const EmbeddedFeature& of = options_.features[feature];
  return {.pooling = of.pooling, .row_width = options_.tables[of.table].width, .length = of.length};
}

void EmbeddingWorker::begin(std::int64_t step, std::vector<StepRows> ahead) {
  finish_tasks();
  steps_.clear();
  requested_.clear();
  requests_.clear();
  loads_of_.clear();
  next_load_ = step;
  std::vector<TableOfStep> wanted;
  for (int table = 0; table < static_cast<int>(options_.tables.size()); ++table)
    for (int later = 0; later + 1 < options_.staleness[table]; ++later)
      wanted.push_back({step + later, table});
  std::vector<Completion> loads = {load(step)};
  for (const TableOfStep& of : wanted) loads.push_back(load(of.step));
  last_request_ = submit(
      requesting_,
      [=, this, ahead = std::move(ahead)]() mutable {
        std::erase_if(wanted, [&](const TableOfStep& of) { return take_known(of, ahead); });
        if (!wanted.empty()) read_ahead(step, wanted);
      },
      std::move(loads));
}

// Runs on the executor of requests. Several ranks may have read rows for the same step.
bool EmbeddingWorker::take_known(const TableOfStep& of, const std::vector<StepRows>& ahead) {
  const std::int64_t oldest = of.step - options_.staleness[of.table] + 1;
  const std::shared_ptr<Step> step = loaded(of.step);
  const auto width = static_cast<std::size_t>(options_.tables[of.table].width);
  const std::vector<std::uint64_t>& ids = step->distinct[of.table].ids;
  std::vector<float> rows(ids.size() * width);
  std::vector<char> found(ids.size(), 0);
  std::int64_t version = -1;
  for (const StepRows& known : ahead) {
    if (known.step != of.step || known.rows.feature != of.table || known.rows.version < oldest)
      continue;
    if (version >= 0 && version != known.rows.version) return false;
    version = known.rows.version;
    for (std::size_t i = 0, j = 0; i < ids.size(); ++i) {
      while (j < known.rows.ids.size() && known.rows.ids[j] < ids[i]) ++j;
      if (j == known.rows.ids.size()) break;
      if (known.rows.ids[j] != ids[i]) continue;
      std::copy_n(known.rows.values.data() + j * width, width, rows.data() + i * width);
      found[i] = 1;
    }
  }
  if (version < 0 || std::ranges::find(found, 0) != found.end()) return false;
  {
    const std::lock_guard lock(mutex_);
    step->rows[of.table] = std::move(rows);
    step->versions[of.table] = version;
    ++requested_[of.step];
  }
  changed_.notify_all();
  return true;
}

void EmbeddingWorker::prefetch(std::int64_t step) {
  std::vector<TableOfStep> wanted;
  std::vector<Completion> loads;
  for (int table = 0; table < static_cast<int>(options_.tables.size()); ++table) {
    wanted.push_back({step + options_.staleness[table] - 1, table});
    loads.push_back(load(wanted.back().step));
  }
  if (largest_staleness_ > 1) load(step + largest_staleness_);  // its rows are read later
  last_request_ = submit(requesting_, [=, this] { read_ahead(step, wanted); }, std::move(loads));
}

// Runs on the executor of requests.
void EmbeddingWorker::read_ahead(std::int64_t version, const std::vector<TableOfStep>& wanted) {
  auto request = std::make_shared<Request>();
  request->of = wanted;
  std::vector<FeatureRead> reads;
  for (const auto& [number, table] : wanted) {
    const std::shared_ptr<Step> step = loaded(number);
    reads.push_back({.feature = table, .version = version, .ids = step->distinct[table].ids});
  }
  request->pending = servers_.read(std::move(reads));
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
    for (const auto& [number, table] : wanted) ++requested_[number];
  }
  changed_.notify_all();
}

// Starts to load the steps up to this one that are not being loaded yet, in order.
Completion EmbeddingWorker::load(std::int64_t number) {
  for (; next_load_ <= number; ++next_load_)
    loads_of_[next_load_] = last_load_ = submit(loads_, [this, step = next_load_] {
      std::shared_ptr<Step> made = make_step(ids_(step));
      {
        const std::lock_guard lock(mutex_);
        steps_.emplace(step, std::move(made));
      }
      changed_.notify_all();
    });
  return loads_of_.at(number);
}

std::shared_ptr<EmbeddingWorker::Step> EmbeddingWorker::loaded(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  return steps_.at(number);
}

std::shared_ptr<EmbeddingWorker::Step> EmbeddingWorker::make_step(SampleBatch samples) const {
  STRATA_CHECK_EQ(samples.categorical.size(), options_.features.size(), "embed.worker");
  auto step = std::make_shared<Step>();
  step->samples = std::move(samples);
  for (const std::vector<int>& features : features_of_) {
    std::vector<const IdLists*> lists;
    for (const int feature : features) lists.push_back(&step->samples.categorical[feature]);
    step->distinct.push_back(distinct_ids(lists));
  }
  step->rows.resize(options_.tables.size());
  step->versions.resize(options_.tables.size(), -1);
  return step;
}

std::vector<std::vector<std::int64_t>> EmbeddingWorker::take_staleness_counts() {
  std::vector<std::vector<std::int64_t>> fresh;
  for (const int staleness : options_.staleness)
    fresh.emplace_back(static_cast<std::size_t>(staleness), 0);
  return std::exchange(lacked_, std::move(fresh));
}

std::shared_ptr<const SampleBatch> EmbeddingWorker::samples(std::int64_t step) {
  if (step >= next_load_) load(step);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || steps_.contains(step); });
  if (failure_) std::rethrow_exception(failure_);
  const std::shared_ptr<Step>& known = steps_.at(step);
  return {known, &known->samples};
}

void EmbeddingWorker::fetch(std::int64_t number, std::span<float> pooled) {
  const double began = now_seconds();
  std::shared_ptr<Step> step;
  std::vector<std::shared_ptr<Request>> requests;
  {
    std::unique_lock lock(mutex_);
    const auto tables = static_cast<int>(options_.tables.size());
    changed_.wait(lock, [&] { return failure_ || requested_[number] == tables; });
    if (failure_) std::rethrow_exception(failure_);
    step = steps_.at(number);
    // Requests are in the order of the program: the rows of this step are in the first ones.
    const auto serves = [&](const std::shared_ptr<Request>& request) {
      return std::ranges::any_of(request->of,
                                 [&](const TableOfStep& of) { return of.step == number; });
    };
    for (const auto& request : requests_)
      if (serves(request)) requests.push_back(request);
    std::erase_if(requests_, serves);
    requested_.erase(number);
  }
  await_rows(requests);
  waited_seconds_ += now_seconds() - began;
  // Without staleness, the rank waits for rows: only then are samples read while it computes.
  if (largest_staleness_ == 1) load(number + 1);
  for (std::size_t table = 0; table < options_.tables.size(); ++table) {
    const auto lacks = static_cast<std::size_t>(number - step->versions[table]);
    STRATA_CHECK(lacks < lacked_[table].size(), "embed.worker");
    lacked_[table][lacks] += static_cast<std::int64_t>(step->distinct[table].ids.size());
  }
  pool_step(*step, pooled);
}

void EmbeddingWorker::await_rows(const std::vector<std::shared_ptr<Request>>& requests) {
  for (const auto& request : requests) {
    std::vector<FeatureRows> answers = request->pending->wait();
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const auto [of, table] = request->of[i];
      Step& served = *steps_.at(of);
      served.rows[table] = std::move(answers[i].values);
      served.versions[table] = answers[i].version;
    }
  }
}

std::vector<StepRows> EmbeddingWorker::rows_ahead(std::int64_t step) {
  finish_tasks();
  std::vector<std::shared_ptr<Request>> requests;
  {
    const std::lock_guard lock(mutex_);
    requests.assign(requests_.begin(), requests_.end());
    requests_.clear();
  }
  await_rows(requests);
  std::vector<StepRows> ahead;
  for (auto known = steps_.lower_bound(step); known != steps_.end(); ++known)
    for (int table = 0; table < static_cast<int>(options_.tables.size()); ++table)
      if (const Step& of = *known->second; of.versions[table] >= 0)
        ahead.push_back({.step = known->first,
                         .rows = {.feature = table,
                                  .version = of.versions[table],
                                  .ids = of.distinct[table].ids,
                                  .values = of.rows[table]}});
  return ahead;
}

void EmbeddingWorker::pool_step(const Step& step, std::span<float> pooled) {
  STRATA_CHECK_EQ(static_cast<std::int64_t>(pooled.size()), step.samples.samples * width_,
                  "embed.worker");
  helpers_.run(options_.tables.size(), [&](std::size_t table) {
    std::span<const std::int32_t> row_of = step.distinct[table].row_of;
    for (const int feature : features_of_[table]) {
      const IdLists& lists = step.samples.categorical[feature];
      pool(pooled_feature(feature), lists, row_of.first(lists.ids.size()), step.rows[table].data(),
           pooled.data() + column_of_[feature], width_);
      row_of = row_of.subspan(lists.ids.size());
    }
  });
}

void EmbeddingWorker::send_gradients(std::int64_t number, std::vector<float> gradients,
                                     double rate_factor) {
  std::shared_ptr<Step> step;
  {
    const std::lock_guard lock(mutex_);
    const auto known = steps_.find(number);
    STRATA_CHECK(known != steps_.end(), "embed.worker");
    step = known->second;
    steps_.erase(known);
  }
  loads_of_.erase(number);
  last_request_ = submit(requesting_, [=, this, gradients = std::move(gradients)] {
    servers_.update(number + 1, row_gradients(*step, gradients), rate_factor);
  });
}

// Takes the step's ids and the memory of its rows.
std::vector<FeatureRows> EmbeddingWorker::row_gradients(Step& step,
                                                        std::span<const float> gradients) {
  std::vector<FeatureRows> all(options_.tables.size());
  helpers_.run(all.size(), [&](std::size_t table) {
    FeatureRows& rows = all[table];
    rows.feature = static_cast<int>(table);
    rows.version = step.versions[table];
    rows.ids = std::move(step.distinct[table].ids);
    // Only the largest elements have to be found again; otherwise the rows' memory is free.
    const bool reads_rows = std::ranges::any_of(features_of_[table], [&](int feature) {
      return options_.features[feature].pooling == Pooling::kMax;
    });
    if (!reads_rows) rows.values = std::move(step.rows[table]);
    rows.values.assign(rows.ids.size() * options_.tables[table].width, 0.0f);
    std::span<const std::int32_t> row_of = step.distinct[table].row_of;
    for (const int feature : features_of_[table]) {
      const IdLists& lists = step.samples.categorical[feature];
      add_row_gradients(pooled_feature(feature), lists, row_of.first(lists.ids.size()),
                        step.rows[table].data(), gradients.data() + column_of_[feature], width_,
                        rows.values.data());
      row_of = row_of.subspan(lists.ids.size());
    }
  });
  return all;
}

void EmbeddingWorker::read(std::int64_t version, const SampleBatch& samples,
                           std::span<float> pooled) {
  finish_tasks();
  const std::shared_ptr<Step> step = make_step(samples);
  std::vector<FeatureRead> reads;
  for (int table = 0; table < static_cast<int>(options_.tables.size()); ++table)
    reads.push_back({.feature = table, .version = version, .ids = step->distinct[table].ids});
  std::vector<FeatureRows> answers = servers_.read(std::move(reads))->wait();
  for (std::size_t table = 0; table < answers.size(); ++table)
    step->rows[table] = std::move(answers[table].values);
  pool_step(*step, pooled);
}

void EmbeddingWorker::await(std::int64_t version) {
  finish_tasks();
  servers_.await(version);
}

void EmbeddingWorker::save(std::int64_t version) {
  finish_tasks();
  servers_.save(version);
}

Completion EmbeddingWorker::submit(Executor& executor, std::function<void()> task,
                                   std::vector<Completion> after) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }
  const Completion done = executor.submit(std::move(task), std::move(after));
  done.then([this](const std::exception_ptr& error) {
    if (!error) return;
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    changed_.notify_all();
  });
  return done;
}

// A task fails with the first error of its executor, so waiting for the last tasks is enough.
void EmbeddingWorker::finish_tasks() {
  last_load_.wait();
  last_request_.wait();
}

}  // namespace strata
