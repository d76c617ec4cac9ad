/// Encodes rows, or gradients of rows, of several features as bytes and decodes them.
///
/// Values are encoded by wire_values.h. Gradients include their ids (byte_codec.h). A response
/// includes only a checksum of its ids, because the sender of the request has the ids.
///
/// Errors   SystemError: bytes that are truncated, name a feature that does not exist, or belong to
///          another request.
#pragma once

#include <span>
#include <vector>

#include "strata/rowserver/codec/byte_codec.h"
#include "strata/rowserver/codec/wire_values.h"
#include "strata/rowserver/feature.h"
#include "strata/rowserver/row_servers.h"

namespace strata {

void write_precision(ByteWriter& to, WirePrecision precision);
WirePrecision read_precision(ByteReader& from);

void write_gradients(ByteWriter& to, const std::vector<FeatureRows>& all,
                     const std::vector<FeatureSpec>& features, WirePrecision precision);
std::vector<FeatureRows> read_gradients(ByteReader& from, const std::vector<FeatureSpec>& features);

void write_answer(ByteWriter& to, const std::vector<FeatureRows>& all,
                  const std::vector<FeatureSpec>& features, WirePrecision precision);
/// Decodes the response to `requested`. If it belongs to that request, the ids move from the
/// request to the result.
std::vector<FeatureRows> read_answer(ByteReader& from, const std::vector<FeatureSpec>& features,
                                     std::span<FeatureRead> requested);

}  // namespace strata
