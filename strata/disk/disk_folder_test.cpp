#include "strata/disk/disk_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "strata/base/units.h"
#include "strata/disk/chunk_files_test.h"

namespace strata {
namespace {

TEST(DiskFolder, RefusesFolderThatCannotHoldFile) {
  const DiskScratch scratch;
  const auto refusal = [](const std::string& folder, std::int64_t bytes) {
    const Error error = error_of([&] { require_disk_folder(folder, bytes, "memory.disk.path"); });
    EXPECT_EQ(error.kind(), ErrorKind::kUser) << error.what();
    EXPECT_EQ(error.text().where, "memory.disk.path " + folder);
    EXPECT_FALSE(error.text().fix.empty());
    return error.text();
  };
  EXPECT_NO_THROW(require_disk_folder(scratch.path("to/be/made"), 1 << 20, "x"));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("to")));
  EXPECT_EQ(refusal(scratch.path("new"), INT64_MAX / 2).what, "the disk is too full");
  std::ofstream(scratch.path("file")) << "x";
  EXPECT_EQ(refusal(scratch.path("file"), 0).what, "this is no folder");
  EXPECT_EQ(refusal(scratch.path("file/below"), 0).what, "this is no folder");
  if (std::filesystem::is_directory("/dev/shm")) {
    EXPECT_EQ(refusal("/dev/shm/new", 1).got, "a tmpfs");
  }
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit low{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &low);
  const ErrorText text = refusal(scratch.path(), (1 << 20) + 1);
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(text.fix, "raise the limit (ulimit -f)");
}

// A private mount namespace makes the folder read-only.
TEST(DiskFolder, RefusesAReadOnlyFileSystem) {
  const DiskScratch scratch;
  const std::string folder = scratch.path();
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, folder.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      ::_exit(77);
    try {
      ChunkFile::create(folder + "/new", {100}, {.setting = "memory.disk.path"});
    } catch (const UserError& error) {
      ::_exit(error.text().what == "the file system is read-only" ? 0 : 2);
    } catch (...) {
    }
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no file system may be mounted here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace strata
