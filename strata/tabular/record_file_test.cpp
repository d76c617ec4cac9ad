#include "strata/tabular/record_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "strata/base/checksum.h"
#include "strata/base/random_access_file.h"
#include "strata/tabular/loader.h"
#include "strata/tabular/log_conversion.h"
#include "strata/tabular/log_test.h"
#include "strata/tabular/text_file.h"

namespace strata {
namespace {

class RecordFileTest : public LogTest {
 protected:
  /// A log with texts of all sizes, some with line ends.
  std::string log(int samples) const {
    std::mt19937_64 random(3);
    std::string text = "label,n,\"words\nand more\"\n";
    for (int i = 0; i < samples; ++i) {
      text += std::to_string(i % 2) + "," + std::to_string(i) + ",\"";
      for (auto k = i % 50 == 0 ? 5000 : random() % 20; k > 0; --k)
        text += "a,\n\xff "[random() % 5];
      text += "\"\n";
    }
    return write("log.csv", text);
  }
  std::string bytes_of(const std::string& path) const {
    return read_file(path, {.operation = "test", .fix = ""}, std::uint64_t{1} << 30);
  }
  std::string converted(int samples) const {
    const auto from = open_samples(log(samples), {});
    const std::string path = folder_.path("log.strata");
    write_samples(*from, 0, from->samples(), path);
    return path;
  }
};

TEST_F(RecordFileTest, HoldsEverySampleOfLog) {
  for (const int samples : {1, 15, 16, 17, 1000}) {
    const auto records = open_samples(converted(samples), {});
    const auto from = open_samples(log(samples), {});
    EXPECT_EQ(records->columns(), from->columns());
    ASSERT_EQ(records->samples(), samples);
    const auto unkept = open_records(folder_.path("log.strata"));
    for (const auto& file : {records, unkept}) {
      SampleText text;  // of `unkept` it holds a block between reads
      for (int k = 0; k < 2 * samples; ++k) {
        const int sample = k < samples ? k : (k * 7919) % samples;
        file->read(sample, text);
        EXPECT_EQ((Fields{text.fields.begin(), text.fields.end()}), fields_of(*from, sample));
      }
    }
  }
}

TEST_F(RecordFileTest, TrainsSameAsItsLog) {
  std::string text = "label,n,u\n";
  for (int i = 0; i < 500; ++i)
    text += std::to_string(i % 3 == 0) + "," + std::to_string(i * i) + ",u" +
            std::to_string(i % 40) + "\n";
  TabularOptions options{.train = write("a.csv", text),
                         .numeric = {{.name = "n"}},
                         .categorical = {{.name = "u", .ids = IdSource::kVocabulary}}};
  const TabularData from = open_tabular(options, 4);
  const auto file = open_samples(options.train, options);
  options.train = folder_.path("a.strata");
  write_samples(*file, 0, file->samples(), options.train);
  const TabularData records = open_tabular(options, 4);
  EXPECT_EQ(records.preprocessing->save_state(), from.preprocessing->save_state());
  const SampleBatch a = from.train.at(123, 700), b = records.train.at(123, 700);
  EXPECT_EQ(a.numeric, b.numeric);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.categorical[0].ids, b.categorical[0].ids);
  EXPECT_EQ(from.validation.at(0, 50).numeric, records.validation.at(0, 50).numeric);
}

TEST_F(RecordFileTest, DetectsEveryFlippedBit) {
  const std::string good = bytes_of(converted(40));
  std::mt19937_64 random(4);
  for (int round = 0; round < 1200; ++round) {
    std::string bad = good;
    const std::size_t at = round < 200 ? good.size() - 1 - round : random() % good.size();
    bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
    const std::string path = write("bad.strata", bad);
    EXPECT_THROW(
        {
          const auto file = open_records(path);
          SampleText text;
          for (std::int64_t i = 0; i < file->samples(); ++i) file->read(i, text);
        },
        UserError)
        << "byte " << at << " of " << good.size();
  }
}

TEST_F(RecordFileTest, RejectsTruncatedFileAndOtherBytes) {
  const std::string good = bytes_of(converted(40));
  for (std::size_t size = 1; size < good.size(); size += 97)
    EXPECT_THROW(open_records(write("cut.strata", good.substr(0, size))), UserError) << size;
  EXPECT_EQ(refusal([&] { open_records(write("a.strata", std::string(200, 'x'))); }).what,
            "this is no file of records");
  // A trailer with wrong sizes and a valid checksum leads to an error.
  std::mt19937_64 random(5);
  for (int round = 0; round < 600; ++round) {
    std::string bad = good;
    char* trailer = bad.data() + bad.size() - 64;
    const std::uint64_t lie = round % 2 == 0 ? random() : random() % (2 * good.size());
    std::memcpy(trailer + 8 * (random() % 3), &lie, 8);
    const std::uint64_t sum = checksum(std::as_bytes(std::span(trailer, 48)));
    std::memcpy(trailer + 48, &sum, 8);
    try {
      const auto file = open_records(write("lie.strata", bad));
      SampleText text;
      for (std::int64_t i = 0; i < file->samples(); ++i) file->read(i, text);
      EXPECT_EQ(bad, good);
    } catch (const UserError&) {
    }
  }
}

TEST_F(RecordFileTest, DetectsSwappedBlocks) {
  std::string text = "label,n\n";
  for (int i = 0; i < 48; ++i) text += "1," + std::to_string(100 + i) + "\n";
  const auto from = open_samples(write("same.csv", text), {});
  write_samples(*from, 0, 48, folder_.path("same.strata"));
  std::string bytes = bytes_of(folder_.path("same.strata"));
  const std::size_t block = 16 + 16 * 4 + 16 * 6;  // header, ends, "1" and "1xx" with their lengths
  std::swap_ranges(bytes.begin() + 16, bytes.begin() + 16 + block, bytes.begin() + 16 + block);
  const auto swapped = open_records(write("swapped.strata", bytes));
  EXPECT_EQ(fields_of(*swapped, 40)[1], "140");
  EXPECT_EQ(refusal([&] { fields_of(*swapped, 3); }).what, "block 0 is damaged");
  EXPECT_EQ(refusal([&] { fields_of(*swapped, 20); }).what, "block 1 is damaged");
}

// Blocks that fit into memory are read once; the others from the file each time.
TEST_F(RecordFileTest, ReadsKeptBlocksFromMemory) {
  const std::string path = converted(40), bytes = bytes_of(path);
  std::vector<Fields> samples;
  for (int i = 0; i < 40; ++i) samples.push_back(fields_of(*open_records(path), i));
  std::uint64_t first_end = 0;  // of the first block, from the index
  std::memcpy(&first_end, bytes.data() + bytes.size() - 64 - 3 * 8, 8);
  for (const auto& [memory, kept] : {std::pair<std::int64_t, int>{0, 0},
                                     {static_cast<std::int64_t>(first_end) + 32, 16},
                                     {std::int64_t{1} << 30, 40}}) {
    SCOPED_TRACE(memory);
    const std::string copy = write("copy.strata", bytes);
    const auto file = open_samples(copy, {.memory = {memory}});
    std::vector<std::int64_t> order(40);
    for (int i = 0; i < 40; ++i) order[i] = (i * 7) % 40;
    SampleText text;
    for (int i = 0; i < 40; ++i) {
      file->prefetch(std::span(order).subspan(i));
      file->read(order[i], text);
      EXPECT_EQ(Fields(text.fields.begin(), text.fields.end()), samples[order[i]]);
    }
    // Damages all samples of the file that is open.
    std::string damaged = bytes;
    for (std::size_t i = 16; i + 200 < damaged.size(); ++i) damaged[i] ^= 1;
    std::fstream(copy, std::ios::in | std::ios::out | std::ios::binary) << damaged;
    for (int i = 0; i < 40; ++i) {
      SampleText again;
      if (i < kept) {
        file->read(i, again);
        EXPECT_EQ(Fields(again.fields.begin(), again.fields.end()), samples[i]);
      } else {
        EXPECT_THROW(file->read(i, again), UserError) << i;
      }
    }
  }
}

TEST_F(RecordFileTest, LeavesNoFileIfWritingFails) {
  const auto from = open_samples(write("a.csv", "a,b\n1,\"x\ty\"\n"), {});
  const ErrorText text = refusal([&] { write_samples(*from, 0, 1, folder_.path("out.tsv")); });
  EXPECT_EQ(text.what, "TSV cannot hold a text with tabs or line ends");
  EXPECT_TRUE(text.where.ends_with("/a.csv:2")) << text.where;
  EXPECT_FALSE(name_exists(folder_.path("out.tsv")));
  EXPECT_FALSE(name_exists(folder_.path("out.tsv.partial")));
  EXPECT_EQ(refusal([&] { write_samples(*from, 0, 1, folder_.path("out.txt")); }).fix,
            "name it clicks.strata");
}

// A file that counts how often places of samples are requested.
class CountingPlaces final : public SampleFile {
 public:
  explicit CountingPlaces(std::shared_ptr<const SampleFile> file) : file_(std::move(file)) {}
  std::int64_t samples() const override { return file_->samples(); }
  const std::vector<std::string>& columns() const override { return file_->columns(); }
  void read(std::int64_t sample, SampleText& text) const override { file_->read(sample, text); }
  std::string place(std::int64_t sample) const override {
    ++calls;
    return file_->place(sample);
  }

