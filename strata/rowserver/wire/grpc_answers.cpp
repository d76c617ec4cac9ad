#include "strata/rowserver/wire/grpc_answers.h"

#include <algorithm>

namespace strata::rows_over_grpc {
namespace {

proto::Tier message_of(RowTier tier) {
  return tier == RowTier::kDisk ? proto::DISK : proto::MEMORY;
}

RowTier tier_of(proto::Tier tier) {
  return tier == proto::DISK ? RowTier::kDisk : RowTier::kMemory;
}

std::vector<float> floats(const google::protobuf::RepeatedField<float>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

void answer(RowInspection& rows, const proto::DigestRequest& request, proto::DigestReply& reply) {
  const RowsDigest digest =
      request.has_version() ? rows.digest_at(request.version()) : rows.digest();
  reply.set_version(digest.version);
  reply.set_digest(digest.digest);
}

RowsDigest result_of(const proto::DigestReply& reply) {
  return {.version = reply.version(), .digest = reply.digest()};
}

void answer(RowInspection& rows, const proto::RowRequest& request, proto::RowReply& reply) {
  const RowDescription row = rows.row(request.feature(), request.id());
  reply.set_feature(row.feature);
  reply.set_id(row.id);
  reply.set_there(row.there);
  reply.mutable_value()->Add(row.value.begin(), row.value.end());
  reply.set_tier(message_of(row.tier));
  reply.set_candidate(row.candidate);
  reply.set_last_update(row.last_update);
  reply.set_hits(row.hits);
  reply.mutable_state()->Add(row.state.begin(), row.state.end());
}

RowDescription result_of(const proto::RowReply& reply) {
  return {.feature = reply.feature(),
          .id = reply.id(),
          .there = reply.there(),
          .value = floats(reply.value()),
          .tier = tier_of(reply.tier()),
          .candidate = reply.candidate(),
          .last_update = reply.last_update(),
          .hits = reply.hits(),
          .state = floats(reply.state())};
}

void answer(RowInspection& rows, const proto::RowsRequest& request, proto::RowsReply& reply) {
  const RowValues read = rows.rows(request.feature(), {request.ids().begin(), request.ids().end()});
  reply.set_version(read.version);
  reply.set_width(static_cast<std::uint32_t>(read.width));
  reply.mutable_values()->Add(read.values.begin(), read.values.end());
}

RowValues result_of(const proto::RowsReply& reply) {
  return {.version = reply.version(),
          .width = static_cast<int>(reply.width()),
          .values = floats(reply.values())};
}

void answer(RowInspection& rows, const proto::HotRequest& request, proto::HotReply& reply) {
  const std::uint32_t most = kMostInspectedIds;
  const HotRows hot =
      rows.hot(request.feature(), static_cast<int>(std::min(request.count(), most)));
  reply.set_rows(hot.rows);
  reply.set_cold_rows(hot.cold_rows);
  reply.set_updates(hot.updates);
  reply.set_cold_updates(hot.cold_updates);
  for (const HotId& id : hot.ids()) {
    proto::HotReply::Id& added = *reply.add_ids();
    added.set_id(id.id);
    added.set_updates(id.hits);
    added.set_tier(message_of(id.tier));
  }
}

HotRows result_of(const proto::HotReply& reply) {
  HotRows hot(reply.ids_size());
  hot.rows = reply.rows(), hot.cold_rows = reply.cold_rows();
  hot.updates = reply.updates(), hot.cold_updates = reply.cold_updates();
  for (const proto::HotReply::Id& id : reply.ids())
    hot.add(HotId{.id = id.id(), .hits = id.updates(), .tier = tier_of(id.tier())});
  return hot;
}

void answer(RowInspection& rows, const proto::NoArguments&, proto::MetricsReply& reply) {
  reply.set_text(rows.metrics());
}

void answer(RowInspection& rows, const proto::NoArguments&, proto::SizesReply& reply) {
  for (const TableCounts& table : rows.sizes()) {
    proto::SizesReply::Table& added = *reply.add_tables();
    added.set_feature(table.feature);
    added.set_rows(table.counts.rows);
    added.set_bytes(table.counts.bytes);
    added.set_cold_rows(table.counts.cold_rows);
    added.set_cold_bytes(table.counts.cold_bytes);
  }
}

std::vector<TableCounts> result_of(const proto::SizesReply& reply) {
  std::vector<TableCounts> all;
  for (const proto::SizesReply::Table& table : reply.tables()) {
    FeatureCounts& counts = all.emplace_back(TableCounts{table.feature(), {}}).counts;
    counts.rows = table.rows(), counts.bytes = table.bytes();
    counts.cold_rows = table.cold_rows(), counts.cold_bytes = table.cold_bytes();
  }
  return all;
}

void answer(RowInspection& rows, const proto::NoArguments&, proto::LagReply& reply) {
  const std::optional<ReplicaLag> lag = rows.lag();
  reply.set_replica(lag.has_value());
  if (!lag) return;
  reply.set_version(lag->version);
  reply.set_primary(lag->primary);
  reply.set_following(lag->following);
}

std::optional<ReplicaLag> result_of(const proto::LagReply& reply) {
  if (!reply.replica()) return std::nullopt;
  return ReplicaLag{
      .version = reply.version(), .primary = reply.primary(), .following = reply.following()};
}

void answer(RowInspection& rows, const proto::NoArguments&, proto::RunReply& reply) {
  reply.set_number(rows.run());
}

proto::FollowRequest message_of(const FollowRequest& request) {
  proto::FollowRequest message;
  message.set_wire_version(request.wire_version);
  message.set_fingerprint(request.fingerprint);
  message.set_shard(request.shard);
  message.set_shards(request.shards);
  message.set_run(request.run);
  message.set_version(request.version);
  return message;
}

FollowRequest request_of(const proto::FollowRequest& message) {
  return {.wire_version = message.wire_version(),
          .fingerprint = message.fingerprint(),
          .shard = message.shard(),
          .shards = message.shards(),
          .run = message.run(),
          .version = message.version()};
}

}  // namespace strata::rows_over_grpc
