#include "strata/rowserver/feature_file.h"

#include <cstdint>

#include "strata/base/errors.h"
#include "strata/base/options.h"
#include "strata/base/random_access_file.h"
#include "strata/rowserver/options.h"

namespace strata {

// Not in the anonymous namespace: OptionSet's lists find `describe` by argument-dependent lookup.
struct FeatureEntry {
  std::string name;
  std::int64_t width = 16;
  RowOptions rows;
};

void describe(OptionSet& set, const std::string& prefix, FeatureEntry& entry) {
  constexpr double kMostElements = 1 << 16;
  set.add(prefix + ".name", &entry.name, {.help = "Of its table."});
  set.add(
      prefix + ".width", &entry.width,
      {.help = "Width of its rows.", .unit = "elements", .minimum = 1, .maximum = kMostElements});
  describe_rows(set, prefix, entry.rows);
}

std::vector<FeatureSpec> read_features(const std::string& path) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 21;
  const std::string text =
      read_file(path, {.operation = "embed.features", .fix = "see docs/formats.md"}, kMostBytes);
  std::vector<FeatureEntry> entries;
  OptionSet set;
  set.add("features", &entries, "name", {.help = "Of the rows."});
  set.load_yaml(text, path);
  std::vector<FeatureSpec> features;
  for (const FeatureEntry& entry : entries)
    features.push_back(feature_spec(entry.name, entry.width, entry.rows));
  if (!features.empty()) return features;
  throw UserError({.operation = "embed.features",
                   .where = path,
                   .what = "the file names no features",
                   .expected = "{features: [{name: user, width: 16}]}",
                   .got = "none",
                   .fix = "see docs/formats.md"});
}

}  // namespace strata