  mutable int calls = 0;

 private:
  std::string path() const override { return "asked"; }
  std::shared_ptr<const SampleFile> file_;
};

// Finding the line of a sample requires reading every earlier line.
TEST_F(RecordFileTest, WritesTextWithoutFindingLines) {
  const CountingPlaces from(open_samples(write("a.csv", "a,b\n1,x\n2,y\n3,\"x\ty\"\n"), {}));
  write_samples(from, 0, 3, folder_.path("out.csv"));
  EXPECT_EQ(from.calls, 0);
  EXPECT_TRUE(refusal([&] {
                write_samples(from, 0, 3, folder_.path("out.tsv"));
              }).where.ends_with("/a.csv:4"));
  EXPECT_EQ(from.calls, 1);
}

// A line of text has 16 MiB at most; 16 samples are a block.
TEST_F(RecordFileTest, HoldsBlockOfLongestLines) {
  const std::string path = folder_.path("long.strata"), longest(kLongestLine - 2, 'x');
  {
    RecordWriter writer(path, {"label", "text"});
    const std::vector<std::string_view> sample = {"1", longest};
    for (int i = 0; i < 16; ++i) writer.add(sample);
    writer.finish();
  }
  const auto file = open_records(path);
  EXPECT_EQ(file->samples(), 16);
  EXPECT_EQ(fields_of(*file, 15), (Fields{"1", longest}));
}

// Quoting makes a line longer than its columns.
TEST_F(RecordFileTest, RejectsLineThatCouldNotBeReadBack) {
  const std::string marks(kLongestLine / 2, '"');
  {
    RecordWriter writer(folder_.path("marks.strata"), {"text"});
    const std::vector<std::string_view> sample = {marks};
    writer.add(sample);
    writer.finish();
  }
  const auto file = open_records(folder_.path("marks.strata"));
  const ErrorText text = refusal([&] { write_samples(*file, 0, 1, folder_.path("marks.csv")); });
  EXPECT_EQ(text.what, "the line of this sample becomes too long");
  EXPECT_EQ(text.got, std::to_string(kLongestLine + 2));
  EXPECT_TRUE(text.where.ends_with("marks.strata: sample 1")) << text.where;
  EXPECT_FALSE(std::filesystem::exists(folder_.path("marks.csv")));
}

TEST_F(RecordFileTest, ConvertsBackToCsv) {
  const auto records = open_records(converted(100));
  write_samples(*records, 0, 100, folder_.path("back.csv"));
  const auto back = open_samples(folder_.path("back.csv"), {});
  EXPECT_EQ(back->columns(), records->columns());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(fields_of(*back, i), fields_of(*records, i));
}

}  // namespace
}  // namespace strata
