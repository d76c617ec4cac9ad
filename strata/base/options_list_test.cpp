#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/options.h"

namespace strata {
namespace {

struct Feature {
  std::string name;
  std::int64_t width = 16;
  std::vector<std::string> tags;
  YamlSection rows;
};

void describe(OptionSet& set, const std::string& prefix, Feature& feature) {
  set.add(prefix + ".name", &feature.name, {.help = "Column."});
  set.add(prefix + ".width", &feature.width,
          {.help = "Of a row.", .unit = "elements", .minimum = 1, .maximum = 1024});
  set.add(prefix + ".tags", &feature.tags, {.help = "Tags.", .choices = {"hot", "cold"}});
  set.add(prefix + ".rows", &feature.rows, {.help = "Fields of another component."});
}

class OptionListTest : public testing::Test {
 protected:
  OptionListTest() { describe_all(set_, *this); }
  static void describe_all(OptionSet& set, OptionListTest& of) {
    set.add("data.file", &of.file_, {.help = "Log."});
    set.add("data.features", &of.features_, "name", {.help = "What is read."});
    set.add("data.servers", &of.servers_, {.help = "Who holds rows."});
  }
  static ErrorText refusal(const std::function<void()>& action) {
    try {
      action();
    } catch (const UserError& error) {
      return error.text();
    }
    ADD_FAILURE() << "no UserError";
    return {};
  }
  ErrorText refusal_of_yaml(const std::string& text) {
    return refusal([&] { set_.load_yaml(text, "r.yaml"); });
  }
  ErrorText refusal_of_set(const std::string& text) {
    return refusal([&] { set_.set(text); });
  }

