/// Allocates memory of tensors on the host with tcmalloc, if the system has it.
///
/// Tensors of many sizes are allocated and freed in every step. glibc's malloc, libtorch's default,
/// leaves holes between them, and a process keeps a quarter more than it uses (bench/pipeline);
/// tcmalloc joins free pages. Only tensors use it: other code may be bound to the C library's
/// malloc, such as libraries that dlopen() binds to their own symbols first.
///
/// tcmalloc keeps freed memory. If a process must not occupy more than its tensors do, large blocks
/// get their own mappings, which return to the system when freed.
///
/// Source  Ghemawat, Menage: TCMalloc (gperftools)
#pragma once

#include <cstddef>
#include <string>

namespace strata {

/// A block, aligned as c10 requires. `release` frees it, even after the allocator changed; its
/// `bytes` must be those requested.
struct Block {
  void* data;
  void (*release)(void* data, std::size_t bytes);
};

/// Throws std::bad_alloc or c10::Error if there is no memory.
Block allocate_block(std::size_t bytes);

/// Returns "tcmalloc of gperftools 2.10" or "the C library's".
std::string block_malloc_name();

/// Makes the process return blocks of a MiB or more to the system when they are freed. Otherwise
/// weights that are fetched and released leave holes between activations that only smaller blocks
/// fill, and the process grows to the size of the whole model, whatever its accounts state. Costs
/// the page faults of every such block.
void return_large_blocks();

/// Reuses large blocks during temporary work, such as a measurement. While an object lives, freed
/// blocks of 64 KiB or more wait for the next allocation of their size and keep their pages. When
/// the last object ends, all waiting blocks return to the system.
class PassingBlocks {
 public:
  PassingBlocks();
  ~PassingBlocks();
  PassingBlocks(const PassingBlocks&) = delete;
  PassingBlocks& operator=(const PassingBlocks&) = delete;
};

}  // namespace strata
