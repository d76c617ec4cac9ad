// Bytes of a message are measured on encoded messages of a few rows, and the bytes of a further row
// are multiplied, so a calculation never needs the memory of the size that it calculates. The
// distance between ids determines the bytes of their differences, so the distance of the whole
// message is used.
#include "strata/rowserver/capacity.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/rowserver/rows/row_layout.h"
#include "strata/rowserver/rows/row_memory.h"
#include "strata/rowserver/wire/wire_messages.h"

namespace strata {
namespace {

constexpr double kMostCount = 1e18;  // every number derived from it can be counted
constexpr int kMeasuredRows = 64;

void require(bool holds, const char* where, const char* what, const std::string& expected,
             const std::string& got) {
  if (holds) return;
  throw UserError({.operation = "embed.capacity",
                   .where = where,
                   .what = what,
                   .expected = expected,
                   .got = got,
                   .fix = "give a number within these limits"});
}

WireBytes bytes_of_messages(const std::vector<FeatureSpec>& tables, const std::vector<double>& rows,
                            bool with_rows, const WireOptions& wire) {
  Request request{.id = 1 << 14, .answered_below = 1 << 14, .version = 1 << 14};
  std::vector<FeatureRows> values;
  for (int table = 0; table < static_cast<int>(tables.size()); ++table) {
    if (rows[static_cast<std::size_t>(table)] <= 0) continue;
    std::vector<std::uint64_t> ids;
    const double apart = 0x1p64 / (std::max(1.0, rows[static_cast<std::size_t>(table)]) + 1);
    for (int row = 1; with_rows && row <= kMeasuredRows; ++row)
      // The ids of the small message have the distance, not the positions, of the ids of the whole
      // message.
      ids.push_back(static_cast<std::uint64_t>(std::min(apart, 0x1p57) * row));
    const int width = tables[static_cast<std::size_t>(table)].width;
    request.reads.push_back({.feature = table, .version = 1 << 14, .ids = ids});
    values.push_back({.feature = table,
                      .version = 1 << 14,
                      .ids = ids,
                      .values = std::vector<float>(ids.size() * static_cast<std::size_t>(width))});
  }
  const auto bytes = [](const MessageBody& body) {
    return static_cast<double>(body.frame(1 << 14).size());
  };
  return {.received = bytes(MessageBody::of(MessageKind::kRead, request)) +
                      bytes(MessageBody::of_part(1 << 14, {.gradients = values, .wire = {}}, tables,
                                                 wire.gradients)),
          .sent = bytes(MessageBody::of_rows(1 << 14, values, tables, wire.rows))};
}

}  // namespace

RowCapacity row_capacity(const FeatureSpec& row, double rows, double memory, double fill) {
  check_feature(row);
  const RowLayout layout(row);
  require(rows >= 1 && rows <= kMostCount, "rows", "no table has so many rows",
          "1 to " + format_count(kMostCount), format_double_exactly(rows));
  require(fill > 0 && fill <= 1, "fill", "rows can't take this share of a server's memory",
          "more than 0, at most 1", format_double_exactly(fill));
  require(memory <= kMostCount && memory * fill >= layout.cost_bytes(), "memory",
          "a server has to have room for a row",
          std::to_string(layout.cost_bytes()) + " bytes a row at this fill",
          format_double_exactly(memory * fill));
  RowCapacity capacity{.row_bytes = layout.cost_bytes(), .bytes = rows * layout.cost_bytes()};
  const double servers = std::ceil(capacity.bytes / (memory * fill));
  capacity.servers = static_cast<std::int64_t>(servers);
  capacity.server_rows = rows / servers;
  capacity.server_bytes = capacity.bytes / servers;
  capacity.server_shards =
      static_cast<std::int64_t>(std::ceil(capacity.server_rows / double{kMostRows}));
  return capacity;
}

WireBytes wire_bytes(std::span<const FeatureSpec> tables, std::span<const double> rows,
                     std::int64_t shards, const WireOptions& wire) {
  STRATA_CHECK_EQ(tables.size(), rows.size(), "embed.capacity");
  require(shards >= 1, "shards", "no server", "at least 1", std::to_string(shards));
  for (const double count : rows)
    require(count >= 0 && count <= kMostCount, "rows", "no step reads so many rows",
            "0 to " + format_count(kMostCount), format_double_exactly(count));
  std::vector<FeatureSpec> specs(tables.begin(), tables.end());
  std::vector<double> of_shard;
  for (const double count : rows) of_shard.push_back(count / static_cast<double>(shards));
  const WireBytes empty = bytes_of_messages(specs, of_shard, /*with_rows=*/false, wire);
  WireBytes all = empty;
  for (std::size_t table = 0; table < specs.size(); ++table) {
    std::vector<double> alone(specs.size());
    alone[table] = of_shard[table];
    const WireBytes without = bytes_of_messages(specs, alone, false, wire);
    const WireBytes with = bytes_of_messages(specs, alone, true, wire);
    const double times = of_shard[table] / kMeasuredRows;
    all.received += (with.received - without.received) * times;
    all.sent += (with.sent - without.sent) * times;
  }
  return all * static_cast<double>(shards);
}

WireBytes sample_wire_bytes(const FeatureSpec& row, std::int64_t shards,
                            const SampleTraffic& traffic) {
  check_feature(row);
  const auto count = [](double input, const char* where) {
    require(input >= 1 && input <= kMostCount, where, "a step has at least one of these",
            "1 to " + format_count(kMostCount), format_double_exactly(input));
  };
  count(traffic.batch, "batch");
  count(traffic.ids, "ids");
  require(traffic.distinct > 0 && traffic.distinct <= 1, "distinct", "this is no share of ids",
          "more than 0, at most 1", format_double_exactly(traffic.distinct));
  const double rows = std::max(1.0, traffic.batch * traffic.ids * traffic.distinct);
  return wire_bytes({&row, 1}, {&rows, 1}, shards, traffic.wire) * (1 / traffic.batch);
}

double snapshot_seconds(double row_bytes, double bytes_per_second) {
  require(bytes_per_second > 0, "disk", "a snapshot never ends", "more than 0 bytes a second",
          format_double_exactly(bytes_per_second));
  return row_bytes / bytes_per_second;
}

}  // namespace strata