  std::string file_;
  std::vector<Feature> features_;
  std::vector<std::string> servers_ = {"local"};
  OptionSet set_;
};

constexpr const char* kRecipe = R"(data:
  file: a.csv
  features:
    - user
    - {name: words, width: 8, tags: [hot, cold], rows: {optimizer: {kind: sgd}, staleness: 2}}
    - name: item
      rows:
        optimizer:
          kind: adam
  servers: [a:1, 'b:2']
)";

TEST_F(OptionListTest, ReadsSectionsPlainValuesAndTexts) {
  set_.load_yaml(kRecipe, "r.yaml");
  ASSERT_EQ(features_.size(), 3u);
  EXPECT_EQ(features_[0].name, "user");
  EXPECT_EQ(features_[0].width, 16);
  EXPECT_EQ(features_[1].name, "words");
  EXPECT_EQ(features_[1].width, 8);
  EXPECT_EQ(features_[1].tags, (std::vector<std::string>{"hot", "cold"}));
  EXPECT_FALSE(features_[0].rows.is_set());
  EXPECT_TRUE(features_[1].rows.is_set());
  EXPECT_EQ(features_[1].rows.where(), "r.yaml:5:56");
  EXPECT_EQ(servers_, (std::vector<std::string>{"a:1", "b:2"}));
  set_.load_yaml("data: {servers: one}", "r.yaml");
  EXPECT_EQ(servers_, (std::vector<std::string>{"one"}));
}

TEST_F(OptionListTest, FindsElementFieldsByPath) {
  set_.load_yaml(kRecipe, "r.yaml");
  EXPECT_TRUE(set_.is_set("data.features[1].width"));
  EXPECT_EQ(set_.where("data.features[1].width"), "r.yaml:5:28");
  EXPECT_FALSE(set_.is_set("data.features[0].width"));
  EXPECT_EQ(set_.where("data.features"), "r.yaml:4:5");
  set_.set("data.features[0].width=3");
  EXPECT_EQ(features_[0].width, 3);
  set_.set("data.servers[1]=c:3");
  EXPECT_EQ(servers_[1], "c:3");
}

TEST_F(OptionListTest, ALaterListReplacesTheWholeEarlierOne) {
  set_.load_yaml(kRecipe, "r.yaml");
  set_.set("data.features=[age, {name: price, width: 2}]");
  ASSERT_EQ(features_.size(), 2u);
  EXPECT_EQ(features_[0].name, "age");
  EXPECT_EQ(features_[1].width, 2);
  EXPECT_FALSE(features_[1].rows.is_set());
  set_.load_yaml("data: {features: []}", "r.yaml");
  EXPECT_TRUE(features_.empty());
}

TEST_F(OptionListTest, WritesYamlThatItReadsBack) {
  set_.load_yaml(kRecipe, "r.yaml");
  const std::string written = set_.to_yaml();
  features_.clear();
  servers_.clear();
  set_.load_yaml(written, "written.yaml");
  EXPECT_EQ(set_.to_yaml(), written);
  ASSERT_EQ(features_.size(), 3u);
  EXPECT_EQ(features_[2].name, "item");
  EXPECT_EQ(features_[1].rows.text(), "{optimizer: {kind: sgd}, staleness: 2}");
  EXPECT_EQ(features_[2].rows.text(), "{optimizer: {kind: adam}}");
}

TEST_F(OptionListTest, ListsTheFieldsOfElements) {
  set_.load_yaml(kRecipe, "r.yaml");  // the table shows defaults
  const std::string table = set_.to_table();
  for (const char* line : {"data.features          []                 What is read.",
                           "data.servers           [local]            Who holds rows.",
                           "data.features[].width  16       elements  Of a row. [1 to 1024]",
                           "data.features[].tags   []                 Tags. [hot | cold]",
                           "data.features[].rows   {}                 Fields of another"}) {
    EXPECT_NE(table.find(line), std::string::npos) << line << "\n" << table;
  }
}

TEST_F(OptionListTest, RefusesWithThePlaceAndTheNearestName) {
  const ErrorText unknown = refusal_of_yaml("data:\n  features: [user, {name: a, widht: 3}]\n");
  EXPECT_EQ(unknown.where, "r.yaml:2:30");
  EXPECT_EQ(unknown.what, "unknown field 'data.features[1].widht'");
  EXPECT_EQ(unknown.expected, "name, width, tags, rows");
  EXPECT_EQ(unknown.fix, "did you mean 'data.features[1].width'?");
  const ErrorText range = refusal_of_yaml("data: {features: [{name: a, width: 0}]}");
  EXPECT_EQ(range.what, "'data.features[0].width' is out of range");
  EXPECT_EQ(range.where, "r.yaml:1:36");
  EXPECT_EQ(refusal_of_yaml("data: {features: [{tags: [warm]}]}").what,
            "'warm' is not a choice of 'data.features[0].tags[0]'");
  EXPECT_EQ(refusal_of_yaml("data: {features: [{name: a, name: b}]}").what,
            "'data.features[0].name' is given twice");
  const ErrorText kind = refusal_of_yaml("data: {features: {name: a}}");
  EXPECT_EQ(kind.what, "'data.features' takes a list");
  EXPECT_EQ(kind.got, "a section");
  EXPECT_EQ(refusal_of_yaml("data: {features: user}").got, "'user'");
  EXPECT_EQ(refusal_of_yaml("data: {features: }").got, "nothing");
  EXPECT_EQ(refusal_of_yaml("data: {features: [[a]]}").got, "a list");
  EXPECT_EQ(refusal_of_yaml("data: {features: [a, ~]}").what, "'data.features[1]' is empty");
  EXPECT_EQ(refusal_of_yaml("data: {servers: [{a: 1}]}").got, "a section");
  EXPECT_EQ(refusal_of_yaml("data: {features: [{rows: 3}]}").what,
            "'data.features[0].rows' is a section and takes no value of its own");
  std::string many = "data: {servers: [";
  for (int i = 0; i < 5000; ++i) many += "a, ";
  EXPECT_EQ(refusal_of_yaml(many + "a]}").what, "'data.servers' is too long");
}

TEST_F(OptionListTest, RefusesBadAssignments) {
  EXPECT_EQ(refusal_of_set("data.features[0].width=3").what,
            "unknown field 'data.features[0].width'");
  EXPECT_TRUE(refusal_of_set("data.features=[").what.starts_with("malformed YAML"));
  EXPECT_EQ(refusal_of_set("data.features=").got, "nothing");
  EXPECT_EQ(refusal_of_set("data.features=[{widht: 3}]").fix,
            "did you mean 'data.features[0].width'?");
  for (const char* path : {"data.features[", "data.features[]", "data.features[-1].name",
                           "data.features[99999999999999999999].name", "data.features[x].name"}) {
    EXPECT_TRUE(refusal_of_set(std::string(path) + "=1").what.starts_with("unknown field")) << path;
  }
}

TEST_F(OptionListTest, ReadsSectionOfAnotherComponentWithPlaces) {
  set_.load_yaml(kRecipe, "r.yaml");
  std::string kind = "adagrad";
  std::int64_t staleness = 8;
  OptionSet rows;
  rows.add("rows.optimizer.kind", &kind, {.help = "Rule."});
  rows.add("rows.staleness", &staleness, {.help = "Bound.", .minimum = 0});
  rows.load_section(features_[1].rows, "rows");
  EXPECT_EQ(kind, "sgd");
  EXPECT_EQ(staleness, 2);
  EXPECT_EQ(rows.where("rows.staleness"), "r.yaml:5:92");
  rows.load_section(features_[0].rows, "rows");  // the recipe does not set it
  EXPECT_EQ(kind, "sgd");
  set_.load_yaml("data: {features: [{rows: {}}]}", "r.yaml");
  EXPECT_FALSE(features_[0].rows.is_set());
  set_.load_yaml("data: {features: [{name: a, rows: {stalenes: 2}}]}", "r.yaml");
  const ErrorText text = refusal([&] { rows.load_section(features_[0].rows, "rows"); });
  EXPECT_EQ(text.where, "r.yaml:1:36");
  EXPECT_EQ(text.fix, "did you mean 'rows.staleness'?");
}

TEST(OptionList, ThrowsInternalErrorForInvalidElementDescription) {
  OptionSet set;
  std::vector<std::string> texts;
  set.add("a.list", &texts, {.help = "Of it."});
  EXPECT_THROW(set.add("a.list", &texts, {.help = "Twice."}), InternalError);
  EXPECT_THROW(set.add("a.list.more", &texts, {.help = "Below a list."}), InternalError);
}

}  // namespace
}  // namespace strata
