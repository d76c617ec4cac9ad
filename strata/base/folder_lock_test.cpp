#include "strata/base/folder_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "strata/base/errors.h"

namespace strata {
namespace {

const FolderLock::Use kUse{.operation = "test.lock",
                           .in_use = "another run is here",
                           .unwritable = "it cannot be written to",
                           .fix = "choose another"};

// Returns the holder that the error names; nothing if the lock is free.
std::optional<std::string> holder(const std::string& folder) {
  try {
    const FolderLock lock(folder, kUse);
  } catch (const UserError& error) {
    return error.text().got;
  }
  return std::nullopt;
}

// The next process holds the lock but has not written its name yet.
TEST(FolderLock, DoesNotNameFormerHolder) {
  const std::string folder = testing::TempDir() + "folder_lock_test";
  {
    const FolderLock lock(folder, kUse);
    const std::optional<std::string> named = holder(folder);
    ASSERT_TRUE(named);
    EXPECT_NE(named->find("process " + std::to_string(::getpid())), std::string::npos) << *named;
  }
  const int next = ::open((folder + "/" + kLockName).c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(next, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(holder(folder), "a run that has not recorded its identity");
  ::close(next);
  EXPECT_EQ(holder(folder), std::nullopt);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace strata
