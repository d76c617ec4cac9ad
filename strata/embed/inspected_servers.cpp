#include "strata/embed/inspected_servers.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/rowserver/shard/update_part.h"

namespace strata {
namespace {

constexpr ErrorSource kReadErrors{"embed.inspected_servers",
                                  "name the servers of the run, or their replicas, in their order"};
constexpr const char* kNoRank = "embed.inspected_servers";

}  // namespace

// What one server is asked for, and what it answers.
struct InspectedServers::Answer {
  struct Table {
    int table = 0;
    std::vector<std::uint64_t> ids;
    std::vector<float> values;
  };
  std::vector<Table> tables;
  RowsAge age{.version = std::numeric_limits<std::int64_t>::max()};
};

class InspectedServers::Pending final : public PendingRows {
 public:
  Pending(InspectedServers& servers, std::vector<FeatureRead> reads)
      : servers_(servers), reads_(std::move(reads)) {
    const auto shards = static_cast<int>(servers.shards_.size());
    for (int shard = 0; shard < shards; ++shard) answers_.push_back(std::make_shared<Answer>());
    for (const FeatureRead& read : reads_) {
      for (const auto& answer : answers_) answer->tables.push_back({.table = read.feature});
      for (const std::uint64_t id : read.ids)
        answers_[shard_index(read.feature, id)]->tables.back().ids.push_back(id);
    }
    for (std::size_t shard = 0; shard < answers_.size(); ++shard) {
      Shard& of = *servers.shards_[shard];
      done_.push_back(
          of.executor.submit([&servers, rows = of.rows.get(), answer = answers_[shard]] {
            servers.ask(*rows, *answer);
          }));
    }
  }
  // Requests to servers refer to them, so they end first.
  ~Pending() override {
    for (const Completion& done : done_) try {
        done.wait();
      } catch (const std::exception&) {
      }
  }

  std::vector<FeatureRows> wait() override {
    for (const Completion& done : done_) done.wait();
    std::vector<FeatureRows> all;
    for (std::size_t i = 0; i < reads_.size(); ++i) all.push_back(joined(i));
    RowsAge age = answers_.front()->age;
    for (const auto& answer : answers_) {
      age.version = std::min(age.version, answer->age.version);
      age.newest = std::max(age.newest, answer->age.newest);
    }
    servers_.age_ = age;
    return all;
  }

 private:
  std::size_t shard_index(int table, std::uint64_t id) const {
    return static_cast<std::size_t>(shard_of(table, id, static_cast<int>(answers_.size())));
  }

  // The rows of a table from all servers, in the order of its ids.
  FeatureRows joined(std::size_t i) const {
    const FeatureRead& read = reads_[i];
    const auto width =
        static_cast<std::size_t>(servers_.tables_[static_cast<std::size_t>(read.feature)].width);
    FeatureRows rows{.feature = read.feature, .version = read.version, .ids = read.ids};
    rows.values.reserve(read.ids.size() * width);
    std::vector<std::size_t> next(answers_.size(), 0);
    for (const std::uint64_t id : read.ids) {
      const std::size_t shard = shard_index(read.feature, id);
      const float* row = answers_[shard]->tables[i].values.data() + width * next[shard]++;
      rows.values.insert(rows.values.end(), row, row + width);
    }
    return rows;
  }

  InspectedServers& servers_;
  const std::vector<FeatureRead> reads_;
  std::vector<std::shared_ptr<Answer>> answers_;  // by shard
  std::vector<Completion> done_;
};

InspectedServers::InspectedServers(std::vector<FeatureSpec> tables,
                                   std::vector<std::unique_ptr<RowInspection>> shards)
    : tables_(std::move(tables)) {
  for (auto& rows : shards) {
    shards_.push_back(std::make_unique<Shard>());
    shards_.back()->rows = std::move(rows);
  }
}

std::unique_ptr<PendingRows> InspectedServers::read(std::vector<FeatureRead> tables) {
  return std::make_unique<Pending>(*this, std::move(tables));
}

// A server without a requested id is asked for its version.
void InspectedServers::ask(RowInspection& rows, Answer& answer) const {
  const auto read = [&](Answer::Table& table, std::size_t first, std::size_t count) {
    const FeatureSpec& spec = tables_[static_cast<std::size_t>(table.table)];
    const auto begin = table.ids.begin() + static_cast<std::ptrdiff_t>(first);
    const RowValues got = rows.rows(spec.name, {begin, begin + static_cast<std::ptrdiff_t>(count)});
    if (got.width != spec.width)
      throw kReadErrors.user("table '" + spec.name + "'", "the server's rows have another width",
                             std::to_string(spec.width), std::to_string(got.width));
    table.values.insert(table.values.end(), got.values.begin(), got.values.end());
    answer.age.version = std::min(answer.age.version, got.version);
  };
  bool has_version = false;
  for (Answer::Table& table : answer.tables)
    for (std::size_t first = 0; first < table.ids.size(); first += kMostInspectedIds) {
      read(table, first, std::min(kMostInspectedIds, table.ids.size() - first));
      has_version = true;
    }
  if (!has_version && !answer.tables.empty()) read(answer.tables.front(), 0, 0);
  const std::optional<ReplicaLag> lag = rows.lag();
  answer.age.newest = std::max(answer.age.version, lag ? lag->primary : 0);
}

void InspectedServers::update(std::int64_t, std::vector<FeatureRows>, double) {
  STRATA_CHECK(false, kNoRank);
}
void InspectedServers::await(std::int64_t) { STRATA_CHECK(false, kNoRank); }
void InspectedServers::save(std::int64_t) { STRATA_CHECK(false, kNoRank); }

}  // namespace strata
