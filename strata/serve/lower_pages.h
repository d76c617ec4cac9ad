/// Keeps pages of keys and values off the device, in host memory and in a file on a disk.
///
/// A page is one block of bytes: the parts of all tensors of keys and values, one after the other.
/// The file has no commits: nothing reads it after the process has ended (disk/chunk_file.h).
///
/// Threads  one rank's thread; copies have ended when move() returns.
/// Cost     all bytes of the host at construction, of its account; two pages more with a disk. All
///          bytes of the file are allocated, too.
/// Errors   UserError: a folder that is not on a disk or has no room. SystemError: over the budget
///          of the host, a page that the disk does not read or write. InternalError: a page that
///          does not exist.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/batching/pass.h"
#include "strata/device/account.h"
#include "strata/device/device.h"
#include "strata/disk/chunk_file.h"

namespace strata {

struct LowerPagesOptions {
  MemoryAccount* host = nullptr;  ///< charged; null: none
  std::string folder = {};        ///< on a disk, which no other program uses; for `disk_pages`
  ChunkFileOptions file = {.setting = "memory.disk.path", .slots = 1};
};

/// What pages off the device take, if one has `bytes`.
std::int64_t host_bytes_of_pages(const PageRoom& room, std::int64_t bytes);
std::int64_t disk_bytes_of_pages(const PageRoom& room, std::int64_t bytes);

class LowerPages {
 public:
  /// `device`: tensors whose first dimension counts the pages of the device.
  LowerPages(const PageRoom& room, std::vector<at::Tensor> tensors, Device device,
             const LowerPagesOptions& options);

  void move(const PageMove& move);

 private:
  int chunk_of(std::int64_t page) const;
  at::Tensor host_page(std::int64_t page) const;
  template <typename Copy>
  void for_parts(std::int64_t page, const at::Tensor& bytes, Copy copy) const;
  at::Tensor read(std::int64_t page);

  PageRoom room_;
  std::vector<at::Tensor> tensors_;
  std::int64_t page_bytes_ = 0;  // of a page in host memory, whole blocks of the disk
  at::Tensor host_, staging_;    // bytes
  std::unique_ptr<ChunkFile> file_;
};

}  // namespace strata
