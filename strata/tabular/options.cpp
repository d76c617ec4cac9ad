#include "strata/tabular/options.h"

#include <set>

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/tabular/sample_file.h"

namespace strata {

const char* name_of(SampleFormat format) {
  using enum SampleFormat;
  static constexpr EnumNames<SampleFormat> kNames{
      {kAuto, "auto"},          {kCsv, "csv"},       {kTsv, "tsv"},
      {kCriteo, "criteo"},      {kLibsvm, "libsvm"}, {kRecords, "records"},
      {kSynthetic, "synthetic"}};
  return kNames[format];
}

const char* name_of(NumericTransform transform) {
  using enum NumericTransform;
  static constexpr EnumNames<NumericTransform> kNames{
      {kNone, "none"}, {kZScore, "z-score"}, {kLog, "log"}, {kBuckets, "buckets"}};
  return kNames[transform];
}

const char* name_of(Pooling pool) {
  using enum Pooling;
  static constexpr EnumNames<Pooling> kNames{
      {kSum, "sum"},           {kMean, "mean"}, {kSqrtN, "sqrtn"},      {kMax, "max"},
      {kWeighted, "weighted"}, {kLast, "last"}, {kSequence, "sequence"}};
  return kNames[pool];
}

const char* name_of(IdSource source) {
  using enum IdSource;
  static constexpr EnumNames<IdSource> kNames{
      {kHash, "hash"}, {kVocabulary, "vocabulary"}, {kNumber, "number"}, {kBuckets, "buckets"}};
  return kNames[source];
}

const char* name_of(EpochEnd end) {
  using enum EpochEnd;
  static constexpr EnumNames<EpochEnd> kNames{
      {kContinue, "continue"}, {kShort, "short"}, {kDrop, "drop"}};
  return kNames[end];
}

namespace {

constexpr double kMostBuckets = 65536;
constexpr double kMostSamples = 1e15;
// large, but products with numbers of epochs do not overflow
constexpr double kMostMadeUp = 1e12;

}  // namespace

void describe(OptionSet& set, const std::string& prefix, NumericOptions& options) {
  set.add(prefix + ".name", &options.name, {.help = "Column of a number; missing ones are 0."});
  set.add(prefix + ".transform", &options.transform, all_named<NumericTransform>(),
          {.help = "What the model reads: the number, its z-score, sign(x) log(1 + |x|), or the "
                   "place of its quantile from -1/2 to 1/2."});
  set.add(prefix + ".buckets", &options.buckets,
          {.help = "Quantiles of transform: buckets.",
           .unit = "buckets",
           .minimum = 2,
           .maximum = kMostBuckets});
}

void describe(OptionSet& set, const std::string& prefix, CategoricalOptions& options) {
  set.add(prefix + ".name", &options.name, {.help = "Name of the feature and its table."});
  set.add(prefix + ".column", &options.column, {.help = "Column that is read; empty: the name."});
  set.add(prefix + ".width", &options.width,
          {.help = "Width of its rows.", .unit = "elements", .minimum = 1, .maximum = 65536});
  set.add(prefix + ".pool", &options.pool, all_named<Pooling>(),
          {.help = "How the rows of several ids become one; weighted: ids are written id:weight; "
                   "last: the last id's row; sequence: the rows themselves."});
  set.add(prefix + ".separator", &options.separator,
          {.help = "Text between ids; empty: the column holds one id."});
  set.add(prefix + ".last", &options.last,
          {.help = "Of several ids only the last so many; 0: all.",
           .unit = "ids",
           .minimum = 0,
           .maximum = 65536});
  set.add(prefix + ".ids", &options.ids, all_named<IdSource>(),
          {.help = "How a text becomes an id: its hash, its place among the sorted texts of the "
                   "training samples, the number that it is, or that number's quantile."});
  set.add(prefix + ".min_count", &options.min_count,
          {.help = "ids: vocabulary: texts that are rarer share the id of unknown ones.",
           .unit = "samples",
           .minimum = 1});
  set.add(prefix + ".buckets", &options.buckets,
          {.help = "Quantiles of ids: buckets.",
           .unit = "buckets",
           .minimum = 2,
           .maximum = kMostBuckets});
  set.add(prefix + ".embedding", &options.embedding,
          {.help = "What this feature's rows have otherwise than the section embedding says."});
}

void describe(OptionSet& set, const std::string& prefix, TabularOptions& options) {
  set.add(prefix + ".train", &options.train, {.help = "File of samples to train on."});
  set.add(prefix + ".validation", &options.validation,
          {.help = "File to validate on; empty: the end of the training file."});
  set.add(prefix + ".validation_fraction", &options.validation_fraction,
          {.help = "Fraction of the training file kept for validation, at its end; 0 keeps none.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 0.5});
  set.add(prefix + ".format", &options.format, all_named<SampleFormat>(),
          {.help = "Of both files; auto: by the end of their names; records: of strata convert; "
                   "synthetic: no file, samples are made up."});
  set.add(prefix + ".header", &options.header,
          {.help = "csv and tsv: whether the first line names the columns."});
  set.add(prefix + ".columns", &options.columns,
          {.help = "csv and tsv: names of the columns; overrides the header."});
  set.add(prefix + ".label", &options.label, {.help = "Column of the label."});
  set.add(prefix + ".positive", &options.positive,
          {.help = "The label's text that means 1, others mean 0; empty: labels are 0 and 1."});
  set.add(prefix + ".group", &options.group,
          {.help = "Column, such as the user, by which AUC is averaged, too; empty: none."});
  set.add(prefix + ".numeric", &options.numeric, "name", {.help = "Columns that are numbers."});
  set.add(prefix + ".categorical", &options.categorical, "name",
          {.help = "Columns whose ids have rows; none and none numeric: all of criteo, libsvm or "
                   "synthetic."});
  set.add(
      prefix + ".fit_samples", &options.fit_samples,
      {.help =
           "First training samples from which statistics and vocabularies are computed; 0: all.",
       .unit = "samples",
       .minimum = 0,
       .maximum = kMostSamples});
  set.add(prefix + ".memory", &options.memory,
          {.help = "format: records: memory of a process for the first blocks of each file, once "
                   "they were read; 0: every sample is read from the file."});
  set.add(prefix + ".shuffle", &options.shuffle,
          {.help = "Draw the samples of every epoch in an order of its own."});
  set.add(prefix + ".last_batch", &options.last_batch, all_named<EpochEnd>(),
          {.help = "The mini-batch at the end of an epoch: filled up from the next one, short, or "
                   "dropped."});
  describe(set, prefix + ".synthetic", options.synthetic);
}

void describe(OptionSet& set, const std::string& prefix, SyntheticFeature& feature) {
  set.add(prefix + ".name", &feature.name, {.help = "Column."});
  set.add(prefix + ".cardinality", &feature.cardinality,
          {.help = "Ids that there are.", .unit = "ids", .minimum = 1, .maximum = 0x1p50});
  set.add(prefix + ".zipf", &feature.zipf,
          {.help = "Exponent of their frequencies; 0: all the same.", .minimum = 0, .maximum = 8});
  set.add(prefix + ".least_ids", &feature.least_ids,
          {.help = "Fewest ids of a sample.", .unit = "ids", .minimum = 0, .maximum = 4096});
  set.add(prefix + ".most_ids", &feature.most_ids,
          {.help = "Most ids of a sample; every number between is as likely.",
           .unit = "ids",
           .minimum = 1,
           .maximum = 4096});
}

void describe(OptionSet& set, const std::string& prefix, SyntheticOptions& options) {
  set.add(prefix + ".samples", &options.samples,
          {.help = "format: synthetic: samples of an epoch.",
           .unit = "samples",
           .minimum = 1,
           .maximum = kMostMadeUp});
  set.add(prefix + ".validation_samples", &options.validation_samples,
          {.help = "Samples to validate on; they follow those of the epoch.",
           .unit = "samples",
           .minimum = 0,
           .maximum = kMostMadeUp});
  set.add(prefix + ".features", &options.features, "name", {.help = "Columns of ids."});
  set.add(prefix + ".numeric", &options.numeric,
          {.help = "Columns n1, n2 and so on, standard normal.", .minimum = 0, .maximum = 4096});
  set.add(prefix + ".positive", &options.positive,
          {.help = "About this fraction of labels is 1.",
           .unit = "ratio",
           .minimum = 0.0001,
           .maximum = 0.9999});
  set.add(prefix + ".linear", &options.linear,
          {.help = "Standard deviation of what single features add to the logit.",
           .minimum = 0,
           .maximum = 100});
  set.add(prefix + ".pairwise", &options.pairwise,
          {.help = "The same of pairs of features.", .minimum = 0, .maximum = 100});
  set.add(prefix + ".noise", &options.noise,
          {.help = "Fraction of labels that depend on nothing.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 1});
  set.add(prefix + ".drift_every", &options.drift_every,
          {.help = "Samples after which frequencies move on by 1 % of the ids; 0: never.",
           .unit = "samples",
           .minimum = 0,
           .maximum = kMostSamples});
  set.retire(prefix + ".drift_share", "0.01",
             "set data.synthetic.drift_every: each time frequencies move on by 1 % of the ids");
  set.add(prefix + ".seed", &options.seed, {.help = "Of everything that is drawn.", .minimum = 0});
}

TabularOptions complete(TabularOptions options) {
  if (!options.numeric.empty() || !options.categorical.empty()) return options;
  const SampleFormat format = format_of(options.train, options.format);
  if (format == SampleFormat::kCriteo) {
    for (int i = 1; i <= 13; ++i)
      options.numeric.push_back(
          {.name = "I" + std::to_string(i), .transform = NumericTransform::kLog});
    for (int i = 1; i <= 26; ++i) options.categorical.push_back({.name = "C" + std::to_string(i)});
  } else if (format == SampleFormat::kLibsvm) {
    options.categorical.push_back({.name = "features",
                                   .pool = Pooling::kWeighted,
                                   .separator = " ",
                                   .ids = IdSource::kNumber});
  } else if (format == SampleFormat::kSynthetic) {
    for (std::int64_t i = 1; i <= options.synthetic.numeric; ++i)
      options.numeric.push_back(
          {.name = "n" + std::to_string(i), .transform = NumericTransform::kNone});
    for (const SyntheticFeature& feature : options.synthetic.features) {
      const bool several = feature.most_ids > 1 || feature.least_ids == 0;
      options.categorical.push_back({.name = feature.name,
                                     .pool = several ? Pooling::kMean : Pooling::kSum,
                                     .separator = several ? " " : "",
                                     .ids = IdSource::kNumber});
    }
  }
  return options;
}

namespace {

class Checker {
 public:
  Checker(const std::string& prefix, const std::function<std::string(const std::string&)>& where)
      : prefix_(prefix), where_(where) {}

  void require(bool holds, const std::string& field, const std::string& what,
               const std::string& expected, const std::string& got, const std::string& fix) const {
    if (holds) return;
    throw UserError({.operation = "tabular.options",
                     .where = where_(prefix_ + "." + field),
                     .what = prefix_ + "." + field + ": " + what,
                     .expected = expected,
                     .got = got,
                     .fix = fix});
  }

  void require_name(const std::string& list, std::size_t i, const std::string& name,
                    std::set<std::string>& names) const {
    const std::string field = list + "[" + std::to_string(i) + "].name";
    require(!name.empty(), field, "a feature without a name", "the name of a column", "nothing",
            "write it like `name: price`");
    require(names.insert(name).second, field, "two features have one name", "another name",
            quote(name), "give the second a name of its own, and its column");
  }

 private:
  const std::string& prefix_;
  const std::function<std::string(const std::string&)>& where_;
};

void check_categorical(const CategoricalOptions& feature, const std::string& place,
                       const Checker& check) {
  check.require(feature.pool != Pooling::kSequence || feature.last > 0, place + ".last",
                "a sequence has a length", "the number of its last ids", "0",
                "set last to the ids that a model reads");
  check.require(feature.ids == IdSource::kVocabulary || feature.min_count == 1,
                place + ".min_count", "only a vocabulary counts", "ids: vocabulary",
                name_of(feature.ids), "set ids: vocabulary, or admission in its embedding");
  check.require(feature.ids != IdSource::kBuckets || feature.separator.empty(),
                place + ".separator", "quantiles are of one number", "none",
                quote(feature.separator), "remove the separator");
  check.require(feature.pool != Pooling::kWeighted || feature.ids != IdSource::kBuckets,
                place + ".pool", "a quantile has no weight", "another pool", "weighted",
                "set pool: sum");
}

// A column of several ids is read as one text if its separator is missing.
void check_separator(const TabularOptions& options, const CategoricalOptions& feature,
                     const std::string& place, const Checker& check) {
  if (!feature.separator.empty()) return;
  bool several = false;
  for (const SyntheticFeature& made : options.synthetic.features)
    several = several || (options.format == SampleFormat::kSynthetic &&
                          made.name == feature.source() && made.most_ids > 1);
  const bool libsvm = options.format == SampleFormat::kLibsvm ||
                      (options.format == SampleFormat::kAuto && !options.train.empty() &&
                       format_of(options.train, options.format) == SampleFormat::kLibsvm);
  several = several || (libsvm && feature.source() == "features");
  check.require(!several, place + ".separator", "the column has several ids, with blanks between",
                "' '", "none", "set separator: ' '");
}

void check_synthetic(const TabularOptions& options, const Checker& check) {
  const bool synthetic = options.format == SampleFormat::kSynthetic;
  for (const auto& [field, path] :
       {std::pair("train", &options.train), std::pair("validation", &options.validation)})
    check.require(!synthetic || path->empty(), field, "made-up samples have no file", "nothing",
                  quote(*path), "remove it, or data.format");
  check.require(!synthetic || !options.synthetic.features.empty() || options.synthetic.numeric > 0,
                "synthetic.features", "made-up samples have columns", "at least one", "none",
                "name one, such as {name: user, cardinality: 1000}");
  std::set<std::string> names;
  for (std::size_t i = 0; i < options.synthetic.features.size(); ++i) {
    const SyntheticFeature& feature = options.synthetic.features[i];
    check.require_name("synthetic.features", i, feature.name, names);
    check.require(feature.least_ids <= feature.most_ids,
                  "synthetic.features[" + std::to_string(i) + "].least_ids", "more than most_ids",
                  "at most " + std::to_string(feature.most_ids), std::to_string(feature.least_ids),
                  "set most_ids, too");
  }
}

// A model that reads the label has nothing to learn.
void require_no_label(const TabularOptions& options, const std::string& column,
                      const std::string& field, const Checker& check) {
  check.require(column != options.label, field, "a feature is read from the label's column",
                "another column", quote(column), "remove the feature, or correct data.label");
}

}  // namespace

void check(const TabularOptions& options, const std::string& prefix,
           const std::function<std::string(const std::string&)>& where) {
  const Checker check(prefix, where);
  check.require(options.format == SampleFormat::kSynthetic || !options.train.empty(), "train",
                "no file to train on", "the path of a file of samples", "nothing",
                "set " + prefix + ".train");
  check.require(!options.label.empty(), "label", "no label", "the name of a column", "nothing",
                "set " + prefix + ".label");
  check_synthetic(options, check);
  const TabularOptions completed = complete(options);
  check.require(!completed.numeric.empty() || !completed.categorical.empty(), "categorical",
                "nothing to learn from", "names of columns here or in " + prefix + ".numeric",
                "nothing", "name the columns that a model reads");
  std::set<std::string> names;
  for (std::size_t i = 0; i < options.numeric.size(); ++i) {
    check.require_name("numeric", i, options.numeric[i].name, names);
    require_no_label(options, options.numeric[i].name, "numeric[" + std::to_string(i) + "].name",
                     check);
  }
  names.clear();  // a number may also have an embedding
  for (std::size_t i = 0; i < options.categorical.size(); ++i) {
    const CategoricalOptions& feature = options.categorical[i];
    const std::string place = "categorical[" + std::to_string(i) + "]";
    check.require_name("categorical", i, feature.name, names);
    check_categorical(feature, place, check);
    check_separator(options, feature, place, check);
    require_no_label(options, feature.source(),
                     place + (feature.column.empty() ? ".name" : ".column"), check);
  }
}

}  // namespace strata
