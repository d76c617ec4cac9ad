#include "strata/rowserver/capacity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/rowserver/rows/row_layout.h"
#include "strata/rowserver/rows/row_memory.h"
#include "strata/rowserver/wire/wire_messages.h"

namespace strata {
namespace {

FeatureSpec spec(int width, RowPrecision precision, RowOptimizerKind optimizer) {
  return {.name = "t", .width = width, .optimizer = {.kind = optimizer}, .precision = precision};
}

// The design sizes for a hundred trillion parameters, after the size that Persia reports (Lian et
// al., arXiv 2111.05897): 12 TB per server, 85 % of it for rows. Bytes per row are the values and
// 26 bytes (int8: 30, with the scale) without states, as for rows that plain SGD trains.
struct DesignSize {
  int width;
  RowPrecision precision;
  const char* terabytes;
  int servers;
};
constexpr DesignSize kDesign[] = {
    {16, RowPrecision::kFp16, "362", 36},  {16, RowPrecision::kInt8, "288", 29},
    {32, RowPrecision::kFp16, "281", 28},  {32, RowPrecision::kInt8, "194", 19},
    {64, RowPrecision::kFp16, "241", 24},  {64, RowPrecision::kInt8, "147", 15},
    {128, RowPrecision::kFp16, "220", 22}, {128, RowPrecision::kInt8, "123", 13}};

constexpr double kParameters = 100e12, kMemory = 12e12, kFill = 0.85;

TEST(RowCapacity, ReproducesDesignSizes) {
  for (const DesignSize& size : kDesign) {
    const RowCapacity capacity =
        row_capacity(spec(size.width, size.precision, RowOptimizerKind::kSgd),
                     kParameters / size.width, kMemory, kFill);
    const double rounded_in_print = std::stod(size.terabytes);
    EXPECT_NEAR(capacity.bytes / 1e12, rounded_in_print, 0.51) << size.width;
    EXPECT_EQ(capacity.servers, size.servers) << size.width << ' ' << name_of(size.precision);
  }
}

// The column for PERSIA's released server: fp32 values, 4 bytes of row-wise Adagrad, and 90.4 bytes
// of hash map, list and allocator. It exceeds 30 servers at every width; Strata with the same
// states fits from width 32 on.
TEST(RowCapacity, PersiasReleasedServerNeedsMoreThanThirtyServersAtEveryWidth) {
  constexpr struct {
    int width, terabytes, servers;
  } kPersia[] = {{16, 990, 98}, {32, 695, 69}, {64, 547, 54}, {128, 474, 47}};
  for (const auto& [width, terabytes, servers] : kPersia) {
    const double bytes =
        kParameters / width *
        (RowLayout(spec(width, RowPrecision::kFp32, RowOptimizerKind::kRowWiseAdagrad))
             .payload_bytes() +
         90.4);
    EXPECT_NEAR(bytes / 1e12, terabytes, 0.51);
    EXPECT_EQ(std::ceil(bytes / (kMemory * kFill)), servers);
    const auto ours = [&](RowPrecision precision) {
      return row_capacity(spec(width, precision, RowOptimizerKind::kRowWiseAdagrad),
                          kParameters / width, kMemory, kFill)
          .servers;
    };
    EXPECT_LT(ours(RowPrecision::kFp32), servers);
    EXPECT_EQ(ours(RowPrecision::kFp16) <= 30, width >= 32);
    EXPECT_EQ(ours(RowPrecision::kInt8) <= 30, width >= 32);
  }
}

// The sizes in docs/recommenders.md of rows with their states.
TEST(RowCapacity, CountsStatesAndShards) {
  const RowCapacity capacity = row_capacity(
      spec(16, RowPrecision::kFp16, RowOptimizerKind::kRowWiseAdagrad), 6.25e12, kMemory, kFill);
  EXPECT_EQ(capacity.row_bytes, 32 + 4 + 26);
  EXPECT_DOUBLE_EQ(capacity.bytes, 387.5e12);
  EXPECT_EQ(capacity.servers, 38);
  constexpr struct {
    int width, fp16_terabytes, fp16_servers, int8_terabytes, int8_servers;
  } kDocumented[] = {{16, 388, 38, 312, 31},
                     {32, 294, 29, 206, 21},
                     {64, 247, 25, 153, 16},
                     {128, 223, 22, 127, 13}};
  for (const auto& [width, fp16_terabytes, fp16_servers, int8_terabytes, int8_servers] :
       kDocumented) {
    const auto of = [&, width = width](RowPrecision precision) {
      return row_capacity(spec(width, precision, RowOptimizerKind::kRowWiseAdagrad),
                          kParameters / width, kMemory, kFill);
    };
    EXPECT_NEAR(of(RowPrecision::kFp16).bytes / 1e12, fp16_terabytes, 0.51);
    EXPECT_EQ(of(RowPrecision::kFp16).servers, fp16_servers);
    EXPECT_NEAR(of(RowPrecision::kInt8).bytes / 1e12, int8_terabytes, 0.51);
    EXPECT_EQ(of(RowPrecision::kInt8).servers, int8_servers);
  }
  EXPECT_DOUBLE_EQ(capacity.server_rows * 38, 6.25e12);
  EXPECT_LE(capacity.server_bytes, kMemory * kFill);
  EXPECT_GE(static_cast<double>(capacity.server_shards) * kMostRows, capacity.server_rows);
  EXPECT_LT(static_cast<double>(capacity.server_shards - 1) * kMostRows, capacity.server_rows);
  EXPECT_EQ(
      row_capacity(spec(16, RowPrecision::kFp32, RowOptimizerKind::kAdam), 1e6, 1e12, 1).row_bytes,
      64 + 128 + 26);
}

// Encodes messages of real ids and rows for every shard.
double sent_for_real(const FeatureSpec& table, int rows, int shards, const WireOptions& wire) {
  std::mt19937_64 draw(1);
  std::vector<std::set<std::uint64_t>> ids(static_cast<std::size_t>(shards));
  for (int i = 0; i < rows; ++i) {
    const std::uint64_t id = draw();
    ids[static_cast<std::size_t>(shard_of(0, id, shards))].insert(id);
  }
  double bytes = 0;
  for (const auto& of_shard : ids) {
    FeatureRows values{.version = 1000, .ids = {of_shard.begin(), of_shard.end()}};
    values.values.assign(values.ids.size() * static_cast<std::size_t>(table.width), 0.5f);
    const Request request{.id = 1000, .reads = {{.version = 1000, .ids = values.ids}}};
    const std::vector<FeatureSpec> tables = {table};
    for (const MessageBody& body :
         {MessageBody::of(MessageKind::kRead, request),
          MessageBody::of_rows(1000, {values}, tables, wire.rows),
          MessageBody::of_part(1000, {.gradients = {values}, .wire = {}}, tables, wire.gradients)})
      bytes += static_cast<double>(body.frame(1000).size());
  }
  return bytes;
}

TEST(WireBytes, EqualBytesOfEncodedMessages) {
  for (const WirePrecision precision :
       {WirePrecision::kFp32, WirePrecision::kScaledFp16, WirePrecision::kScaledInt8})
    for (const int shards : {1, 2, 30})
      for (const int rows : {200, 13312}) {
        const FeatureSpec table = spec(16, RowPrecision::kFp16, RowOptimizerKind::kSgd);
        const WireOptions wire{precision, precision};
        const double count = rows;
        const double planned = wire_bytes({&table, 1}, {&count, 1}, shards, wire).total();
        const double real = sent_for_real(table, rows, shards, wire);
        EXPECT_NEAR(planned, real, 0.05 * real) << rows << " rows on " << shards;
      }
}

// 26 features of width 16, half of the ids distinct: PERSIA's released code sends 3,640 bytes a
// sample.
TEST(WireBytes, SampleTakesLessThanTwoThousand) {
  const WireBytes sample =
      sample_wire_bytes(spec(16, RowPrecision::kFp16, RowOptimizerKind::kRowWiseAdagrad), 2,
                        {.wire = {WirePrecision::kScaledFp16, WirePrecision::kScaledFp16}});
  EXPECT_LT(sample.total(), 2000);
  EXPECT_GT(sample.received, sample.sent);  // ids are sent both with reads and with gradients
}

TEST(RowCapacity, SnapshotTakesBytesDividedByRate) {
  EXPECT_DOUBLE_EQ(snapshot_seconds(8e12, 2e9), 4000);  // 67 min
}

TEST(RowCapacity, RefusesImpossibleSizes) {
  const FeatureSpec row = spec(16, RowPrecision::kFp16, RowOptimizerKind::kSgd);
  const double nan = std::nan("");
  for (const double rows : {0.0, -1.0, nan, HUGE_VAL})
    EXPECT_THROW(row_capacity(row, rows, 1e12, 1), UserError) << rows;
  for (const double fill : {0.0, -0.5, 1.01, nan})
    EXPECT_THROW(row_capacity(row, 1e6, 1e12, fill), UserError) << fill;
  for (const double memory : {0.0, 57.0, nan, HUGE_VAL})
    EXPECT_THROW(row_capacity(row, 1e6, memory, 1), UserError) << memory;
  EXPECT_NO_THROW(row_capacity(row, 1e6, 58, 1));
  EXPECT_THROW(row_capacity(spec(0, RowPrecision::kFp16, RowOptimizerKind::kSgd), 1e6, 1e12, 1),
               UserError);
  EXPECT_THROW(snapshot_seconds(1, 0), UserError);
  EXPECT_THROW(sample_wire_bytes(row, 1, {.batch = 0}), UserError);
  EXPECT_THROW(sample_wire_bytes(row, 1, {.ids = nan}), UserError);
  EXPECT_THROW(sample_wire_bytes(row, 1, {.distinct = 2}), UserError);
  EXPECT_THROW(sample_wire_bytes(row, 0, {}), UserError);
}

}  // namespace
}  // namespace strata
