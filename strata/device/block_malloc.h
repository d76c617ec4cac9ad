/// Memory of tensors on the host: by tcmalloc, if the system has it.
///
/// Tensors of many sizes come and go in every step. glibc's malloc, which libtorch takes them from, leaves holes
/// between them, and a process keeps a quarter more than it uses (bench/pipeline); tcmalloc joins pages that
/// are free. Only tensors are its: whoever else allocates and frees here may be bound to the C library, as
/// what dlopen() loads with its own symbols first is.
///
/// tcmalloc keeps what is freed. Where a process has to occupy no more than its tensors do, large blocks are mappings
/// of their own, which go back to the system.
///
/// Source  Ghemawat, Menage: TCMalloc (gperftools)
#pragma once

#include <cstddef>
#include <string>

namespace strata {

/// Aligned as c10 aligns; `release` frees it, whatever is chosen later. `bytes`: as many as were asked for.
struct Block {
  void* data;
  void (*release)(void* data, std::size_t bytes);
};

/// std::bad_alloc or c10::Error: there is no memory.
Block allocate_block(std::size_t bytes);

/// "tcmalloc of gperftools 2.10" or "the C library's".
std::string block_malloc_name();

/// From now on the process gives blocks of a MiB or more back to the system when they are freed. Weights
/// that come and go otherwise leave holes between activations that only smaller blocks fill, and the
/// process grows to the size of the whole model whatever its accounts say. Costs the pages' faults of
/// every such block.
void return_large_blocks();

/// For work whose memory the process needs no longer afterwards, such as a measurement: while one lives, a block of
/// 64 KiB or more that is freed waits for the next one of its size, so that its pages are there; when the last one
/// ends, all of them go back to the system.
class PassingBlocks {
 public:
  PassingBlocks();
  ~PassingBlocks();
  PassingBlocks(const PassingBlocks&) = delete;
  PassingBlocks& operator=(const PassingBlocks&) = delete;
};

}  // namespace strata
