#include "strata/tabular/unpacked_log.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/units.h"

namespace strata {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 18;
constexpr std::uint64_t kLeastFree = std::uint64_t{1} << 30;
constexpr std::string_view kPackedEnding = ".gz";
constexpr int kGzipOfAnyWindow = 15 + 16;  // zlib's code for gzip with any window

bool begins_as_gzip(const RandomAccessFile& file) {
  if (file.size() < 2) return false;
  std::array<unsigned char, 2> first{};
  file.read(0, std::as_writable_bytes(std::span(first)));
  return first[0] == 0x1f && first[1] == 0x8b;
}

// A file without a name, which disappears when it is closed.
class NamelessFile {
 public:
  NamelessFile(std::string folder, std::string log)
      : folder_(std::move(folder)), log_(std::move(log)) {
    descriptor_ = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) make_and_unlink();
    if (descriptor_ < 0) refuse("no temporary file can be made for the text of a packed log");
    struct statvfs space{};
    if (::fstatvfs(descriptor_, &space) == 0) {
      const std::uint64_t free = std::uint64_t{space.f_bavail} * space.f_frsize;
      const std::uint64_t kept = std::max(kLeastFree, free / 10);
      room_ = free > kept ? free - kept : 0;
    }
  }
  ~NamelessFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  void write(std::span<const unsigned char> bytes) {
    written_ += bytes.size();
    if (written_ > room_)
      throw UserError({.operation = "tabular.unpack",
                       .where = log_,
                       .what = "the unpacked log does not fit in " + folder_,
                       .expected = "at most " + format_bytes(static_cast<std::int64_t>(room_)),
                       .got = "more",
                       .fix = "set TMPDIR to a folder with more free space"});
    while (!bytes.empty()) {
      const ::ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) refuse("the text of a packed log cannot be written");
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }

  int release() { return std::exchange(descriptor_, -1); }

 private:
  // Some file systems do not support files without a name.
  void make_and_unlink() {
    std::string name = folder_ + "/strata-log-XXXXXX";
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ >= 0) ::unlink(name.c_str());
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw_error(file_error("tabular.unpack", folder_, what, errno,
                           "set TMPDIR to a folder that may be written"));
  }

  std::string folder_, log_;
  int descriptor_ = -1;
  std::uint64_t room_ = 0, written_ = 0;
};

class Inflater {
 public:
  explicit Inflater(const std::string& log) : log_(log), out_(kPieceBytes) {
    if (inflateInit2(&stream_, kGzipOfAnyWindow) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  void add(std::span<unsigned char> packed, NamelessFile& to) {
    stream_.next_in = packed.data();
    stream_.avail_in = static_cast<uInt>(packed.size());
    while (stream_.avail_in > 0) {
      if (ended_) begin_next_part();
      stream_.next_out = out_.data();
      stream_.avail_out = static_cast<uInt>(out_.size());
      const std::uint64_t before = stream_.avail_in;
      const int state = inflate(&stream_, Z_NO_FLUSH);
      consumed_ += before - stream_.avail_in;
      to.write({out_.data(), out_.size() - stream_.avail_out});
      if (state == Z_MEM_ERROR) throw std::bad_alloc();
      if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR)
        refuse("the packed log is damaged", "what gzip has written",
               stream_.msg != nullptr ? stream_.msg : "other bytes");
      ended_ = state == Z_STREAM_END;
    }
  }

  void finish() const {
    if (!ended_)
      refuse("the packed log ends too soon", "the end that gzip writes", "the end of the file");
  }

 private:
  void begin_next_part() {
    inflateReset(&stream_);
    ended_ = false;
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& expected,
                           const std::string& got) const {
    throw UserError({.operation = "tabular.unpack",
                     .where = log_,
                     .what = what + " at byte " + std::to_string(consumed_),
                     .expected = expected,
                     .got = got,
                     .fix = "fetch or pack the file again; `gzip -t` checks it"});
  }

  const std::string& log_;
  std::vector<unsigned char> out_;
  z_stream stream_{};
  std::uint64_t consumed_ = 0;
  bool ended_ = false;
};

}  // namespace

std::string unpacked_name(const std::string& path) {
  return path.ends_with(kPackedEnding) ? path.substr(0, path.size() - kPackedEnding.size()) : path;
}

std::shared_ptr<const RandomAccessFile> open_log(const std::string& path, const FileUse& use) {
  auto packed = RandomAccessFile::open(path, use);
  if (!begins_as_gzip(*packed)) {
    if (!path.ends_with(kPackedEnding)) return packed;
    throw UserError({.operation = use.operation,
                     .where = path,
                     .what = "the name says that gzip has packed the file, its bytes do not",
                     .expected = "a file that begins as gzip writes it",
                     .got = "other bytes",
                     .fix = "rename the file to " + unpacked_name(path)});
  }
  std::error_code none;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(none);
  NamelessFile text(none ? "/tmp" : folder.string(), path);
  Inflater inflater(path);
  std::vector<unsigned char> piece(kPieceBytes);
  for (std::uint64_t at = 0; at < packed->size();) {
    const auto some = std::span(piece).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), packed->size() - at)));
    packed->read(at, std::as_writable_bytes(some));
    inflater.add(some, text);
    at += some.size();
  }
  inflater.finish();
  return RandomAccessFile::adopt(text.release(), path, use);
}

}  // namespace strata
