#include "strata/rowserver/codec/rows_codec.h"

#include <cstdint>
#include <string>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

std::uint32_t checksum_of(std::span<const std::uint64_t> ids) {
  return static_cast<std::uint32_t>(checksum(std::as_bytes(ids)));
}

int width_of(const FeatureRows& rows, const std::vector<FeatureSpec>& features) {
  return features[static_cast<std::size_t>(rows.feature)].width;
}

enum class Ids : bool { kLeftOut, kSent };

void write_rows(ByteWriter& to, const std::vector<FeatureRows>& all,
                const std::vector<FeatureSpec>& features, WirePrecision precision, Ids ids) {
  std::size_t most = 16;
  for (const FeatureRows& rows : all) {
    most += 32 + values_bytes(precision, rows.ids.size(), width_of(rows, features));
    if (ids == Ids::kSent) most += most_bytes_of_ids(rows.ids);
  }
  to.out().reserve(to.out().size() + most);
  write_precision(to, precision);
  to.varint(all.size());
  for (const FeatureRows& rows : all) {
    to.varint(static_cast<std::uint64_t>(rows.feature));
    to.varint(static_cast<std::uint64_t>(rows.version));
    if (ids == Ids::kSent)
      to.ids(rows.ids);
    else
      to.fixed32(checksum_of(rows.ids));
    encode_values(precision, rows.values, width_of(rows, features), to.out());
  }
}

int read_feature(ByteReader& from, const std::vector<FeatureSpec>& features) {
  const std::uint64_t feature = from.varint();
  if (feature >= features.size())
    from.refuse("it names feature " + std::to_string(feature) + " of " +
                std::to_string(features.size()));
  return static_cast<int>(feature);
}

std::vector<float> read_values(ByteReader& from, WirePrecision precision, std::size_t rows,
                               int width) {
  return decoded_values(precision, from.bytes(values_bytes(precision, rows, width)), width);
}

[[noreturn]] void refuse_other_rows() {
  throw SystemError({.operation = "embed.answer",
                     .what = "a server returns other rows than requested",
                     .expected = "the features, versions and ids of the request",
                     .got = "others",
                     .fix = "start servers and trainers with the same program"});
}

}  // namespace

void write_precision(ByteWriter& to, WirePrecision precision) {
  to.varint(static_cast<std::uint64_t>(precision));
}

WirePrecision read_precision(ByteReader& from) {
  const std::uint64_t precision = from.varint();
  if (precision > static_cast<std::uint64_t>(WirePrecision::kScaledInt8))
    from.refuse("there is no such precision");
  return static_cast<WirePrecision>(precision);
}

void write_gradients(ByteWriter& to, const std::vector<FeatureRows>& all,
                     const std::vector<FeatureSpec>& features, WirePrecision precision) {
  write_rows(to, all, features, precision, Ids::kSent);
}

std::vector<FeatureRows> read_gradients(ByteReader& from,
                                        const std::vector<FeatureSpec>& features) {
  const WirePrecision precision = read_precision(from);
  const std::uint64_t count = from.varint();
  if (count > from.left()) from.refuse("it is cut off");
  std::vector<FeatureRows> all(static_cast<std::size_t>(count));
  for (FeatureRows& rows : all) {
    rows.feature = read_feature(from, features);
    rows.version = from.number();
    rows.ids = from.ids();
    rows.values = read_values(from, precision, rows.ids.size(), width_of(rows, features));
  }
  return all;
}

void write_answer(ByteWriter& to, const std::vector<FeatureRows>& all,
                  const std::vector<FeatureSpec>& features, WirePrecision precision) {
  write_rows(to, all, features, precision, Ids::kLeftOut);
}

std::vector<FeatureRows> read_answer(ByteReader& from, const std::vector<FeatureSpec>& features,
                                     std::span<FeatureRead> requested) {
  const WirePrecision precision = read_precision(from);
  if (from.varint() != requested.size()) refuse_other_rows();
  std::vector<FeatureRows> all(requested.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    FeatureRows& rows = all[i];
    rows.feature = read_feature(from, features);
    rows.version = from.number();
    if (rows.feature != requested[i].feature || rows.version != requested[i].version ||
        from.fixed32() != checksum_of(requested[i].ids))
      refuse_other_rows();
    rows.values = read_values(from, precision, requested[i].ids.size(), width_of(rows, features));
  }
  for (std::size_t i = 0; i < all.size(); ++i) all[i].ids = std::move(requested[i].ids);
  return all;
}

}  // namespace strata
