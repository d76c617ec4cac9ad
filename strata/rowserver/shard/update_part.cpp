#include "strata/rowserver/shard/update_part.h"

#include <cmath>
#include <string>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/philox.h"
#include "strata/rowserver/codec/byte_codec.h"
#include "strata/rowserver/codec/rows_codec.h"
#include "strata/rowserver/rows/row_store.h"

namespace strata {
namespace {

constexpr ErrorSource kRequestErrors{"embed.request",
                                     "start servers and trainers with the same recipe and program"};

const FeatureSpec& spec_of(const std::vector<FeatureSpec>& features, int feature) {
  if (feature < 0 || feature >= static_cast<int>(features.size()))
    throw kRequestErrors.user(
        "feature " + std::to_string(feature), "the servers have no such feature",
        "numbers below " + std::to_string(features.size()), std::to_string(feature));
  return features[static_cast<std::size_t>(feature)];
}

void check_ids(const FeatureSpec& spec, int feature, std::span<const std::uint64_t> ids, int shard,
               int shards) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0 && ids[i] <= ids[i - 1])
      throw kRequestErrors.user("feature '" + spec.name + "'", "ids are not ascending and distinct",
                                "more than " + std::to_string(ids[i - 1]), std::to_string(ids[i]));
    if (shards > 1 && shard_of(feature, ids[i], shards) != shard)
      throw kRequestErrors.user("feature '" + spec.name + "'", "an id belongs to another server",
                                "server " + std::to_string(shard_of(feature, ids[i], shards)) +
                                    " of " + std::to_string(shards),
                                "server " + std::to_string(shard));
  }
}

// Merges two sorted lists; a common id gets the first value plus the second.
FeatureRows add_rows(FeatureRows first, FeatureRows second) {
  if (first.ids.empty()) return second;
  if (second.ids.empty()) return first;
  const std::size_t width = first.values.size() / first.ids.size();
  FeatureRows sum{.feature = first.feature, .version = first.version, .ids = {}, .values = {}};
  sum.ids.reserve(first.ids.size() + second.ids.size());
  sum.values.reserve(first.values.size() + second.values.size());
  const auto take = [&](const FeatureRows& from, std::size_t row) {
    sum.ids.push_back(from.ids[row]);
    const float* values = from.values.data() + row * width;
    sum.values.insert(sum.values.end(), values, values + width);
  };
  std::size_t i = 0, j = 0;
  while (i < first.ids.size() || j < second.ids.size()) {
    if (j == second.ids.size() || (i < first.ids.size() && first.ids[i] < second.ids[j])) {
      take(first, i++);
    } else if (i == first.ids.size() || second.ids[j] < first.ids[i]) {
      take(second, j++);
    } else {
      take(first, i++);
      float* values = sum.values.data() + sum.values.size() - width;
      for (std::size_t element = 0; element < width; ++element)
        values[element] += second.values[j * width + element];
      ++j;
    }
  }
  return sum;
}

std::vector<FeatureRows> add_gradients(std::vector<FeatureRows> first,
                                       std::vector<FeatureRows> second) {
  std::vector<FeatureRows> sum;
  std::size_t i = 0, j = 0;
  while (i < first.size() || j < second.size()) {
    if (j == second.size() || (i < first.size() && first[i].feature < second[j].feature))
      sum.push_back(std::move(first[i++]));
    else if (i == first.size() || second[j].feature < first[i].feature)
      sum.push_back(std::move(second[j++]));
    else
      sum.push_back(add_rows(std::move(first[i++]), std::move(second[j++])));
  }
  return sum;
}

}  // namespace

std::vector<std::byte> encode_part(std::int64_t version, const UpdatePart& part,
                                   const std::vector<FeatureSpec>& features,
                                   WirePrecision gradients) {
  ByteWriter to;
  to.varint(static_cast<std::uint64_t>(version));
  to.real(part.rate_factor);
  write_gradients(to, part.gradients, features, gradients);
  return to.take();
}

UpdatePart decode_part(std::span<const std::byte> bytes, std::int64_t version,
                       const std::vector<FeatureSpec>& features,
                       std::shared_ptr<const std::vector<std::byte>> message) {
  ByteReader from(bytes, "a part of update " + std::to_string(version));
  if (from.number() != version) from.refuse("it belongs to another update");
  UpdatePart part;
  part.rate_factor = from.real();
  part.gradients = read_gradients(from, features);
  from.require_end();
  if (message) part.wire = {.message = std::move(message), .bytes = bytes};
  return part;
}

int shard_of(int feature, std::uint64_t id, int shards) {
  const std::uint64_t key = mix_key(id, static_cast<std::uint64_t>(feature));
  return static_cast<int>(((key >> 32) * static_cast<std::uint64_t>(shards)) >> 32);
}

void check_read(const std::vector<FeatureSpec>& features, std::span<const FeatureRead> reads,
                int shard, int shards) {
  for (const FeatureRead& read : reads)
    check_ids(spec_of(features, read.feature), read.feature, read.ids, shard, shards);
}

void check_part(const std::vector<FeatureSpec>& features, std::int64_t version,
                const UpdatePart& part, int shard, int shards) {
  if (!std::isfinite(part.rate_factor))
    throw kRequestErrors.user("update " + std::to_string(version),
                              "the factor of the learning rate is no number", "a finite number",
                              std::to_string(part.rate_factor));
  int last = -1;
  for (const FeatureRows& rows : part.gradients) {
    const FeatureSpec& spec = spec_of(features, rows.feature);
    const std::string where = "feature '" + spec.name + "'";
    if (rows.feature <= last)
      throw kRequestErrors.user(
          where, "the gradients of an update are not in the order of features",
          "a number above " + std::to_string(last), std::to_string(rows.feature));
    last = rows.feature;
    const std::size_t elements = rows.ids.size() * static_cast<std::size_t>(spec.width);
    if (rows.values.size() != elements)
      throw kRequestErrors.user(
          where, "gradients have another width than the rows",
          std::to_string(rows.ids.size()) + " rows of " + std::to_string(spec.width),
          std::to_string(rows.values.size()) + " elements");
    if (rows.version < 0 || rows.version >= version)
      throw kRequestErrors.user(
          where, "gradients belong to rows of a version that was not there yet",
          "a version below " + std::to_string(version), std::to_string(rows.version));
    check_ids(spec, rows.feature, rows.ids, shard, shards);
  }
}

UpdatePart merge_parts(std::vector<UpdatePart> parts) {
  UpdatePart sum = std::move(parts.front());
  for (std::size_t rank = 1; rank < parts.size(); ++rank) {
    sum.gradients = add_gradients(std::move(sum.gradients), std::move(parts[rank].gradients));
  }
  return sum;
}

void apply_update(RowStore& rows, std::int64_t version, const UpdatePart& update) {
  for (const FeatureRows& gradients : update.gradients)
    if (!gradients.ids.empty())
      rows.update(version, gradients.feature, gradients.ids, gradients.values, update.rate_factor);
  rows.end_step(version);
}

}  // namespace strata
