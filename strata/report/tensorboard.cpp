// The events are encoded here in 30 lines. protobuf is a dependency of strata/rowserver/wire only;
// the report, which every program contains, builds without it.
// Files are never rewritten: a session-log event tells the reader from which step on another run's
// points are void.
#include "strata/report/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <filesystem>

#include "strata/base/errors.h"

namespace strata {
namespace {

// Field numbers of event.proto and summary.proto.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr int kSummaryValue = 1, kTag = 1, kSimpleValue = 2, kStatus = 1;
constexpr int kStatusStart = 1;

template <typename Word>
std::string little_endian(Word word) {
  std::string bytes(sizeof(Word), '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(word & 0xff);
    word = static_cast<Word>(word >> 8);
  }
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

// A field's key holds its number and its encoding: 0 varint, 1 eight bytes, 2 length and bytes, 5
// four bytes.
std::string key(int field, int encoding) {
  return varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(encoding));
}
std::string integer(int field, std::int64_t value) {
  return key(field, 0) + varint(static_cast<std::uint64_t>(value));
}
std::string fp64(int field, double value) {
  return key(field, 1) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string fp32(int field, double value) {
  return key(field, 5) + little_endian(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
}
std::string bytes(int field, std::string_view value) {
  return key(field, 2) + varint(value.size()) + std::string(value);
}

std::string scalar(std::string_view tag, double value) {
  return bytes(kSummaryValue, bytes(kTag, tag) + fp32(kSimpleValue, value));
}

// Rotated and shifted, so that a checksum over data with checksums remains effective.
std::string masked_crc(std::string_view data) {
  return little_endian(std::rotr(crc32c(data), 15) + 0xa282ead8u);
}

std::string framed(std::string_view event) {
  const std::string length = little_endian(static_cast<std::uint64_t>(event.size()));
  return length + masked_crc(length) + std::string(event) + masked_crc(event);
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] ? name.data() : "localhost";
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> remainders{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t remainder = byte;
      for (int bit = 0; bit < 8; ++bit)
        remainder = remainder & 1 ? remainder >> 1 ^ 0x82f63b78u : remainder >> 1;
      remainders[byte] = remainder;
    }
    return remainders;
  }();
  std::uint32_t crc = 0xffffffffu;
  for (const char byte : bytes)
    crc = table[(crc ^ static_cast<std::uint8_t>(byte)) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::string to_tensorboard_record(const StepRecord& record, double unix_seconds) {
  std::string scalars =
      scalar("loss", record.loss) + scalar("gradient_norm", record.gradient_norm) +
      scalar("learning_rate", record.learning_rate) +
      scalar(record.unit + "s_per_second", record.units_per_second) +
      scalar("step_seconds", record.step_seconds) + scalar("bubble", record.bubble);
  if (!record.peak_bytes.empty())
    scalars +=
        scalar("peak_bytes", static_cast<double>(*std::ranges::max_element(record.peak_bytes)));
  if (record.embedding && record.embedding->size) {
    const EmbeddingSize& size = *record.embedding->size;
    scalars += scalar("embedding/rows", static_cast<double>(size.rows + size.cold_rows)) +
               scalar("embedding/bytes", static_cast<double>(size.bytes)) +
               scalar("embedding/cold_bytes", static_cast<double>(size.cold_bytes));
  }
  if (record.validation_loss) scalars += scalar("validation_loss", *record.validation_loss);
  for (const auto& [name, value] : record.validation_metrics)
    scalars += scalar("validation/" + name, value);
  return framed(fp64(kWallTime, unix_seconds) + integer(kStep, record.step) +
                bytes(kSummary, scalars));
}

TensorboardFile::TensorboardFile(const std::string& folder, std::int64_t steps_done) {
  const double now = unix_seconds();
  std::error_code failed;  // the open reports the error
  std::filesystem::create_directories(folder, failed);
  path_ = folder + "/events.out.tfevents." + std::to_string(static_cast<std::int64_t>(now)) + "." +
          host_name() + "." + std::to_string(getpid());
  out_.open(path_, std::ios::binary | std::ios::app);
  if (!out_.is_open()) {
    throw UserError({.operation = "train.tensorboard",
                     .where = folder,
                     .what = "cannot write event files in the folder",
                     .expected = "a folder that may be made and written",
                     .got = failed ? failed.message() : "",
                     .fix = "name another folder with train.tensorboard"});
  }
  out_ << framed(fp64(kWallTime, now) + bytes(kFileVersion, "brain.Event:2"));
  // Tells the reader to discard this step and later ones of other files.
  out_ << framed(fp64(kWallTime, now) + integer(kStep, steps_done + 1) +
                 bytes(kSessionLog, integer(kStatus, kStatusStart)))
       << std::flush;
}

void TensorboardFile::write(const StepRecord& record) {
  errno = EIO;  // unless the system reports another error
  out_ << to_tensorboard_record(record, unix_seconds()) << std::flush;
  if (out_) return;
  throw_error(file_error("train.tensorboard", path_,
                         "cannot write the event of step " + std::to_string(record.step), errno));
}

}  // namespace strata
