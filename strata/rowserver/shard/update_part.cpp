#include "strata/rowserver/shard/update_part.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/helper_threads.h"
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
  sum.values.resize(first.values.size() + second.values.size());
  const float *a = first.values.data(), *b = second.values.data();
  float* to = sum.values.data();
  std::size_t i = 0, j = 0;
  while (i < first.ids.size() || j < second.ids.size()) {
    const bool ends = i == first.ids.size();
    const bool takes_first = !ends && (j == second.ids.size() || first.ids[i] <= second.ids[j]);
    const bool takes_second = j < second.ids.size() && (ends || second.ids[j] <= first.ids[i]);
    sum.ids.push_back(takes_first ? first.ids[i] : second.ids[j]);
    if (takes_first && takes_second)
      std::transform(a, a + width, b, to, std::plus<>());
    else
      std::copy_n(takes_first ? a : b, width, to);
    to += width;
    if (takes_first) ++i, a += width;
    if (takes_second) ++j, b += width;
  }
  sum.values.resize(sum.ids.size() * width);
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

UpdatePart merge_parts(std::vector<UpdatePart> parts, HelperThreads& threads) {
  UpdatePart sum = std::move(parts.front());
  if (parts.size() == 1) return sum;
  std::map<int, std::vector<FeatureRows>> by_feature;  // in the order of the parts
  for (FeatureRows& rows : sum.gradients) by_feature[rows.feature].push_back(std::move(rows));
  for (UpdatePart& part : std::span(parts).subspan(1))
    for (FeatureRows& rows : part.gradients) by_feature[rows.feature].push_back(std::move(rows));
  std::vector<std::vector<FeatureRows>> terms;
  for (auto& [feature, rows] : by_feature) terms.push_back(std::move(rows));
  sum.gradients.resize(terms.size());
  threads.run(terms.size(), [&](std::size_t i) {
    FeatureRows total = std::move(terms[i].front());
    for (FeatureRows& rows : std::span(terms[i]).subspan(1))
      total = add_rows(std::move(total), std::move(rows));
    sum.gradients[i] = std::move(total);
  });
  return sum;
}

void apply_update(RowStore& rows, std::int64_t version, const UpdatePart& update,
                  HelperThreads& threads) {
  std::vector<std::size_t> ids(rows.features().size());
  for (const FeatureRows& gradients : update.gradients)
    ids[static_cast<std::size_t>(gradients.feature)] = gradients.ids.size();
  const auto apply = [&](std::size_t i) {
    const FeatureRows& gradients = update.gradients[i];
    if (!gradients.ids.empty())
      rows.update(version, gradients.feature, gradients.ids, gradients.values, update.rate_factor);
  };
  if (rows.features_are_independent(ids))
    threads.run(update.gradients.size(), apply);
  else
    for (std::size_t i = 0; i < update.gradients.size(); ++i) apply(i);
  rows.end_step(version);
}

}  // namespace strata
