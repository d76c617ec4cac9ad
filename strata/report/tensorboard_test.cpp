#include "strata/report/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "strata/base/errors.h"

namespace strata {
namespace {

// Reads the parts of protobuf's encoding that event files use.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return bytes_.empty(); }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
  template <typename T>
  T fixed() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view take(std::size_t count) {
    if (count > bytes_.size()) throw std::out_of_range("the message ends early");
    const std::string_view consumed = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return consumed;
  }

 private:
  std::string_view bytes_;
};

struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version;
  bool starts_session = false;
  std::map<std::string, float> scalars;
};

void read_summary(Reader reader, ReadEvent& event) {
  while (!reader.done()) {
    EXPECT_EQ(reader.varint(), 1u << 3 | 2);
    Reader value(reader.take(reader.varint()));
    EXPECT_EQ(value.varint(), 1u << 3 | 2);
    const std::string tag(value.take(value.varint()));
    EXPECT_EQ(value.varint(), 2u << 3 | 5);
    event.scalars[tag] = value.fixed<float>();
    EXPECT_TRUE(value.done());
  }
}

ReadEvent read_event(std::string_view bytes) {
  ReadEvent event;
  for (Reader reader(bytes); !reader.done();) {
    switch (reader.varint()) {
      case 1 << 3 | 1:
        event.wall_time = reader.fixed<double>();
        break;
      case 2 << 3 | 0:
        event.step = static_cast<std::int64_t>(reader.varint());
        break;
      case 3 << 3 | 2:
        event.version = reader.take(reader.varint());
        break;
      case 5 << 3 | 2:
        read_summary(Reader(reader.take(reader.varint())), event);
        break;
      case 7 << 3 | 2:
        event.starts_session = reader.take(reader.varint()) == "\x08\x01";
        break;
      default:
        ADD_FAILURE() << "an unknown field";
        return event;
    }
  }
  return event;
}

std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

std::vector<ReadEvent> read_file(const std::string& bytes) {
  std::vector<ReadEvent> events;
  for (Reader reader(bytes); !reader.done();) {
    const std::string_view length = reader.take(8);
    EXPECT_EQ(reader.fixed<std::uint32_t>(), masked(length));
    const std::string_view data = reader.take(Reader(length).fixed<std::uint64_t>());
    EXPECT_EQ(reader.fixed<std::uint32_t>(), masked(data));
    events.push_back(read_event(data));
  }
  return events;
}

class TensorboardFileTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  std::string folder_ = testing::TempDir() + "tensorboard_test." + std::to_string(getpid());
};

TEST(Crc32c, MatchesPublishedValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(TensorboardRecord, HoldsScalarsOfStep) {
  const StepRecord record{.step = 300,
                          .loss = 2.5,
                          .gradient_norm = 0.75,
                          .learning_rate = 1e-3,
                          .units_per_second = 5000,
                          .step_seconds = 0.125,
                          .bubble = 0.25,
                          .peak_bytes = {1 << 20, 3 << 20, 2 << 20},
                          .validation_loss = 3.5};
  const std::vector<ReadEvent> events = read_file(to_tensorboard_record(record, 1234.5));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].wall_time, 1234.5);
  EXPECT_EQ(events[0].step, 300);
  const std::map<std::string, float> expected{{"loss", 2.5f},
                                              {"gradient_norm", 0.75f},
                                              {"learning_rate", 1e-3f},
                                              {"tokens_per_second", 5000.f},
                                              {"step_seconds", 0.125f},
                                              {"bubble", 0.25f},
                                              {"peak_bytes", 3.f * (1 << 20)},
                                              {"validation_loss", 3.5f}};
  EXPECT_EQ(events[0].scalars, expected);
}

TEST(TensorboardRecord, HoldsCountsAndTableSizesOfRecommender) {
  StepRecord record{.step = 1, .unit = "sample", .units_per_second = 5000};
  record.embedding = EmbeddingRecord{
      .size = EmbeddingSize{.rows = 3, .bytes = 512, .cold_rows = 1, .cold_bytes = 64}};
  const std::vector<ReadEvent> events = read_file(to_tensorboard_record(record, 0));
  ASSERT_EQ(events.size(), 1u);
  std::map<std::string, float> scalars = events[0].scalars;
  EXPECT_EQ(scalars["samples_per_second"], 5000.f);
  EXPECT_FALSE(scalars.contains("tokens_per_second"));
  EXPECT_EQ(scalars["embedding/rows"], 4.f);
  EXPECT_EQ(scalars["embedding/bytes"], 512.f);
  EXPECT_EQ(scalars["embedding/cold_bytes"], 64.f);
}

TEST(TensorboardRecord, NamesValidationLossOnlyAfterValidation) {
  const std::vector<ReadEvent> events = read_file(to_tensorboard_record({.step = 1, .loss = 1}, 0));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].scalars.contains("loss"));
  EXPECT_FALSE(events[0].scalars.contains("validation_loss"));
  EXPECT_FALSE(events[0].scalars.contains("peak_bytes"));
}

TEST_F(TensorboardFileTest, IsCompleteAfterEveryStep) {
  TensorboardFile file(folder_ + "/deep");
  EXPECT_TRUE(
      std::filesystem::path(file.path()).filename().string().starts_with("events.out.tfevents."));
  EXPECT_EQ(std::filesystem::path(file.path()).extension(), "." + std::to_string(getpid()));
  file.write({.step = 1, .loss = 4});
  EXPECT_EQ(read_file(read(file.path())).size(), 3u);
  file.write({.step = 2, .loss = 3});
  const std::vector<ReadEvent> events = read_file(read(file.path()));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_GT(events[0].wall_time, 1.7e9);
  EXPECT_EQ(events[3].step, 2);
  EXPECT_EQ(events[3].scalars.at("loss"), 3);
}

TEST_F(TensorboardFileTest, ResumedRunReplacesLaterSteps) {
  const TensorboardFile file(folder_, 40);
  const std::vector<ReadEvent> events = read_file(read(file.path()));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(events[1].starts_session);
  EXPECT_EQ(events[1].step, 41);
}

TEST(TensorboardFile, RejectsFolderThatCannotBeWritten) {
  try {
    TensorboardFile file("/proc/no/events");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "/proc/no/events");
    EXPECT_NE(error.text().fix.find("train.tensorboard"), std::string::npos);
  }
}

}  // namespace
}  // namespace strata
