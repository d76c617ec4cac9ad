/// Memory of tensors on the host: by tcmalloc, if the system has it.
///
/// Tensors of many sizes come and go in every step. glibc's malloc, which libtorch takes them from, leaves holes
/// between them, and a process keeps a quarter more than it uses (bench/pipeline); tcmalloc joins pages that
/// are free. Only tensors are its: whoever else allocates and frees here may be bound to the C library, as
/// what dlopen() loads with its own symbols first is.
///
/// Source  Ghemawat, Menage: TCMalloc (gperftools)
#pragma once

#include <cstddef>
#include <string>

namespace strata {

/// Aligned as c10 aligns; `release` frees it, whatever is chosen later.
struct Block {
  void* data;
  void (*release)(void* data);
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

}  // namespace strata
