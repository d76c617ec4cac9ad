#include "strata/tabular/feature_columns.h"

#include <gtest/gtest.h>

#include <cmath>

#include "strata/tabular/loader.h"
#include "strata/tabular/log_test.h"

namespace strata {
namespace {

class FeatureColumns : public LogTest {
 protected:
  FeatureColumns()
      : options_{
            .train = write("a.csv",
                           "click,price,age,user,words,rated\n"
                           "1,10,1,ann,a b  a,i:2 j\n"
                           "0,,2,bob,,\n"
                           "1,30,,,b,k:-0.5\n"
                           "0,0.1,4,ann,c d e f,i:1:4\n"),
            .validation_fraction = 0,
            .label = "click",
            .numeric = {{.name = "price"}, {.name = "age", .transform = NumericTransform::kLog}},
            .categorical = {{.name = "user", .ids = IdSource::kVocabulary},
                            {.name = "words", .pool = Pooling::kMean, .separator = " ", .last = 3},
                            {.name = "rated", .pool = Pooling::kWeighted, .separator = " "},
                            {.name = "age", .ids = IdSource::kBuckets, .buckets = 2}},
            .shuffle = false} {}

  TabularOptions options_;
  std::vector<ColumnValues> columns_ = {{.numbers = {10, std::nan(""), 30, 0.1}},
                                        {.texts = {"1", "2", "", "4"}},
                                        {.texts = {"ann", "bob", "", "ann"}},
                                        {.texts = {"a b  a", "", "b", "c d e f"}},
                                        {.texts = {"i:2 j", "", "k:-0.5", "i:1:4"}}};
};

TEST_F(FeatureColumns, ListsEachColumnOnceWithoutTheLabel) {
  std::vector<std::string> names;
  std::vector<bool> numbers;
  for (const FeatureColumn& column : feature_columns(options_)) {
    names.push_back(column.name);
    numbers.push_back(column.has_numbers);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"price", "age", "user", "words", "rated"}));
  EXPECT_EQ(numbers, (std::vector<bool>{true, false, false, false, false}))
      << "buckets read ages as texts";
}

TEST_F(FeatureColumns, ReadSamplesAsAFileOfThemIsRead) {
  const TabularData data = open_tabular(options_, 1);
  const SampleBatch expected = data.train.at(0, 4);
  const SampleBatch batch = read_columns(*data.preprocessing, 4, columns_);
  EXPECT_EQ(batch.samples, 4);
  EXPECT_TRUE(batch.labels.empty());
  EXPECT_EQ(batch.numeric, expected.numeric);
  ASSERT_EQ(batch.categorical.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(batch.categorical[i].ids, expected.categorical[i].ids) << i;
    EXPECT_EQ(batch.categorical[i].offsets, expected.categorical[i].offsets) << i;
    EXPECT_EQ(batch.categorical[i].weights, expected.categorical[i].weights) << i;
  }
}

TEST_F(FeatureColumns, JoinsThePartsOfABatch) {
  const SampleBatch whole = open_tabular(options_, 1).train.at(0, 4);
  const SampleBatch one = part_of(whole, 0, 1), two = part_of(whole, 1, 3);
  const std::vector<const SampleBatch*> parts = {&one, &two};
  const SampleBatch joined = join(parts);
  EXPECT_EQ(joined.samples, 4);
  EXPECT_EQ(joined.numeric, whole.numeric);
  EXPECT_EQ(joined.labels, whole.labels);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(joined.categorical[i].ids, whole.categorical[i].ids) << i;
    EXPECT_EQ(joined.categorical[i].offsets, whole.categorical[i].offsets) << i;
    EXPECT_EQ(joined.categorical[i].weights, whole.categorical[i].weights) << i;
  }
}

TEST_F(FeatureColumns, NameSampleAndColumnOfAValueThatIsNoNumber) {
  const auto preprocessing = open_tabular(options_, 1).preprocessing;
  const auto refused = [&](std::vector<ColumnValues> columns) {
    return refusal([&] { read_columns(*preprocessing, 4, columns); }).where;
  };
  std::vector<ColumnValues> columns = columns_;
  columns[0].numbers[2] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(refused(columns), "sample 3, column 'price'");
  columns = columns_;
  columns[1].texts[1] = "old";
  EXPECT_EQ(refused(columns), "sample 2, column 'age'");
  columns = columns_;
  columns[4].texts[0] = "i:much";
  EXPECT_EQ(refused(columns), "sample 1, column 'rated'");
}

}  // namespace
}  // namespace strata
