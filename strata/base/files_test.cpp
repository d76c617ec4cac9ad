#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <system_error>
#include <vector>

#include "strata/base/checksum.h"
#include "strata/base/durable_file.h"
#include "strata/base/errors.h"
#include "strata/base/json_document.h"
#include "strata/base/random_access_file.h"
#include "strata/base/scratch_folder.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

const FileUse kUse{.operation = "test.open", .fix = "name another file"};

// Returns the error that `action` throws.
Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return InternalError({});
}

class FilesTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path(name), std::ios::binary) << text;
    return folder_.path(name);
  }
  static Error refusal(const std::string& path, FileUse use = kUse) {
    return error_of([&] { RandomAccessFile::open(path, use); });
  }
  ScratchFolder folder_;
};

// The values are equal on every processor, whatever vector instructions it has.
TEST(Checksum, EqualsChecksumOfEarlierVersions) {
  std::vector<std::byte> bytes(100'000);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * i * 31 + i / 256);
  EXPECT_EQ(checksum_text(checksum({})), "2d06800538d394c2");
  EXPECT_EQ(checksum_text(checksum(std::span(bytes).first(200))), "ceb79a5e4360a41c");
  EXPECT_EQ(checksum_text(checksum(bytes)), "d856ba59186cb7c8");
  Checksum parts;
  parts.add(std::span(bytes).first(777));
  parts.add(std::span(bytes).subspan(777));
  EXPECT_EQ(parts.value(), checksum(bytes));
}

TEST_F(FilesTest, ReadsAnyPart) {
  const auto opened = RandomAccessFile::open(file("a", "0123456789"), kUse);
  std::string part(4, '?');
  opened->read(3, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "3456");
  EXPECT_EQ(opened->size(), 10u);
  EXPECT_EQ(read_file(opened->path(), kUse, 10), "0123456789");
  EXPECT_EQ(error_of([&] { read_file(opened->path(), kUse, 9); }).text().what,
            "the file is too large for what it should hold");
}

TEST_F(FilesTest, WritesWholeFileWithoutSync) {
  write_file(folder_.path("a"), "0123");
  EXPECT_EQ(read_file(folder_.path("a"), kUse, 10), "0123");
  write_file("/dev/null", "0123");
  EXPECT_EQ(error_of([&] { write_file(folder_.path("no/a"), "0123"); }).kind(), ErrorKind::kUser);
  EXPECT_EQ(error_of([&] { write_file("/dev/full", "0123"); }).kind(), ErrorKind::kSystem);
}

TEST_F(FilesTest, RefusesNonFilesWithoutBlocking) {
  const std::string path = folder_.path("a");
  EXPECT_EQ(refusal(path).text().what, "there is no such file");
  EXPECT_EQ(refusal(path).text().fix, kUse.fix);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(refusal(path).text().got, "a pipe");
  EXPECT_EQ(refusal("/dev/zero").text().got, "a device");
  EXPECT_EQ(refusal(folder_.path()).text().got, "a folder");
  EXPECT_EQ(refusal(file("empty", "")).text().what, "the file is empty");
  fs::create_symlink("loop", folder_.path("loop"));
  EXPECT_EQ(refusal(folder_.path("loop")).kind(), ErrorKind::kUser);
  EXPECT_TRUE(name_exists(folder_.path("loop")));
  EXPECT_EQ(refusal(folder_.path(std::string(300, 'x'))).text().fix, "shorten the path");
  EXPECT_EQ(refusal(file("b", "b") + "/c").kind(), ErrorKind::kUser);
  EXPECT_FALSE(name_exists(folder_.path("b") + "/c"));
}

TEST_F(FilesTest, FollowsLinksOnlyOnRequest) {
  fs::create_symlink(file("a", "text"), folder_.path("link"));
  EXPECT_EQ(read_file(folder_.path("link"), kUse, 99), "text");
  EXPECT_EQ(
      refusal(folder_.path("link"), {.operation = "test.open", .fix = "", .follow_links = false})
          .text()
          .what,
      "a symbolic link stands where a file must");
}

TEST_F(FilesTest, ReportsMissingPermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::string path = file("a", "text");
  ::chmod(path.c_str(), 0);
  EXPECT_EQ(refusal(path).kind(), ErrorKind::kUser);
  EXPECT_EQ(refusal(path).text().where, path);
}

TEST_F(FilesTest, FailsIfFileWasTruncated) {
  const std::string path = file("a", std::string(100'000, 'x'));
  const auto opened = RandomAccessFile::open(path, kUse);
  fs::resize_file(path, 10);
  std::string bytes(100'000, '?');
  const Error error = error_of([&] { opened->read(0, std::as_writable_bytes(std::span(bytes))); });
  EXPECT_EQ(error.text().what, "the file became shorter while it was read");
  EXPECT_EQ(error.text().where, path);
}

TEST_F(FilesTest, NamesAMissingPlaceForTemporaryFiles) {
  const char* before = ::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  ::setenv("TMPDIR", folder_.path("none").c_str(), 1);
  const Error error = error_of([] { ScratchFolder(); });
  before != nullptr ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
  EXPECT_EQ(error.kind(), ErrorKind::kSystem);
  EXPECT_EQ(error.text().fix, "set TMPDIR to one");
}

TEST_F(FilesTest, MakesFoldersAndRefusesObstacles) {
  make_folders_durably(folder_.path("a/b/c"));
  make_folders_durably(folder_.path("a/b/c/"));
  EXPECT_TRUE(fs::is_directory(folder_.path("a/b/c")));
  file("a/f", "x");
  const Error error = error_of([&] { make_folders_durably(folder_.path("a/f/d")); });
  EXPECT_EQ(error.text().where, folder_.path("a/f"));
}

TEST_F(FilesTest, RefusesOutputsThatCannotBeWritten) {
  require_writable_file(folder_.path("new/report.html"), "--report");
  EXPECT_TRUE(fs::is_directory(folder_.path("new")));
  EXPECT_FALSE(fs::exists(folder_.path("new/report.html")));
  const std::string kept = file("kept", "of the last run");
  require_writable_file(kept, "--report");
  EXPECT_EQ(fs::file_size(kept), 15u);
  for (const std::string& path : {kept + "/report.html", folder_.path("new")}) {
    const Error error = error_of([&] { require_writable_file(path, "--report"); });
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_EQ(error.text().where, "--report " + path);
  }
}

class JsonTest : public FilesTest {
 protected:
  static JsonDocument parsed(const std::string& text) {
    return JsonDocument::parse(text, "a.json", kUse);
  }
  static ErrorText refused(const std::string& text) {
    const Error error = error_of([&] { parsed(text); });
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_EQ(error.text().where, "a.json");
    EXPECT_EQ(error.text().fix, kUse.fix);
    return error.text();
  }
};

TEST_F(JsonTest, ReadsValuesAndNamesPlaceOfRefusedOnes) {
  const JsonDocument document = parsed(R"({"a": [1, {"b": "x"}], "c": true, "d": 0.5})");
  const JsonPart root = document.root();
  EXPECT_EQ(root.member("a").elements()[0].number(), 1);
  EXPECT_EQ(root.member("a").elements()[1].member("b").text(), "x");
  EXPECT_TRUE(root.flag("c", false));
  EXPECT_TRUE(root.flag("e", true));
  EXPECT_EQ(root.member("d").real(), 0.5);
  EXPECT_TRUE(root.member("e").is_null());
  EXPECT_EQ(root.keys(), (std::vector<std::string>{"a", "c", "d"}));
  const auto refusal = [](const std::function<void()>& read) { return error_of(read).text(); };
  EXPECT_EQ(refusal([&] { root.member("a").elements()[1].member("b").number(); }).what,
            "a[1].b cannot be used");
  EXPECT_EQ(refusal([&] { root.member("a").elements()[0].number(2, 5); }).expected,
            "a whole number from 2 to 5");
  EXPECT_EQ(refusal([&] { root.required_member("e"); }).what, "e cannot be used");
  EXPECT_EQ(refusal([&] { root.member("c").text(); }).got, "true");
}

TEST_F(JsonTest, RefusesNumbersOutOfRange) {
  const JsonPart root = parsed(R"({"a": 18446744073709551615, "b": -1, "c": 1.5})").root();
  for (const char* name : {"a", "b", "c"})
    EXPECT_EQ(error_of([&] { root.member(name).number(); }).kind(), ErrorKind::kUser) << name;
}

TEST_F(JsonTest, HasLimitsOfDepthSizeAndValues) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(refused(deep).what, "the JSON is nested too deeply");
  EXPECT_EQ(refused("{\"a\": " + std::string(kMaxJsonDepth, '[')).what,
            "the JSON is nested too deeply");
  EXPECT_EQ(refused("{\"[[\\\"[[\": " + std::string(kMaxJsonDepth - 1, '[')).what,
            "this is no JSON document");  // brackets in texts don't count
  EXPECT_EQ(refused("[" + std::string(kMaxJsonValues, ',')).what, "the JSON has too many values");
  const std::string path = file("a.json", "{");
  fs::resize_file(path, kMaxJsonBytes + 1);  // a sparse file: uses no disk space
  EXPECT_EQ(error_of([&] { JsonDocument::read(path, kUse); }).text().what,
            "the file is too large for what it should hold");
}

TEST_F(JsonTest, QuotesAtMostOneLine) {
  const std::string text = "{\"a\": \"" + std::string(1 << 20, 'x') + "\\n\"}";
  const JsonPart part = parsed(text).root().member("a");
  EXPECT_LT(error_of([&] { part.number(); }).text().got.size(), 100u);
  EXPECT_LT(refused(text.substr(1)).got.size(), 100u);
  EXPECT_EQ(excerpt("a\nb"), "a b");
  EXPECT_EQ(excerpt(std::string(79, 'a') + "ä"), std::string(79, 'a') + "...");
}

TEST(ErrorTransfer, ReadsBackWhatWasWritten) {
  const SystemError error({.operation = "a.b",
                           .where = "w\nx",
                           .what = "no space",
                           .expected = "",
                           .got = "0 bytes",
                           .fix = "free some"});
  const Error read = decode_error(encode_error(error));
  EXPECT_EQ(read.kind(), ErrorKind::kSystem);
  EXPECT_STREQ(read.what(), error.what());
  EXPECT_THROW(throw_error(read), SystemError);
  EXPECT_THROW(decode_error("1"), InternalError);
  EXPECT_THROW(decode_error(""), InternalError);
}

TEST(ErrorTransfer, CarriesFailuresWithTheirPrecedence) {
  const Failure read = read_failure(write_failure(UserError({.what = "a", .got = "b"}), -3));
  EXPECT_EQ(read.precedence, -3);
  try {
    std::rethrow_exception(read.error);
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().got, "b");
  }
  EXPECT_THROW(read_failure(std::as_bytes(std::span("garbage", 7))), InternalError);
}

TEST(ErrorTransfer, MapsExceptionsToKinds) {
  EXPECT_EQ(to_error(std::bad_alloc()).kind(), ErrorKind::kSystem);
  EXPECT_EQ(to_error(std::system_error(EAGAIN, std::generic_category())).text().what,
            "a thread cannot be started");
  const fs::filesystem_error loop("x", "/a/b", std::error_code(ELOOP, std::generic_category()));
  EXPECT_EQ(to_error(loop).kind(), ErrorKind::kUser);
  EXPECT_EQ(to_error(loop).text().where, "/a/b");
  EXPECT_EQ(to_error(std::runtime_error("surprise")).kind(), ErrorKind::kInternal);
  EXPECT_EQ(exit_code(std::bad_alloc()), 3);
  EXPECT_EQ(exit_code(loop), 2);
}

}  // namespace
}  // namespace strata
