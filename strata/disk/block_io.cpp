#include "strata/disk/block_io.h"

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"

namespace strata {

const char* name_of(DiskBackend backend) {
  using enum DiskBackend;
  static constexpr EnumNames<DiskBackend> kNames{
      {kAuto, "auto"}, {kIoUring, "io_uring"}, {kThreads, "threads"}};
  return kNames[backend];
}

std::unique_ptr<BlockIo> make_block_io(const BlockIoSetup& setup) {
  if (setup.backend == DiskBackend::kThreads) return thread_block_io(setup, "");
  std::string refusal;
  std::unique_ptr<BlockIo> io = uring_block_io(setup, refusal);
  if (io) return io;
  if (setup.backend == DiskBackend::kIoUring) {
    throw SystemError({.operation = "disk.open",
                       .where = "",
                       .what = "the kernel refuses io_uring",
                       .expected = "",
                       .got = refusal,
                       .fix = "let the process use it (seccomp, kernel.io_uring_disabled), or "
                              "choose threads"});
  }
  return thread_block_io(setup, refusal);
}

}  // namespace strata
