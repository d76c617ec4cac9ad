#include "strata/tabular/options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "strata/tabular/log_test.h"

namespace strata {
namespace {

class TabularOptionsTest : public LogTest {
 protected:
  static TabularOptions read(const std::string& yaml) {
    TabularOptions options;
    OptionSet set;
    describe(set, "data", options);
    set.load_yaml(yaml, "r.yaml");
    check(options, "data",
          [&](const std::string& path) { return set.is_set(path) ? set.where(path) : "r.yaml"; });
    return options;
  }
  static ErrorText refusal_of(const std::string& data) {
    return refusal([&] { read("data: {" + data + "}"); });
  }
};

// Every recipe of the documentation on logs.
TEST_F(TabularOptionsTest, ReadsDocumentedRecipes) {
  std::ifstream file(STRATA_SOURCE_DIR "/docs/clicks.md");
  std::stringstream page;
  page << file.rdbuf();
  const std::string text = page.str();
  std::vector<TabularOptions> found;
  for (std::size_t at = 0; (at = text.find("```yaml\n", at)) != std::string::npos;) {
    const std::size_t begin = at + 8;
    at = text.find("```", begin);
    found.push_back(read(text.substr(begin, at - begin)));
  }
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].numeric[1].transform, NumericTransform::kBuckets);
  EXPECT_EQ(found[0].categorical[0].embedding.text(), "{staleness: 2}");
  EXPECT_EQ(found[0].categorical[1].pool, Pooling::kMean);
  EXPECT_EQ(found[0].categorical[1].separator, " ");
  EXPECT_EQ(found[0].categorical[2].source(), "words");
  EXPECT_EQ(complete(found[1]).categorical.size(), 3u);
  EXPECT_EQ(complete(found[1]).numeric.size(), 4u);
  EXPECT_EQ(found[2].positive, ">50K");
  EXPECT_EQ(found[2].categorical.size(), 8u);
  EXPECT_EQ(found[2].numeric.size(), 5u);
}

TEST_F(TabularOptionsTest, RejectsContradictionsAtTheirPlace) {
  const std::string base = "train: a.csv, categorical: [user], ";
  EXPECT_NO_THROW(read("data: {" + base + "label: y}"));
  EXPECT_EQ(refusal_of("label: y").what, "data.train: no file to train on");
  EXPECT_EQ(refusal_of("train: a.csv").what, "data.categorical: nothing to learn from");
  EXPECT_EQ(refusal_of(base + "label: ''").what, "data.label: no label");
  const ErrorText twice = refusal_of(base + "numeric: [a, {name: b}, a]");
  EXPECT_EQ(twice.what, "data.numeric[2].name: two features have one name");
  EXPECT_EQ(twice.where, "r.yaml:1:67");
  EXPECT_EQ(refusal_of("train: a.csv, numeric: [{transform: log}]").what,
            "data.numeric[0].name: a feature without a name");
  const auto of_feature = [&](const std::string& fields) {
    return refusal_of("train: a.csv, categorical: [{name: u, " + fields + "}]").what;
  };
  EXPECT_EQ(of_feature("pool: sequence"), "data.categorical[0].last: a sequence has a length");
  EXPECT_EQ(of_feature("min_count: 2"), "data.categorical[0].min_count: only a vocabulary counts");
  EXPECT_EQ(of_feature("ids: buckets, separator: ' '"),
            "data.categorical[0].separator: quantiles are of one number");
  EXPECT_EQ(of_feature("ids: buckets, pool: weighted"),
            "data.categorical[0].pool: a quantile has no weight");
  EXPECT_EQ(of_feature("pool: meen"), "'meen' is not a choice of 'data.categorical[0].pool'");
  EXPECT_EQ(refusal_of("train: a.csv, format: synthetic").what,
            "data.train: made-up samples have no file");
  EXPECT_EQ(refusal_of("format: synthetic").what,
            "data.synthetic.features: made-up samples have columns");
  EXPECT_EQ(refusal_of(base + "numeric: [label]").what,
            "data.numeric[0].name: a feature is read from the label's column");
  EXPECT_EQ(refusal_of("train: a.csv, categorical: [{name: u, column: label}]").what,
            "data.categorical[0].column: a feature is read from the label's column");
  EXPECT_EQ(refusal_of("train: a.svm, categorical: [{name: features, pool: weighted}]").what,
            "data.categorical[0].separator: the column has several ids, with blanks between");
  EXPECT_EQ(refusal_of("format: synthetic, synthetic: {features: [{name: u, most_ids: 3}]}, "
                       "categorical: [{name: v, column: u}]")
                .what,
            "data.categorical[0].separator: the column has several ids, with blanks between");
  EXPECT_EQ(refusal_of("format: synthetic, validation: b.csv").what,
            "data.validation: made-up samples have no file");
}

TEST_F(TabularOptionsTest, NumberMayAlsoHaveEmbedding) {
  EXPECT_NO_THROW(
      read("data: {train: a.csv, numeric: [age], categorical: [{name: age, ids: buckets}]}"));
}

}  // namespace
}  // namespace strata
