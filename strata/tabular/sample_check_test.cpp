// open_tabular() must detect the errors that docs/clicks.md promises to detect at the start of a
// run, before any sample is read.
#include "strata/tabular/sample_check.h"

#include <gtest/gtest.h>

#include "strata/tabular/loader.h"
#include "strata/tabular/log_conversion.h"
#include "strata/tabular/log_test.h"

namespace strata {
namespace {

class SampleCheckTest : public LogTest {
 protected:
  /// These options fit nothing, so only the check reads the samples.
  static TabularOptions options() {
    return {.validation_fraction = 0.5,
            .label = "click",
            .numeric = {{.name = "price", .transform = NumericTransform::kLog}},
            .categorical = {{.name = "user"},
                            {.name = "item", .ids = IdSource::kNumber},
                            {.name = "words", .pool = Pooling::kWeighted, .separator = " "}}};
  }
  static constexpr const char* kHead = "click,price,user,item,words\n";
  static constexpr const char* kGood = "1,2.5,ann,7,a:1 b:-2\n0,,,,\n";

  ErrorText refusal_of(const std::string& line,
                       TabularOptions options = SampleCheckTest::options()) {
    options.train = write("a.csv", kHead + std::string(kGood) + line + "\n" + kGood);
    return refusal([&] { open_tabular(options, 1); });
  }
};

TEST_F(SampleCheckTest, DetectsEveryInvalidValueAtStart) {
  struct Case {
    const char *line, *what, *column;
  };
  for (const Case& bad :
       {Case{"yes,1,ann,1,a", "this is no label", "click"},
        Case{"2,1,ann,1,a", "this is no label", "click"},
        Case{",1,ann,1,a", "this is no label", "click"},
        Case{"nan,1,ann,1,a", "this is no label", "click"},
        Case{"1,cheap,ann,1,a", "this is no number", "price"},
        Case{"1,NA,ann,1,a", "this is no number", "price"},
        Case{"1,1e99,ann,1,a", "this is no number", "price"},
        Case{"1,1,ann,x,a", "this is no id", "item"}, Case{"1,1,ann,-1,a", "this is no id", "item"},
        Case{"1,1,ann,1,a:1 b:heavy", "this is no number", "words"}}) {
    const ErrorText text = refusal_of(bad.line);
    EXPECT_EQ(text.what, bad.what) << bad.line;
    EXPECT_TRUE(text.where.ends_with("a.csv:4, column '" + std::string(bad.column) + "'"))
        << text.where;
  }
  EXPECT_NE(refusal_of("1,1,ann,1").what.find("number of columns"), std::string::npos);
  EXPECT_NE(refusal_of("1,1,\"ann,1,a").what.find("quotation mark"), std::string::npos);
}

TEST_F(SampleCheckTest, ReadsValidationFile) {
  TabularOptions options = SampleCheckTest::options();
  options.train = write("a.csv", kHead + std::string(kGood));
  options.validation = write("later.csv", kHead + std::string(kGood) + "maybe,1,ann,1,a\n");
  EXPECT_TRUE(
      refusal([&] { open_tabular(options, 1); }).where.ends_with("later.csv:4, column 'click'"));
}

TEST_F(SampleCheckTest, AcceptsTextOfPositiveLabel) {
  TabularOptions options = SampleCheckTest::options();
  options.positive = "yes";
  EXPECT_EQ(refusal_of(",1,ann,1,a", options).what, "a sample without a label");
  options.train = write("a.csv", kHead + std::string("yes,1,a,1,a\nno,1,a,1,a\n"));
  EXPECT_NO_THROW(open_tabular(options, 1));
}

TEST_F(SampleCheckTest, ChecksOnlyColumnsThatAreRead) {
  TabularOptions options = SampleCheckTest::options();
  options.categorical.resize(1);
  EXPECT_NO_THROW({
    options.train = write("a.csv", kHead + std::string("1,1,ann,x,a:b\n0,1,bob,y,c:d\n"));
    open_tabular(options, 1);
  });
  // Only the last ids of a sequence.
  options.categorical = {{.name = "words",
                          .pool = Pooling::kSequence,
                          .separator = " ",
                          .last = 1,
                          .ids = IdSource::kNumber}};
  options.train = write("a.csv", kHead + std::string("1,1,ann,1,x 3\n0,1,bob,2,4\n"));
  EXPECT_NO_THROW(open_tabular(options, 1));
  EXPECT_EQ(open_tabular(options, 1).train.at(0, 1).categorical[0].ids.size(), 1u);
}

TEST_F(SampleCheckTest, DetectsMissingColumnBeforeReadingLines) {
  TabularOptions options = SampleCheckTest::options();
  options.label = "klick";
  options.train = write("a.csv", kHead + std::string(kGood) + "too,few\n");
  EXPECT_EQ(refusal([&] { open_tabular(options, 1); }).what, "there is no column 'klick'");
}

// Records are not read at the start; the later error names the sample.
TEST_F(SampleCheckTest, ChecksRecordsWhenTheyAreRead) {
  TabularOptions options = SampleCheckTest::options();
  const std::string log = write("a.csv", kHead + std::string(kGood) + "yes,1,ann,1,a\n");
  options.train = folder_.path("a.strata");
  write_samples(*open_samples(log, options), 0, 3, options.train);
  options.shuffle = false;
  options.validation_fraction = 0;
  const TabularData data = open_tabular(options, 1);
  EXPECT_NO_THROW(data.train.at(0, 2));
  EXPECT_NE(refusal([&] { data.train.at(2, 1); }).where.find("a.strata"), std::string::npos);
}

}  // namespace
}  // namespace strata
