#include "strata/device/block_malloc.h"

#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>
#include <dlfcn.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace strata {
namespace {

// Its functions under their own names; its malloc() stays behind RTLD_LOCAL.
struct Tcmalloc {
  void* (*memalign)(std::size_t alignment, std::size_t bytes) = nullptr;
  void (*free)(void* data) = nullptr;
  const char* (*version)(int* major, int* minor, const char** patch) = nullptr;

  Tcmalloc() {
#if !defined(STRATA_SANITIZED)  // their allocators want to be the only ones
    // It and the C library would both move the program's break, each behind a lock of its own: blocks of two
    // threads would overlap. It reads this when it is loaded.
    constexpr const char* kNoBreak = "TCMALLOC_SKIP_SBRK";
    const char* const told = ::getenv(kNoBreak);
    const std::string before = told ? told : "";
    if (::setenv(kNoBreak, "1", /*overwrite=*/1) != 0) return;
    void* const library = ::dlopen("libtcmalloc_minimal.so.4", RTLD_NOW | RTLD_LOCAL);
    told ? ::setenv(kNoBreak, before.c_str(), 1) : ::unsetenv(kNoBreak);
    if (!library) return;
    free = reinterpret_cast<decltype(free)>(::dlsym(library, "tc_free"));
    version = reinterpret_cast<decltype(version)>(::dlsym(library, "tc_version"));
    if (free && version)
      memalign = reinterpret_cast<decltype(memalign)>(::dlsym(library, "tc_memalign"));
#endif
  }
};

// Before main(), while no other thread may read the environment.
const Tcmalloc tcmalloc;

std::atomic<bool> returns_large_blocks = false;

}  // namespace

Block allocate_block(std::size_t bytes) {
  if (!tcmalloc.memalign || returns_large_blocks.load(std::memory_order_relaxed))
    return {c10::alloc_cpu(bytes), &c10::free_cpu};
  void* const data = tcmalloc.memalign(c10::gAlignment, bytes);
  if (!data) throw std::bad_alloc();
  return {data, tcmalloc.free};
}

std::string block_malloc_name() {
  if (!tcmalloc.memalign) return "the C library's";
  return std::string("tcmalloc of ") + tcmalloc.version(nullptr, nullptr, nullptr);
}

void return_large_blocks() {
  // tcmalloc would keep their addresses, which a limit of the kernel counts.
  returns_large_blocks = true;
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);  // fixed: glibc raises it where such blocks are freed
#endif
}

}  // namespace strata
