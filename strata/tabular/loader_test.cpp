#include "strata/tabular/loader.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "strata/tabular/log_test.h"

namespace strata {
namespace {

using Ids = std::vector<std::uint64_t>;
using Floats = std::vector<float>;

std::uint64_t hash_of(const std::string& feature, const std::string& text) {
  return XXH3_64bits_withSeed(text.data(), text.size(),
                              XXH3_64bits(feature.data(), feature.size()));
}

class TabularLoaderTest : public LogTest {
 protected:
  /// Sample i has n = i, u = u<i mod 7>.
  TabularOptions numbered(int samples) const {
    std::string text = "label,n,u\n";
    for (int i = 0; i < samples; ++i)
      text += std::to_string(i % 2) + "," + std::to_string(i) + ",u" + std::to_string(i % 7) + "\n";
    return {.train = write("n.csv", text),
            .validation_fraction = 0,
            .numeric = {{.name = "n", .transform = NumericTransform::kNone}},
            .categorical = {{.name = "u"}}};
  }
  SampleBatch all_of(const TabularOptions& options, const std::string& state = "") const {
    const TabularData data = open_tabular(options, 1, state);
    return data.train.at(0, data.train.samples());
  }
};

constexpr const char* kLog =
    "click,price,age,user,words,rated\n"
    "yes,10,1,ann,a b  a,i:2 j\n"
    "no,,2,bob,,\n"
    "yes,30,3,,b,k:-0.5\n"
    "no,20,4,ann,c d e f,i:1:4\n";

TEST_F(TabularLoaderTest, MakesNumbersIdsAndLabels) {
  const TabularOptions options{
      .train = write("a.csv", kLog),
      .validation_fraction = 0,
      .label = "click",
      .positive = "yes",
      .group = "user",
      .numeric = {{.name = "price"},
                  {.name = "age", .transform = NumericTransform::kLog},
                  {.name = "age2"}},
      .categorical = {{.name = "user"},
                      {.name = "words", .pool = Pooling::kMean, .separator = " ", .last = 3},
                      {.name = "rated", .pool = Pooling::kWeighted, .separator = " "},
                      {.name = "word_ids",
                       .column = "words",
                       .separator = " ",
                       .ids = IdSource::kVocabulary,
                       .min_count = 2}},
      .shuffle = false};
  TabularOptions without = options;
  without.numeric.pop_back();
  EXPECT_EQ(refusal([&] { all_of(options); }).what, "there is no column 'age2'");
  const SampleBatch batch = all_of(without);
  ASSERT_EQ(batch.samples, 4);
  EXPECT_EQ(batch.labels, (Floats{1, 0, 1, 0}));
  const double deviation = std::sqrt(200.0 / 3.0);  // standard deviation of 10, 30, 20
  ASSERT_EQ(batch.numeric.size(), 8u);
  EXPECT_NEAR(batch.numeric[0], -10 / deviation, 1e-6);
  EXPECT_EQ(batch.numeric[2], 0) << "missing";
  EXPECT_NEAR(batch.numeric[4], 10 / deviation, 1e-6);
  EXPECT_FLOAT_EQ(batch.numeric[1], std::log(2.0F));
  EXPECT_FLOAT_EQ(batch.numeric[7], std::log(5.0F));
  EXPECT_EQ(batch.groups[0], batch.groups[3]);
  EXPECT_NE(batch.groups[0], batch.groups[1]);
  const IdLists& user = batch.categorical[0];
  EXPECT_EQ(user.ids, (Ids{hash_of("user", "ann"), hash_of("user", "bob"), hash_of("user", ""),
                           hash_of("user", "ann")}));
  EXPECT_TRUE(user.weights.empty());
  const IdLists& words = batch.categorical[1];
  EXPECT_EQ(words.offsets, (std::vector<std::int64_t>{0, 3, 3, 4, 7}));
  EXPECT_EQ(words.ids[4], hash_of("words", "d")) << "the last three";
  const IdLists& rated = batch.categorical[2];
  EXPECT_EQ(rated.offsets, (std::vector<std::int64_t>{0, 2, 2, 3, 4}));
  EXPECT_EQ(rated.weights, (Floats{2, 1, -0.5, 4}));
  EXPECT_EQ(rated.ids[3], hash_of("rated", "i:1"));
  EXPECT_EQ(batch.categorical[3].ids, (Ids{0, 1, 0, 1, 2, 2, 2, 2})) << "a, b, and unknown ones";
}

TEST_F(TabularLoaderTest, FitsQuantilesOfTrainingSamples) {
  TabularOptions options = numbered(100);
  options.numeric = {{.name = "n", .transform = NumericTransform::kBuckets, .buckets = 4}};
  options.categorical = {{.name = "n", .ids = IdSource::kBuckets, .buckets = 10}};
  options.shuffle = false;
  const SampleBatch batch = all_of(options);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(batch.numeric[i], (i / 25 + 0.5F) / 4 - 0.5F);
    EXPECT_EQ(batch.categorical[0].ids[i], static_cast<std::uint64_t>(i / 10));
  }
}

TEST_F(TabularLoaderTest, KeepsPreprocessingInCheckpoint) {
  TabularOptions options{
      .train = write("a.csv", kLog),
      .validation_fraction = 0,
      .label = "click",
      .positive = "yes",
      .numeric = {{.name = "price"},
                  {.name = "age", .transform = NumericTransform::kBuckets, .buckets = 3}},
      .categorical = {{.name = "user", .ids = IdSource::kVocabulary},
                      {.name = "age", .ids = IdSource::kBuckets, .buckets = 2}},
      .shuffle = false};
  const TabularData data = open_tabular(options, 1);
  const std::string state = data.preprocessing->save_state();
  // Other samples; the preprocessing of the first ones still applies.
  options.train =
      write("b.csv", "age,click,price,user\n3,yes,12.5,\xff\n1,no,1,zoe\n,no,30,ann\n9,yes,,bob\n");
  const SampleBatch batch = all_of(options, state);
  const double deviation = std::sqrt(200.0 / 3.0);
  EXPECT_EQ(batch.numeric[0], static_cast<float>((12.5 - 20) / deviation));
  EXPECT_EQ(batch.categorical[0].ids, (Ids{3, 3, 1, 2})) << "'', ann, bob, and unknown";
  EXPECT_EQ(batch.categorical[1].ids, (Ids{1, 0, 2, 1})) << "a missing one has an id of its own";
  EXPECT_EQ(open_tabular(options, 1, state).preprocessing->save_state(), state);
  const std::string own = open_tabular(options, 1).preprocessing->save_state();
  EXPECT_NE(own, state);
  EXPECT_EQ(open_tabular(options, 1, own).preprocessing->save_state(), own) << "not UTF-8";
  options.train = write("c.csv", "age,click,price,us\xe9r\n3,yes,12.5,ann\n1,no,1,zoe\n");
  options.categorical[0].name = "us\xe9r";
  options.columns = {"age", "click", "price", "us\xe9r"};  // the header would have to be UTF-8
  const std::string named = open_tabular(options, 1).preprocessing->save_state();
  EXPECT_EQ(open_tabular(options, 1, named).preprocessing->save_state(), named) << "nor its name";
}

TEST_F(TabularLoaderTest, RejectsStateOfDifferentFeatures) {
  TabularOptions options = numbered(10);
  const std::string state = open_tabular(options, 1).preprocessing->save_state();
  const auto refusal_with = [&](const TabularOptions& other, const std::string& text) {
    return refusal([&] { open_tabular(other, 1, text); });
  };
  TabularOptions renamed = options;
  renamed.numeric[0].name = "u";
  EXPECT_EQ(refusal_with(renamed, state).expected, "'u', as in the recipe");
  renamed = options;
  renamed.categorical[0].ids = IdSource::kVocabulary;
  EXPECT_EQ(refusal_with(renamed, state).expected, "vocabulary, as in the recipe");
  renamed.categorical.clear();
  EXPECT_EQ(refusal_with(renamed, state).expected, "0 features, as in the recipe");
  for (const char* text : {"", "{}", "[]", "{\"version\":2}", "{\"version\":1,\"numeric\":3}"}) {
    if (*text != 0) EXPECT_FALSE(refusal_with(options, text).what.empty()) << text;
  }
  for (std::size_t cut = 1; cut < state.size(); ++cut)
    EXPECT_FALSE(refusal_with(options, state.substr(0, cut)).what.empty());
}

TEST_F(TabularLoaderTest, RejectsInvalidNumberLabelOrId) {
  const auto refusal_of = [&](const std::string& text, const TabularOptions& features) {
    TabularOptions options = features;
    options.train = write("bad.csv", text);
    options.validation_fraction = 0;
    return refusal([&] { all_of(options); });
  };
  const TabularOptions number{.numeric = {{.name = "n", .transform = NumericTransform::kNone}}};
  const ErrorText text = refusal_of("label,n\n1,1\n\n0,abc\n", number);
  EXPECT_TRUE(text.where.ends_with("/bad.csv:4, column 'n'")) << text.where;
  EXPECT_EQ(text.got, "'abc'");
  EXPECT_TRUE(text.fix.starts_with("name a column of texts in data.categorical")) << text.fix;
  EXPECT_TRUE(refusal_of("label,n\n1,1.5.2\n", number).fix.starts_with("correct or remove"));
  for (const char* bad : {"nan", "inf", "1e400", "1e39", "0x10", "1,5", "+-1", "1.5.2", "--1"})
    EXPECT_EQ(refusal_of("label,n\n1,\"" + std::string(bad) + "\"\n", number).what,
              "this is no number")
        << bad;
  EXPECT_EQ(refusal_of("label,n\n2,1\n", number).what, "this is no label");
  EXPECT_EQ(refusal_of("label,n\n,1\n", number).what, "this is no label");
  TabularOptions positive = number;
  positive.positive = ">50K";
  EXPECT_EQ(refusal_of("label,n\n<=50K,1\n>50K.,1\n", positive).what,
            "no sample has the label that means 1");
  EXPECT_EQ(refusal_of("label,n\n>50K,1\n,1\n", positive).what, "a sample without a label");
  const TabularOptions id{.categorical = {{.name = "n", .ids = IdSource::kNumber}}};
  for (const char* bad : {"-1", "18446744073709551616", "1.0", "a"})
    EXPECT_EQ(refusal_of("label,n\n1," + std::string(bad) + "\n", id).what, "this is no id") << bad;
}

TEST_F(TabularLoaderTest, ReadsLimitsOfIdRange) {
  TabularOptions options{.train = write("a.csv", "label,n\n1,18446744073709551615\n0,0\n1,\n"),
                         .validation_fraction = 0,
                         .categorical = {{.name = "n", .ids = IdSource::kNumber}},
                         .shuffle = false};
  const SampleBatch batch = all_of(options);
  EXPECT_EQ(batch.categorical[0].ids, (Ids{~std::uint64_t{0}, 0}));
  EXPECT_EQ(batch.categorical[0].offsets, (std::vector<std::int64_t>{0, 1, 2, 2}));
}

TEST_F(TabularLoaderTest, ReturnsSameSamplesFromAnyPositionAndInParts) {
  const TabularOptions options = numbered(20);
  const TabularData data = open_tabular(options, 5);
  const Floats run = data.train.at(0, 60).numeric;  // three epochs
  for (std::int64_t seen = 0; seen < 53; seen += 4) {
    const TabularData resumed = open_tabular(options, 5);
    EXPECT_EQ(resumed.train.at(seen, 7).numeric,
              Floats(run.begin() + seen, run.begin() + seen + 7));
    EXPECT_EQ(resumed.train.at(seen, 7, 2, 3).numeric,
              Floats(run.begin() + seen + 2, run.begin() + seen + 5));
  }
  for (int epoch = 0; epoch < 3; ++epoch) {
    Floats sorted(run.begin() + 20 * epoch, run.begin() + 20 * epoch + 20), all(20);
    std::iota(all.begin(), all.end(), 0.0F);
    EXPECT_NE(sorted, all);
    std::ranges::sort(sorted);
    EXPECT_EQ(sorted, all);
  }
  EXPECT_NE(open_tabular(options, 6).train.at(0, 60).numeric, run);
}

TEST_F(TabularLoaderTest, EndsEpochsAsConfigured) {
  TabularOptions options = numbered(10);
  options.shuffle = false;
  const auto run = [&](EpochEnd end) {
    options.last_batch = end;
    const TabularData data = open_tabular(options, 1);
    std::vector<Floats> batches;
    std::int64_t seen = 0;
    for (std::int64_t step = 0; step < data.train.steps(2, 4); ++step) {
      batches.push_back(data.train.at(seen, 4).numeric);
      seen += data.train.size(seen, 4);
    }
    return batches;
  };
  EXPECT_EQ(
      run(EpochEnd::kContinue),
      (std::vector<Floats>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 0, 1}, {2, 3, 4, 5}, {6, 7, 8, 9}}));
  EXPECT_EQ(run(EpochEnd::kShort),
            (std::vector<Floats>{
                {0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}, {0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}));
  EXPECT_EQ(run(EpochEnd::kDrop),
            (std::vector<Floats>{{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(refusal([&] { open_tabular(options, 1).train.at(0, 11); }).what,
            "every mini-batch would be dropped");
}

TEST_F(TabularLoaderTest, ValidatesOnEndOrOnSeparateFile) {
  TabularOptions options = numbered(20);
  options.validation_fraction = 0.2;
  const TabularData data = open_tabular(options, 1);
  EXPECT_EQ(data.train.samples(), 16);
  ASSERT_EQ(data.validation.samples(), 4);
  EXPECT_EQ(data.validation.at(0, 3).numeric, (Floats{16, 17, 18}));
  EXPECT_EQ(data.validation.at(3, 3).numeric, (Floats{19}));
  EXPECT_EQ(data.validation.at(4, 3).samples, 0);
  for (const float n : data.train.at(0, 100).numeric) EXPECT_LT(n, 16);
  options.validation = write("v.csv", "u,n,label\nx,7,1\n");
  const TabularData two = open_tabular(options, 1);
  EXPECT_EQ(two.train.samples(), 20);
  EXPECT_EQ(two.validation.at(0, 9).numeric, (Floats{7}));
}

TEST_F(TabularLoaderTest, FitsNothingOnValidationSamples) {
  TabularOptions options = numbered(100);
  options.numeric[0].transform = NumericTransform::kZScore;
  options.categorical[0].ids = IdSource::kVocabulary;
  options.validation_fraction = 0.5;
  options.shuffle = false;
  const TabularData data = open_tabular(options, 1);
  const double mean = 24.5, deviation = std::sqrt((50.0 * 50.0 - 1) / 12);
  EXPECT_NEAR(data.validation.at(0, 1).numeric[0], (50 - mean) / deviation, 1e-5);
  options.fit_samples = 3;
  EXPECT_NEAR(open_tabular(options, 1).train.at(4, 1).numeric[0], 3 / std::sqrt(2.0 / 3), 1e-5);
}

TEST_F(TabularLoaderTest, AddsFeaturesOfFormat) {
  const TabularOptions criteo = complete({.train = "day_0", .format = SampleFormat::kCriteo});
  EXPECT_EQ(criteo.numeric.size(), 13u);
  EXPECT_EQ(criteo.categorical.size(), 26u);
  const TabularOptions libsvm{
      .train = write("a.svm", "1 3:0.5 9:2\n-1 4:1\n"), .validation_fraction = 0, .shuffle = false};
  const SampleBatch batch = all_of(libsvm);
  EXPECT_EQ(batch.labels, (Floats{1, 0}));
  EXPECT_EQ(batch.categorical[0].ids, (Ids{3, 9, 4}));
  EXPECT_EQ(batch.categorical[0].weights, (Floats{0.5, 2, 1}));
}

// Looking up an embedding by the text of the log returns the one that training used.
TEST_F(TabularLoaderTest, TextHasIdOfItsSample) {
  const TabularOptions options{
      .train = write("ids.csv",
                     "label,user,city,shop,age\n1,ann,Rome,7,30\n0,bob,Oslo,9,40\n"
                     "1,cid,Rome,11,50\n"),
      .validation_fraction = 0,
      .categorical = {{.name = "user"},
                      {.name = "city", .ids = IdSource::kVocabulary},
                      {.name = "shop", .ids = IdSource::kNumber},
                      {.name = "age", .ids = IdSource::kBuckets, .buckets = 3}},
      .shuffle = false};
  const TabularData data = open_tabular(options, 1);
  const SampleBatch batch = data.train.at(0, 3);
  const std::vector<std::vector<std::string>> texts = {
      {"ann", "bob", "cid"}, {"Rome", "Oslo", "Rome"}, {"7", "9", "11"}, {"30", "40", "50"}};
  for (std::size_t feature = 0; feature < texts.size(); ++feature)
    for (std::size_t sample = 0; sample < 3; ++sample)
      EXPECT_EQ(data.preprocessing->id_of(feature, texts[feature][sample]),
                batch.categorical[feature].ids[sample])
          << feature << ' ' << sample;
  EXPECT_EQ(data.preprocessing->id_of(1, "Bonn"), 2u) << "after the last known id";
  EXPECT_EQ(data.preprocessing->id_of(3, ""), 3u);
  EXPECT_FALSE(data.preprocessing->id_of(2, "many"));
  EXPECT_FALSE(data.preprocessing->id_of(3, "old"));
  EXPECT_FALSE(data.preprocessing->id_of(3, "1e300")) << "a log with it is refused";
}

// A permutation of the validation samples, and the same ones one by one.
TEST_F(TabularLoaderTest, ReadsValidationSamplesInAnyOrder) {
  TabularOptions options = numbered(50);
  options.validation_fraction = 0.4;
  const TabularData data = open_tabular(options, 1);
  ASSERT_EQ(data.validation.samples(), 20);
  EXPECT_EQ(data.validation.read({19, 0, 7}).numeric, (Floats{49, 30, 37}));
  EXPECT_EQ(data.validation.read({}).samples, 0);
  EXPECT_EQ(data.validation.at(5, 3).numeric, data.validation.read({5, 6, 7}).numeric);
}

}  // namespace
}  // namespace strata
