/// Describes the data of a recommender: files of samples, the label, and how columns become numbers
/// and ids.
///
///     data:
///       train: clicks.tsv
///       label: click
///       numeric: [price, {name: age, transform: buckets, buckets: 10}]
///       categorical:
///         - {name: user, width: 16}
///         - {name: words, width: 16, pool: mean, separator: ' ', last: 20}
///
/// Errors  UserError from complete() and check(): options that contradict each other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/base/options.h"
#include "strata/tabular/synthetic_options.h"

namespace strata {

enum class SampleFormat : std::uint8_t {
  kAuto,     ///< by the name's ending
  kCsv,      ///< RFC 4180
  kTsv,      ///< tabs; no quotation
  kCriteo,   ///< Criteo's TSV without a header: label, I1 to I13, C1 to C26
  kLibsvm,   ///< columns label, qid, features, and every index by its number
  kRecords,  ///< strata convert
  kSynthetic
};

enum class NumericTransform : std::uint8_t {
  kNone,
  kZScore,  ///< less the mean, over the standard deviation, of the samples that were fitted
  kLog,     ///< sign(x) log(1 + |x|)
  kBuckets  ///< quantiles: (bucket + 1/2) / buckets - 1/2
};

/// A number of a sample. A missing one is 0 after the transform: the mean of a z-score, the median
/// of buckets.
struct NumericOptions {
  std::string name;  ///< its column
  NumericTransform transform = NumericTransform::kZScore;
  std::int64_t buckets = 10;  ///< for kBuckets
};

/// How the embeddings of one feature's ids are combined.
enum class Pooling : std::uint8_t {
  kSum,
  kMean,
  kSqrtN,     ///< sum / sqrt(number of ids)
  kMax,       ///< element by element
  kWeighted,  ///< sum of weight x row; ids are written id:weight
  kLast,      ///< the last id's row
  kSequence   ///< no pooling: the rows of the last `last` ids in order
};

enum class IdSource : std::uint8_t {
  kHash,        ///< XXH3 of the text, seeded with XXH3 of the feature's name
  kVocabulary,  ///< place of the text among those of the fitted samples, sorted by bytes
  kNumber,      ///< the text is an unsigned number of 64 bits
  kBuckets      ///< the number's quantile among the fitted samples
};

struct CategoricalOptions {
  std::string name;
  std::string column;  ///< empty: its name
  std::int64_t width = 16;
  Pooling pool = Pooling::kSum;
  std::string separator;  ///< between ids; empty: the column holds one
  std::int64_t last = 0;  ///< of several ids only the last ones are used; 0: all
  IdSource ids = IdSource::kHash;
  std::int64_t min_count = 1;  ///< for kVocabulary: rarer texts share the id of unknown ones
  std::int64_t buckets = 10;   ///< for kBuckets
  YamlSection embedding;       ///< overrides of the run's section `embedding`

  const std::string& source() const { return column.empty() ? name : column; }
};

/// What happens if a mini-batch reaches the end of an epoch.
enum class EpochEnd : std::uint8_t {
  kContinue,  ///< the next epoch fills it up
  kShort,     ///< it is short
  kDrop       ///< it is skipped
};

struct TabularOptions {
  std::string train;
  std::string validation;            ///< path; empty: the end of `train`
  double validation_fraction = 0.1;  ///< share of `train`, at its end; unused with `validation`
  SampleFormat format = SampleFormat::kAuto;
  bool header = true;                ///< csv and tsv: the first line names the columns
  std::vector<std::string> columns;  ///< csv and tsv: column names; override the header
  std::string label = "label";
  std::string positive;  ///< the label's text that means 1; empty: labels are 0 and 1
  std::string group;     ///< column; empty: no groups
  std::vector<NumericOptions> numeric;
  std::vector<CategoricalOptions> categorical;
  /// first samples from which statistics and vocabularies are computed; 0: all
  std::int64_t fit_samples = 0;
  Bytes memory = {std::int64_t{256} << 20};  ///< for blocks of records that were read
  bool shuffle = true;
  EpochEnd last_batch = EpochEnd::kContinue;
  SyntheticOptions synthetic;
};

const char* name_of(SampleFormat format);
const char* name_of(NumericTransform transform);
const char* name_of(Pooling pool);
const char* name_of(IdSource source);
const char* name_of(EpochEnd end);

void describe(OptionSet& set, const std::string& prefix, NumericOptions& options);
void describe(OptionSet& set, const std::string& prefix, CategoricalOptions& options);
void describe(OptionSet& set, const std::string& prefix, TabularOptions& options);

/// Adds the features of the format if none are named: all of Criteo's (numbers as their logarithm),
/// libsvm's `features` as weighted ids, all synthetic ones.
TabularOptions complete(TabularOptions options);

/// Rejects options that contradict each other; `prefix` as described, `where` returns the place of
/// a field.
void check(const TabularOptions& options, const std::string& prefix,
           const std::function<std::string(const std::string&)>& where);

}  // namespace strata
