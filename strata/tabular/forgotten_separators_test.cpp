#include "strata/tabular/forgotten_separators.h"

#include "strata/tabular/loader.h"
#include "strata/tabular/log_test.h"

namespace strata {
namespace {

class ForgottenSeparators : public LogTest {
 protected:
  // Uses the texts in turn, in 30 samples.
  std::vector<std::string> notices(const std::vector<std::string>& texts,
                                   const CategoricalOptions& feature) const {
    std::string log = "label\twords\n";
    for (std::size_t i = 0; i < 30; ++i)
      log += std::to_string(i % 2) + "\t" + texts[i % texts.size()] + "\n";
    return open_tabular({.train = write("log.tsv", log), .categorical = {feature}}, 1).notices;
  }
};

TEST_F(ForgottenSeparators, NamesFeatureExampleAndSeparator) {
  for (const auto& [text, separator] : {std::pair("a|b", "'|'"),
                                        {"a;b;c", "';'"},
                                        {"a,b", "','"},
                                        {"a, b", "','"},
                                        {"red blue", "' '"}}) {
    const std::vector<std::string> found = notices({text, "alone", text}, {.name = "words"});
    ASSERT_EQ(found.size(), 1u) << text;
    EXPECT_NE(found[0].find("feature 'words'"), std::string::npos) << found[0];
    EXPECT_NE(found[0].find("'" + std::string(text) + "'"), std::string::npos) << found[0];
    EXPECT_TRUE(found[0].ends_with("set separator: " + std::string(separator))) << found[0];
  }
}

TEST_F(ForgottenSeparators, IgnoresTextsThatAreMostlyOneWord) {
  EXPECT_TRUE(notices({"New York", "Oslo", "Rome"}, {.name = "words"}).empty());
  EXPECT_TRUE(notices({" padded ", " too "}, {.name = "words"}).empty());
  EXPECT_TRUE(notices({""}, {.name = "words"}).empty());
  EXPECT_TRUE(notices({"a b"}, {.name = "words", .separator = " "}).empty());
}

TEST_F(ForgottenSeparators, RejectsFeatureThatNeedsSeveralIds) {
  for (const CategoricalOptions& feature : std::vector<CategoricalOptions>{
           {.name = "words", .pool = Pooling::kMean},
           {.name = "words", .pool = Pooling::kSequence, .last = 3},
           {.name = "words", .last = 5},
           {.name = "words", .pool = Pooling::kMax, .ids = IdSource::kVocabulary}}) {
    const ErrorText refused = refusal([&] { notices({"a b", "c d e"}, feature); });
    EXPECT_NE(refused.where.find("'words'"), std::string::npos);
    EXPECT_EQ(refused.got, "texts such as 'a b'");
    EXPECT_EQ(refused.fix, "set separator: ' '");
    EXPECT_TRUE(notices({"a", "b"}, feature).empty()) << "lists of one id are lists, too";
  }
}

TEST_F(ForgottenSeparators, IsSilentInResumedRun) {
  const TabularOptions options{.train = write("log.tsv", "label\twords\n1\ta b\n0\tc d\n"),
                               .validation_fraction = 0,
                               .categorical = {{.name = "words"}}};
  const TabularData first = open_tabular(options, 1);
  EXPECT_EQ(first.notices.size(), 1u);
  EXPECT_TRUE(open_tabular(options, 1, first.preprocessing->save_state()).notices.empty());
}

}  // namespace
}  // namespace strata
