// Converts what an RowInspection asks and answers to the messages of rows.proto and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rows.pb.h"
#include "strata/rowserver/wire/inspection.h"
#include "strata/rowserver/wire/update_stream.h"

namespace strata::rows_over_grpc {

namespace proto = embed::v1;

// The server's side: each asks `rows` what the request names.
void answer(RowInspection& rows, const proto::DigestRequest& request, proto::DigestReply& reply);
void answer(RowInspection& rows, const proto::RowRequest& request, proto::RowReply& reply);
void answer(RowInspection& rows, const proto::RowsRequest& request, proto::RowsReply& reply);
void answer(RowInspection& rows, const proto::HotRequest& request, proto::HotReply& reply);
void answer(RowInspection& rows, const proto::NoArguments&, proto::MetricsReply& reply);
void answer(RowInspection& rows, const proto::NoArguments&, proto::SizesReply& reply);
void answer(RowInspection& rows, const proto::NoArguments&, proto::LagReply& reply);
void answer(RowInspection& rows, const proto::NoArguments&, proto::RunReply& reply);

// The client's side.
RowsDigest result_of(const proto::DigestReply& reply);
RowDescription result_of(const proto::RowReply& reply);
RowValues result_of(const proto::RowsReply& reply);
HotRows result_of(const proto::HotReply& reply);
std::vector<TableCounts> result_of(const proto::SizesReply& reply);
std::optional<ReplicaLag> result_of(const proto::LagReply& reply);

proto::FollowRequest message_of(const FollowRequest& request);
FollowRequest request_of(const proto::FollowRequest& message);

}  // namespace strata::rows_over_grpc
