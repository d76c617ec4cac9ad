// Shared test code of this folder: the kinds of disk access, a folder on a disk, and random bytes.
#pragma once

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/disk/async_file.h"

namespace strata {

using Bytes8 = std::vector<std::byte>;

struct DiskForm {
  DiskBackend backend;
  bool direct;
};

inline std::string name_of_form(const ::testing::TestParamInfo<DiskForm>& info) {
  return std::string(name_of(info.param.backend)) + (info.param.direct ? "_direct" : "_buffered");
}

inline const DiskForm kDiskForms[] = {{DiskBackend::kIoUring, true},
                                      {DiskBackend::kIoUring, false},
                                      {DiskBackend::kThreads, true},
                                      {DiskBackend::kThreads, false}};

// A folder on a disk, even if the folder for temporary files is in memory.
class DiskScratch {
 public:
  DiskScratch() : folder_((choose(), ScratchFolder())) {}
  std::string path(const std::string& name = "") const { return folder_.path(name); }

 private:
  static void choose() {
    struct statfs kind{};
    const std::string place = std::filesystem::temp_directory_path().string();
    if (::statfs(place.c_str(), &kind) == 0 && kind.f_type == TMPFS_MAGIC)
      ::setenv("TMPDIR", "/var/tmp", 1);
  }
  ScratchFolder folder_;
};

// Equal seeds give equal bytes, and different seeds different ones.
inline Bytes8 random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15u + 1);
  Bytes8 bytes(count);
  for (std::size_t i = 0; i < count; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, count - i));
  }
  return bytes;
}

// Returns the error that `action` throws.
template <typename Action>
Error error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return InternalError({});
}

// Runs with every kind of disk access; io_uring only if the kernel has it.
class DiskFormTest : public ::testing::TestWithParam<DiskForm> {
 protected:
  void SetUp() override {
    std::string refusal;
    if (GetParam().backend == DiskBackend::kIoUring &&
        !uring_block_io({.descriptor = STDOUT_FILENO, .depth = 1}, refusal))
      GTEST_SKIP() << "the kernel refuses io_uring: " << refusal;
  }
  AsyncFileOptions options() const {
    return {.backend = GetParam().backend, .direct = GetParam().direct, .depth = 4};
  }
  DiskScratch folder_;
};

}  // namespace strata
