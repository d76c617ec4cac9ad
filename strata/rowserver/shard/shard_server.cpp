// A mutex guards the bookkeeping, not the rows. Reads run outside it, and updates are applied
// outside it by the one thread that runs pump() and the threads that help it. A thread that brings
// work while another thread pumps leaves it in the bookkeeping, where the pumping thread checks
// again before it returns.
//
// Threads that read outside the mutex are counted: after a restart the missing updates come from
// the journal instead of from the rank that reads, so rule 1 alone would not separate them.
#include "strata/rowserver/shard/shard_server.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <string>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/rowserver/rows/row_store.h"

namespace strata {

struct ShardServer::ReadRequest {
  std::vector<FeatureRead> reads;
  std::vector<FeatureRows> rows;
  std::atomic<std::size_t> left;  // features that are not done yet
  std::atomic<bool> failed = false;
  Answer answer;

  ReadRequest(std::vector<FeatureRead> features, Answer to)
      : reads(std::move(features)), rows(reads.size()), left(reads.size()), answer(std::move(to)) {}

  void fail(const std::exception_ptr& error) {
    if (!failed.exchange(true)) answer({}, error);
  }
  void finish_one() {
    if (left.fetch_sub(1) == 1 && !failed.load()) answer(std::move(rows), nullptr);
  }
};

namespace {

constexpr std::size_t kSpares = 64;  // number of vectors

constexpr ErrorSource kOrderErrors{"embed.order", "resume all ranks at the same checkpoint"};

}  // namespace

ShardServer::ShardServer(RowStore& rows, Options options, UpdateJournal* journal)
    : rows_(rows),
      options_(options),
      journal_(journal),
      version_(options.version),
      replayed_(options.replayed),
      held_(options.held),
      threads_(options.threads ? options.threads : std::make_shared<HelperThreads>(1)),
      sent_(static_cast<std::size_t>(options.ranks), std::max(options.version, options.replayed)),
      left_(static_cast<std::size_t>(options.ranks), 0) {
  counts_.staleness.resize(rows.features().size());
}

ShardServer::~ShardServer() = default;

void ShardServer::require_running() const {
  if (failure_) std::rethrow_exception(failure_);
}

std::exception_ptr ShardServer::left_error(std::int64_t version) const {
  for (std::size_t rank = 0; rank < left_.size(); ++rank)
    if (left_[rank] != 0 && sent_[rank] < version)
      return to_exception(
          SystemError({.operation = "embed.order",
                       .where = "rank " + std::to_string(rank),
                       .what = "it has left, and others wait for its part of an update",
                       .expected = "update " + std::to_string(version),
                       .got = "none after " + std::to_string(sent_[rank]),
                       .fix = "read that rank's error first"}));
  return nullptr;
}

void ShardServer::read(int rank, std::vector<FeatureRead> reads, Answer answer) {
  check_read(rows_.features(), reads, options_.shard, options_.shards);
  if (reads.empty()) return answer({}, nullptr);
  const auto request = std::make_shared<ReadRequest>(std::move(reads), std::move(answer));
  std::vector<ReadTask> now;
  std::exception_ptr left;
  Lock lock(mutex_);
  require_running();
  const std::int64_t oldest = held_ ? version_ : sent_[static_cast<std::size_t>(rank)];
  std::int64_t newest = 0;
  for (const FeatureRead& read : request->reads) {
    if (read.version < oldest)
      throw kOrderErrors.user("rank " + std::to_string(rank),
                              "a read arrives after the update that replaces its version",
                              "version " + std::to_string(oldest) + " or a later one",
                              "version " + std::to_string(read.version));
    newest = std::max(newest, read.version);
  }
  if ((left = left_error(newest))) {
    lock.unlock();
    return request->fail(left);
  }
  ++counts_.reads;
  for (std::size_t i = 0; i < request->reads.size(); ++i) {
    counts_.rows_read += static_cast<std::int64_t>(request->reads[i].ids.size());
    const std::int64_t version = request->reads[i].version;
    if (version == version_)
      now.push_back({request, i});
    else
      reads_[version].push_back({request, i});
  }
  if (now.empty()) return;
  ++reading_;
  lock.unlock();
  perform(now);
  lock.lock();
  --reading_;
  pump(lock);
  idle_.notify_all();
}

void ShardServer::recycle(std::vector<FeatureRows> rows) {
  const Lock lock(mutex_);
  for (FeatureRows& of : rows) {
    if (of.values.capacity() == 0) continue;
    if (spare_.size() == kSpares) spare_.pop_front();
    spare_.push_back(std::move(of.values));
  }
}

// Returns the smallest spare vector that is large enough without wasting much; its contents are
// overwritten.
std::vector<float> ShardServer::take_spare(std::size_t size) {
  std::vector<float> values;
  {
    const Lock lock(mutex_);
    auto best = spare_.end();
    for (auto it = spare_.begin(); it != spare_.end(); ++it)
      if (it->capacity() >= size && it->capacity() <= 2 * size &&
          (best == spare_.end() || it->capacity() < best->capacity()))
        best = it;
    if (best != spare_.end()) {
      values = std::move(*best);
      spare_.erase(best);
    }
  }
  // sizes differ a little between steps
  if (values.capacity() < size) values.reserve(size + size / 8);
  values.resize(size);
  return values;
}

// Throws nothing: an error, such as no memory, goes to the requests.
void ShardServer::perform(const std::vector<ReadTask>& tasks) try {
  threads_->run(tasks.size(), [&](std::size_t i) {
    const ReadTask& task = tasks[i];
    ReadRequest& request = *task.request;
    try {
      FeatureRead& read = request.reads[task.index];
      const auto width =
          static_cast<std::size_t>(rows_.features()[static_cast<std::size_t>(read.feature)].width);
      FeatureRows rows{.feature = read.feature,
                       .version = read.version,
                       .ids = std::move(read.ids),
                       .values = {}};
      rows.values = take_spare(rows.ids.size() * width);
      rows_.read(rows.feature, rows.ids, rows.values);
      request.rows[task.index] = std::move(rows);
      request.finish_one();
    } catch (...) {
      request.fail(std::current_exception());
    }
  });
} catch (...) {
  for (const ReadTask& task : tasks) task.request->fail(std::current_exception());
}

bool ShardServer::update(int rank, std::int64_t version, UpdatePart part) {
  check_part(rows_.features(), version, part, options_.shard, options_.shards);
  const auto index = static_cast<std::size_t>(rank);
  Lock lock(mutex_);
  require_running();
  if (version <= sent_[index]) {
    ++counts_.repeated_parts;
    return false;
  }
  if (version != sent_[index] + 1)
    throw kOrderErrors.user("rank " + std::to_string(rank), "updates are missing",
                            "update " + std::to_string(sent_[index] + 1),
                            "update " + std::to_string(version));
  auto& parts = parts_.try_emplace(version, static_cast<std::size_t>(options_.ranks)).first->second;
  for (const std::optional<UpdatePart>& other : parts)
    if (other && std::bit_cast<std::uint64_t>(other->rate_factor) !=
                     std::bit_cast<std::uint64_t>(part.rate_factor))
      throw kOrderErrors.user("rank " + std::to_string(rank),
                              "ranks don't agree on the learning rate of an update",
                              std::to_string(other->rate_factor), std::to_string(part.rate_factor));
  note_part(version, part);
  parts[index] = std::move(part);
  sent_[index] = version;
  pump(lock);
  return true;
}

void ShardServer::note_part(std::int64_t version, const UpdatePart& part) {
  ++counts_.parts;
  for (const FeatureRows& rows : part.gradients) {
    StalenessCounts& counts = counts_.staleness[static_cast<std::size_t>(rows.feature)];
    const auto stale = static_cast<std::size_t>(version - rows.version);
    ++counts[std::min(stale, counts.size() - 1)];
  }
}

void ShardServer::at(std::int64_t version, Done done) {
  Lock lock(mutex_);
  require_running();
  if (version < version_)
    throw UserError({.operation = "embed.order",
                     .what = "a version is gone",
                     .expected = "version " + std::to_string(version_) + " or a later one",
                     .got = "version " + std::to_string(version),
                     .fix = "ask for the newest version: digest"});
  const std::exception_ptr left = left_error(version);
  if (left) {
    lock.unlock();
    return done(left);
  }
  exact_.emplace(version, std::move(done));
  pump(lock);
}

void ShardServer::when_reached(std::int64_t version, Done done) {
  Lock lock(mutex_);
  require_running();
  const std::exception_ptr left = left_error(version);
  if (left) {
    lock.unlock();
    return done(left);
  }
  reached_.emplace(version, std::move(done));
  pump(lock);
}

void ShardServer::inspect(Done done) {
  Lock lock(mutex_);
  require_running();
  inspections_.push_back(std::move(done));
  pump(lock);
}

// Runs the work that waits for this version's rows; returns false if there was none.
bool ShardServer::do_what_waits(Lock& lock) {
  std::vector<ReadTask> reads;
  if (const auto found = reads_.find(version_); found != reads_.end()) {
    reads = std::move(found->second);
    reads_.erase(found);
  }
  std::vector<Done> dones = std::exchange(inspections_, {});
  const auto take = [&](std::multimap<std::int64_t, Done>& from, auto begin, auto end) {
    for (auto it = begin; it != end; ++it) dones.push_back(std::move(it->second));
    from.erase(begin, end);
  };
  take(exact_, exact_.lower_bound(version_), exact_.upper_bound(version_));
  take(reached_, reached_.begin(), reached_.upper_bound(version_));
  if (reads.empty() && dones.empty()) return false;
  lock.unlock();
  perform(reads);
  for (const Done& done : dones) done(nullptr);
  lock.lock();
  return true;
}

bool ShardServer::next_is_there() const {
  if (held_ || reading_ > 0) return false;
  if (version_ < replayed_) return true;
  return std::all_of(sent_.begin(), sent_.end(),
                     [&](std::int64_t sent) { return sent > version_; });
}

void ShardServer::apply_next(Lock& lock) {
  const std::int64_t next = version_ + 1;
  std::vector<UpdatePart> parts;
  const bool replays = next <= replayed_;
  if (const auto found = parts_.find(next); found != parts_.end()) {
    for (std::optional<UpdatePart>& part : found->second) parts.push_back(*std::move(part));
    parts_.erase(found);
  }
  lock.unlock();
  std::exception_ptr error;
  std::int64_t rows = 0;
  try {
    if (replays)
      parts = journal_->replay(next);
    else if (journal_)
      journal_->append(next, parts);
    UpdatePart update = merge_parts(std::move(parts), *threads_);
    for (const FeatureRows& gradients : update.gradients)
      rows += static_cast<std::int64_t>(gradients.ids.size());
    apply_update(rows_, next, update, *threads_);
    // A sum has room for all ranks' rows, which is more than a read needs.
    if (options_.ranks == 1) recycle(std::move(update.gradients));
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error) {
    failure_ = error;
    return;
  }
  version_ = next;
  ++counts_.updates;
  counts_.rows_updated += rows;
}

void ShardServer::pump(Lock& lock) {
  if (pumping_) return;
  pumping_ = true;
  while (!failure_) {
    if (do_what_waits(lock)) continue;
    if (!next_is_there()) break;
    apply_next(lock);
  }
  if (failure_) drop_beyond(lock, -1, failure_);
  pumping_ = false;
  idle_.notify_all();
}

// Ends requests for a version above `version` with the error.
void ShardServer::drop_beyond(Lock& lock, std::int64_t version, const std::exception_ptr& error) {
  std::vector<ReadTask> reads;
  std::vector<Done> dones;
  for (auto it = reads_.upper_bound(version); it != reads_.end(); it = reads_.erase(it))
    reads.insert(reads.end(), it->second.begin(), it->second.end());
  for (auto* waiting : {&exact_, &reached_})
    for (auto it = waiting->upper_bound(version); it != waiting->end(); it = waiting->erase(it))
      dones.push_back(std::move(it->second));
  if (failure_)
    for (Done& done : std::exchange(inspections_, {})) dones.push_back(std::move(done));
  lock.unlock();
  for (const ReadTask& task : reads) task.request->fail(error);
  for (const Done& done : dones) done(error);
  lock.lock();
}

void ShardServer::leave(int rank) {
  Lock lock(mutex_);
  const auto index = static_cast<std::size_t>(rank);
  if (left_[index] != 0) return;
  left_[index] = 1;
  if (const std::exception_ptr error = left_error(sent_[index] + 1))
    drop_beyond(lock, sent_[index], error);
}

void ShardServer::replay_to(std::int64_t version) {
  Lock lock(mutex_);
  require_running();
  replayed_ = std::max(replayed_, version);
  pump(lock);
}

void ShardServer::release() {
  Lock lock(mutex_);
  held_ = false;
  if (!failure_) pump(lock);
}

void ShardServer::fail(const std::exception_ptr& error) {
  Lock lock(mutex_);
  if (!failure_) failure_ = error;
  drop_beyond(lock, -1, failure_);
}

void ShardServer::stop(const std::exception_ptr& error) {
  fail(error);
  Lock lock(mutex_);
  idle_.wait(lock, [&] { return !pumping_ && reading_ == 0; });
}

std::int64_t ShardServer::last_part(int rank) const {
  const Lock lock(mutex_);
  return sent_[static_cast<std::size_t>(rank)];
}

std::int64_t ShardServer::version() const {
  const Lock lock(mutex_);
  return version_;
}

std::exception_ptr ShardServer::failure() const {
  const Lock lock(mutex_);
  return failure_;
}

ShardCounts ShardServer::counts() const {
  const Lock lock(mutex_);
  ShardCounts counts = counts_;
  counts.version = version_;
  return counts;
}

}  // namespace strata
