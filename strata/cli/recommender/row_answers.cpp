#include "strata/cli/recommender/row_answers.h"

#include <algorithm>
#include <charconv>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/base/json_text.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

using nlohmann::json;

// Reads a question word by word.
class Words {
 public:
  explicit Words(const std::string& question) {
    std::istringstream in(question);
    for (std::string word; in >> std::quoted(word);) words_.push_back(word);
  }
  bool more() const { return next_ < words_.size(); }
  std::string word() { return more() ? words_[next_++] : ""; }
  std::uint64_t number() {
    const std::string text = word();
    const char* const end = text.data() + text.size();
    std::uint64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && stop == end && !text.empty()) return number;
    throw UserError({.operation = "cli.ask",
                     .what = "a number is missing",
                     .expected = "a whole number from 0 to 18446744073709551615",
                     .got = quote(text),
                     .fix = "write it as in: row \"user id\" 42"});
  }

 private:
  std::vector<std::string> words_;
  std::size_t next_ = 0;
};

std::string json_of(const RowsDigest& digest) {
  return json{{"version", digest.version}, {"digest", checksum_text(digest.digest)}}.dump();
}

std::string json_of(const HotRows& hot) {
  json ids = json::array();
  for (const HotId& id : hot.ids())
    ids.push_back({{"id", id.id}, {"updates", id.hits}, {"tier", name_of(id.tier)}});
  return json{{"rows", hot.rows},
              {"cold_rows", hot.cold_rows},
              {"updates", hot.updates},
              {"cold_updates", hot.cold_updates},
              {"ids", ids}}
      .dump();
}

std::string json_of(const std::vector<TableCounts>& tables) {
  json all = json::array();
  for (const auto& [feature, counts] : tables)
    all.push_back({{"feature", feature},
                   {"rows", counts.rows},
                   {"bytes", counts.bytes},
                   {"cold_rows", counts.cold_rows},
                   {"cold_bytes", counts.cold_bytes}});
  return json_text(all);
}

std::string json_of(const RowValues& read) {
  json rows = json::array();
  for (auto row = read.values.begin(); row != read.values.end(); row += read.width)
    rows.push_back(std::vector<float>(row, row + read.width));
  return json{{"version", read.version}, {"rows", rows}}.dump();
}

std::string values_of_rows(Words& words, RowInspection& rows) {
  const std::string feature = words.word();
  std::vector<std::uint64_t> ids;
  while (words.more()) ids.push_back(words.number());
  return json_of(rows.rows(feature, ids));
}

}  // namespace

std::string json_of(const RowDescription& row) {
  json all{{"feature", row.feature}, {"id", row.id}, {"there", row.there}, {"value", row.value}};
  if (row.there)
    all.update({{"tier", name_of(row.tier)},
                {"candidate", row.candidate},
                {"last_update", row.last_update},
                {"hits", row.hits},
                {"state", row.state}});
  return json_text(all);
}

std::string json_of(const ReplicaLag& lag) {
  return json{{"version", lag.version},
              {"primary", lag.primary},
              {"lag", lag.updates()},
              {"following", lag.following}}
      .dump();
}

std::string answer_to(const std::string& question, RowInspection& rows) {
  Words words(question);
  const std::string what = words.word();
  if (what == "metrics") return rows.metrics();
  if (what == "sizes") return json_of(rows.sizes());
  if (what == "digest")
    return json_of(words.more() ? rows.digest_at(static_cast<std::int64_t>(words.number()))
                                : rows.digest());
  if (what == "row") {
    const std::string feature = words.word();
    return json_of(rows.row(feature, words.number()));
  }
  if (what == "rows") return values_of_rows(words, rows);
  if (what == "hot") {
    const std::string feature = words.word();
    const std::uint64_t count = std::min<std::uint64_t>(words.number(), kMostInspectedIds);
    return json_of(rows.hot(feature, static_cast<int>(count)));
  }
  if (what == "run") return std::to_string(rows.run());
  if (what == "lag") {
    const std::optional<ReplicaLag> lag = rows.lag();
    return lag ? json_of(*lag) : "";
  }
  throw UserError({.operation = "cli.ask",
                   .what = "the server does not know this question",
                   .expected = "metrics, sizes, digest [VERSION], row FEATURE ID, rows FEATURE "
                               "ID..., hot FEATURE COUNT, run, lag or health",
                   .got = quote(question),
                   .fix = "ask for metrics"});
}

}  // namespace strata
