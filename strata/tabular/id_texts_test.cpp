#include "strata/tabular/id_texts.h"

#include <map>

#include "strata/tabular/log_test.h"

namespace strata {
namespace {

// Counts the samples that are read.
class CountedFile final : public SampleFile {
 public:
  explicit CountedFile(std::shared_ptr<const SampleFile> file) : file_(std::move(file)) {}
  std::int64_t samples() const override { return file_->samples(); }
  const std::vector<std::string>& columns() const override { return file_->columns(); }
  void read(std::int64_t sample, SampleText& text) const override {
    ++reads;
    file_->read(sample, text);
  }
  std::string place(std::int64_t sample) const override { return file_->place(sample); }

  mutable std::int64_t reads = 0;

 protected:
  std::string path() const override { return "log"; }

 private:
  std::shared_ptr<const SampleFile> file_;
};

class IdTextsTest : public LogTest {
 protected:
  IdTextsTest() {
    std::string text = "label,user,words,rated,kind,number\n";
    for (int i = 0; i < 1000; ++i)
      text += std::to_string(i % 2) + ",u" + std::to_string(i) + ",a" + std::to_string(i % 50) +
              " b" + std::to_string(i % 7) + ",i" + std::to_string(i % 9) + ":0.5,k" +
              std::to_string(i % 3) + "," + std::to_string(i) + "\n";
    options_ = {.train = write("log.csv", text),
                .categorical = {{.name = "user"},
                                {.name = "words", .separator = " "},
                                {.name = "rated", .pool = Pooling::kWeighted, .separator = ";"},
                                {.name = "kind", .ids = IdSource::kVocabulary},
                                {.name = "number", .ids = IdSource::kNumber}}};
    file_ = std::make_shared<CountedFile>(open_samples(options_.train, options_));
    preprocessing_ = Preprocessing::fit(options_, *file_, file_->samples());
    file_->reads = 0;
  }

  std::vector<IdTexts> texts_of(const std::vector<std::vector<std::uint64_t>>& wanted) const {
    return texts_of_ids(SampleReader(file_, preprocessing_), *preprocessing_, wanted);
  }
  std::uint64_t id(std::size_t feature, const std::string& text) const {
    return *preprocessing_->id_of(feature, text);
  }

  TabularOptions options_;
  std::shared_ptr<CountedFile> file_;
  std::shared_ptr<const Preprocessing> preprocessing_;
};

TEST_F(IdTextsTest, FindsTextsOfHashesInListsAndWeights) {
  const std::vector<IdTexts> texts = texts_of(
      {{id(0, "u3"), id(0, "u40")}, {id(1, "b6"), id(1, "a31")}, {id(2, "i8")}, {0, 2, 3}, {17}});
  EXPECT_EQ(texts[0], (IdTexts{{id(0, "u3"), "u3"}, {id(0, "u40"), "u40"}}));
  EXPECT_EQ(texts[1], (IdTexts{{id(1, "b6"), "b6"}, {id(1, "a31"), "a31"}}));
  EXPECT_EQ(texts[2], (IdTexts{{id(2, "i8"), "i8"}}));
  EXPECT_EQ(texts[3], (IdTexts{{0, "k0"}, {2, "k2"}, {3, "(unknown)"}}));
  EXPECT_TRUE(texts[4].empty()) << "a number is its own text";
  EXPECT_EQ(file_->reads, 41) << "it stops at the sample that has the last of them";
}

TEST_F(IdTextsTest, ReadsSamplesOnceIfTextsAreMissing) {
  const std::vector<IdTexts> texts = texts_of({{id(0, "u999"), 12345}, {}, {}, {}, {}});
  EXPECT_EQ(texts[0], (IdTexts{{id(0, "u999"), "u999"}}));
  EXPECT_EQ(file_->reads, 1000);
}

TEST_F(IdTextsTest, ReadsNothingForVocabulariesAndNumbers) {
  EXPECT_EQ(texts_of({{}, {}, {}, {1}, {17}})[3], (IdTexts{{1, "k1"}}));
  EXPECT_EQ(file_->reads, 0);
}

TEST_F(IdTextsTest, TruncatesLongText) {
  const std::string text(10'000, 'x');
  options_ = {.train = write("long.csv", "label,user\n1," + text + "\n"),
              .categorical = {{.name = "user"}}};
  file_ = std::make_shared<CountedFile>(open_samples(options_.train, options_));
  preprocessing_ = Preprocessing::fit(options_, *file_, 1);
  EXPECT_EQ(texts_of({{id(0, text)}})[0].at(id(0, text)), text.substr(0, 256));
}

}  // namespace
}  // namespace strata
