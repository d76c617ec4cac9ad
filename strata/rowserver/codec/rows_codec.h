/// Writes rows, or gradients of rows, of several features as bytes and reads them back.
///
/// Values are as wire_values.h has them. Gradients have their ids beside them (byte_codec.h); an answer has a
/// checksum of its ids, which who asked has kept.
///
/// Errors  SystemError: bytes that are cut off, name a feature that is not there, or answer another request.
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
/// The answer to `asked`, whose ids go over to it if it fits.
std::vector<FeatureRows> read_answer(ByteReader& from, const std::vector<FeatureSpec>& features,
                                     std::span<FeatureRead> requested);

}  // namespace strata
