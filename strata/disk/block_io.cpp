#include "strata/disk/block_io.h"

#include "strata/base/errors.h"

namespace strata {

const char* name_of(DiskBackend backend) {
  switch (backend) {
    case DiskBackend::kAuto:
      return "auto";
    case DiskBackend::kIoUring:
      return "io_uring";
    case DiskBackend::kThreads:
      return "threads";
  }
  return "?";
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
