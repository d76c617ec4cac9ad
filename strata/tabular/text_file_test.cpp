#include "strata/tabular/text_file.h"

#include <gtest/gtest.h>

#include <random>

#include "strata/tabular/log_test.h"

namespace strata {
namespace {

class TextFileTest : public LogTest {
 protected:
  std::shared_ptr<const SampleFile> open(const std::string& name, const std::string& text,
                                         const TabularOptions& options = {}) const {
    return open_samples(write(name, text), options);
  }
  ErrorText refusal_of(const std::string& name, const std::string& text,
                       const TabularOptions& options = {}) const {
    return refusal([&] { open(name, text, options); });
  }
};

TEST_F(TextFileTest, ReadsQuotedColumnsOfStandard) {
  const auto file = open("a.csv",
                         "label,\"my name\",c\r\n"
                         "1,\"a,b\",\r\n"
                         "\r\n"
                         "0,\"line\nend \"\"quoted\"\"\",\"\"\r\n"
                         ",,x");
  EXPECT_EQ(file->columns(), (Fields{"label", "my name", "c"}));
  ASSERT_EQ(file->samples(), 3);
  EXPECT_EQ(fields_of(*file, 0), (Fields{"1", "a,b", ""}));
  EXPECT_EQ(fields_of(*file, 1), (Fields{"0", "line\nend \"quoted\"", ""}));
  EXPECT_EQ(fields_of(*file, 2), (Fields{"", "", "x"}));
  EXPECT_TRUE(file->place(0).ends_with("/a.csv:2"));
  EXPECT_TRUE(file->place(1).ends_with("/a.csv:4"));
  EXPECT_TRUE(file->place(2).ends_with("/a.csv:6"));
}

TEST_F(TextFileTest, KeepsQuotationMarksOfTsv) {
  const auto file = open("a.tsv", "\xEF\xBB\xBFlabel\tsize\n1\t5\" \"x\n");
  EXPECT_EQ(file->columns(), (Fields{"label", "size"}));
  EXPECT_EQ(fields_of(*file, 0), (Fields{"1", "5\" \"x"}));
}

TEST_F(TextFileTest, NamesColumnsByHeaderOptionOrNumber) {
  const std::string text = "a,b\n1,2\n";
  EXPECT_EQ(open("a.csv", text)->columns(), (Fields{"a", "b"}));
  const auto numbered = open("a.csv", text, {.header = false});
  EXPECT_EQ(numbered->columns(), (Fields{"1", "2"}));
  EXPECT_EQ(numbered->samples(), 2);
  const auto renamed = open("a.csv", text, {.columns = {"x", "y"}});
  EXPECT_EQ(renamed->columns(), (Fields{"x", "y"}));
  EXPECT_EQ(renamed->samples(), 1);
  EXPECT_EQ(open("a.csv", text, {.header = false, .columns = {"x", "y"}})->samples(), 2);
  EXPECT_EQ(refusal_of("a.csv", "a,a\n1,2\n").what, "two columns have one name");
  EXPECT_EQ(refusal_of("a.csv", "a,b\n1,2,3\n").expected, "2, as the first has");
  EXPECT_EQ(refusal_of("a.csv", text, {.columns = {"x"}}).expected, "1, as data.columns names");
}

TEST_F(TextFileTest, ReadsCriteoFormat) {
  std::string line = "1";
  for (int i = 0; i < 13; ++i) line += i == 3 ? "\t" : "\t" + std::to_string(i - 2);
  for (int i = 0; i < 26; ++i) line += "\t68fd1e64";
  const TabularOptions criteo{.format = SampleFormat::kCriteo};
  const auto file = open("day_0", line + "\n" + line + "\n", criteo);
  ASSERT_EQ(file->columns().size(), 40u);
  EXPECT_EQ(file->samples(), 2);
  EXPECT_EQ(fields_of(*file, 1)[static_cast<std::size_t>(file->column("I1"))], "-2");
  EXPECT_EQ(fields_of(*file, 1)[static_cast<std::size_t>(file->column("I4"))], "");
  EXPECT_EQ(fields_of(*file, 1)[static_cast<std::size_t>(file->column("C26"))], "68fd1e64");
  const ErrorText text = refusal_of("day_0", line + "\n" + line + "\textra\n", criteo);
  EXPECT_TRUE(text.where.ends_with("/day_0:2")) << text.where;
  EXPECT_EQ(text.expected, "40, as the format has");
  EXPECT_EQ(text.got, "41");
}

TEST_F(TextFileTest, ReadsLibsvmWithNumericColumns) {
  const TabularOptions options{.numeric = {{.name = "3"}, {.name = "20"}}};
  const auto file = open("a.libsvm",
                         "+1 qid:7 3:0.5 5:1 20:-2 100:4e-1 # comment 9:9\n"
                         "-1 5:2  7:1 3:0.25 8:1\t20:6\n"
                         "0\n",
                         options);
  EXPECT_EQ(file->columns(), (Fields{"label", "qid", "features", "3", "20"}));
  EXPECT_EQ(fields_of(*file, 0), (Fields{"+1", "7", "5:1 100:4e-1", "0.5", "-2"}));
  EXPECT_EQ(fields_of(*file, 1), (Fields{"-1", "", "5:2 7:1 8:1", "0.25", "6"}));
  EXPECT_EQ(fields_of(*file, 2), (Fields{"0", "", "", "", ""}));
  const ErrorText text = refusal_of("a.libsvm", "1 2:3\n0 4:5 six\n");
  EXPECT_TRUE(text.where.ends_with("/a.libsvm:2:7")) << text.where;
  EXPECT_EQ(text.got, "'six'");
}

TEST_F(TextFileTest, RejectsMalformedLineWithNumberAndColumn) {
  const ErrorText more = refusal_of("a.csv", "a,b\n1,2\n\n1,2,3\n");
  EXPECT_TRUE(more.where.ends_with("/a.csv:4")) << more.where;
  EXPECT_EQ(more.what, "the line has another number of columns");
  EXPECT_EQ(more.got, "3");
  EXPECT_EQ(refusal_of("a.csv", "a,b\n1\n").got, "1");
  const ErrorText inside = refusal_of("a.csv", "a,b\n1,2\"x\"\n");
  EXPECT_TRUE(inside.where.ends_with("/a.csv:2:4")) << inside.where;
  EXPECT_EQ(inside.what, "a quotation mark inside a column that does not begin with one");
  EXPECT_EQ(refusal_of("a.csv", "a,b\n\"1\"x,2\n").what, "text after a closing quotation mark");
  const ErrorText open_mark = refusal_of("a.csv", "a,b\n1,\"2\n3,4\n5,6\n");
  EXPECT_TRUE(open_mark.where.ends_with("/a.csv:2:3")) << open_mark.where;
  EXPECT_EQ(open_mark.what, "a quotation mark is never closed");
}

TEST_F(TextFileTest, RejectsFilesWithoutSamples) {
  EXPECT_EQ(refusal_of("a.csv", "a,b\n").what, "the file has no samples");
  EXPECT_EQ(refusal_of("a.csv", "").what, "the file is empty");
  EXPECT_EQ(refusal_of("a.txt", "a,b\n1,2\n").what, "the name does not say what the file is");
  EXPECT_EQ(refusal([&] { open_samples(folder_.path("no.csv"), {}); }).what,
            "there is no such file");
  EXPECT_EQ(refusal_of("a.tsv", std::string(std::size_t{18} << 20, 'x')).what,
            "the line is too long");
  const auto file = open("a.csv", "price,age\n1,2\n");
  const ErrorText text = refusal([&] { file->column("pirce"); });
  EXPECT_EQ(text.what, "there is no column 'pirce'");
  EXPECT_EQ(text.expected, "price, age");
  EXPECT_EQ(text.fix, "did you mean 'price'?");
}

// Fields of every kind are written by the rules and read back, across block borders. The limit is
// exact to one byte, wherever the line ends within a block.
TEST_F(TextFileTest, RejectsLineAbove16MiB) {
  const std::string longest(kLongestLine - 2, 'x');
  for (const char* end : {"", "\n", "\r\n"}) {
    const auto file = open("a.tsv", "a\tb\n1\t2\n3\t" + longest + end);
    ASSERT_EQ(file->samples(), 2);
    EXPECT_EQ(fields_of(*file, 1), (Fields{"3", longest}));
    const ErrorText text = refusal_of("a.tsv", "a\tb\n1\t2\n3\tx" + longest + end);
    EXPECT_TRUE(text.where.ends_with("/a.tsv:3")) << text.where;
    EXPECT_EQ(text.what, "the line is too long");
    EXPECT_EQ(text.expected, "at most 16777216 bytes");
    EXPECT_EQ(text.got, "16777217");
  }
}

TEST_F(TextFileTest, ReadsBackWrittenFields) {
  std::mt19937_64 random(1);
  const std::vector<std::string> pieces = {"a", ",", "\"", "\n", " ", "0.5", "\r", "über", ""};
  std::vector<Fields> rows;
  std::string text = "a,b,c\n";
  for (int row = 0; row < 20000; ++row) {
    Fields fields(3);
    for (int i = 0; i < 3; ++i) {
      const auto count = row % 100 == 7 ? 3000 : random() % 12;
      for (std::size_t k = 0; k < count; ++k) fields[i] += pieces[random() % pieces.size()];
      std::string quoted = "\"";
      for (const char c : fields[i]) quoted += c == '"' ? "\"\"" : std::string(1, c);
      const bool must = fields[i].find_first_of(",\"\n\r") != std::string::npos;
      const bool plain = !must && random() % 2 == 0 && !(i == 0 && fields[i].empty());
      text += (i > 0 ? "," : "") + (plain ? fields[i] : quoted + "\"");
    }
    text += random() % 2 == 0 ? "\n" : "\r\n";
    rows.push_back(fields);
  }
  ASSERT_GT(text.size(), std::size_t{2} << 20);
  const auto file = open("a.csv", text);
  ASSERT_EQ(file->samples(), 20000);
  SampleText sample;
  for (int k = 0; k < 20000; ++k) {
    const int row = (k * 7919) % 20000;
    file->read(row, sample);
    ASSERT_EQ((Fields{sample.fields.begin(), sample.fields.end()}), rows[row]) << row;
  }
}

// Any bytes lead to a UserError at most.
TEST_F(TextFileTest, SurvivesHostileBytes) {
  std::mt19937_64 random(2);
  const std::string alphabet("\",\t\n\r 1:#a\0\xff", 13);
  for (int round = 0; round < 500; ++round) {
    std::string text = "1,a";
    for (std::size_t k = random() % 60; k > 0; --k) text += alphabet[random() % alphabet.size()];
    for (const char* name : {"a.csv", "a.tsv", "a.libsvm"}) {
      try {
        const auto file = open(name, text, {.numeric = {{.name = "1"}}});
        for (std::int64_t i = 0; i < file->samples(); ++i)
          EXPECT_EQ(fields_of(*file, i).size(), file->columns().size());
      } catch (const UserError& error) {
        EXPECT_FALSE(error.text().where.empty());
      }
    }
  }
}

}  // namespace
}  // namespace strata
