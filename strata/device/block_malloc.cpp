#include "strata/device/block_malloc.h"

#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>
#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

namespace strata {
namespace {

// Calls tcmalloc's functions under their own names; RTLD_LOCAL hides its malloc().
struct Tcmalloc {
  void* (*memalign)(std::size_t alignment, std::size_t bytes) = nullptr;
  void (*free)(void* data) = nullptr;
  const char* (*version)(int* major, int* minor, const char** patch) = nullptr;

  Tcmalloc() {
#if !defined(STRATA_SANITIZED)  // a sanitizer must be the only allocator
    // tcmalloc and the C library would both move the program's break, each with its own lock, so
    // blocks of two threads would overlap. tcmalloc reads this variable when it is loaded.
    constexpr const char* kNoBreak = "TCMALLOC_SKIP_SBRK";
    const char* const value = ::getenv(kNoBreak);
    const std::string before = value ? value : "";
    if (::setenv(kNoBreak, "1", /*overwrite=*/1) != 0) return;
    void* const library = ::dlopen("libtcmalloc_minimal.so.4", RTLD_NOW | RTLD_LOCAL);
    value ? ::setenv(kNoBreak, before.c_str(), 1) : ::unsetenv(kNoBreak);
    if (!library) return;
    free = reinterpret_cast<decltype(free)>(::dlsym(library, "tc_free"));
    version = reinterpret_cast<decltype(version)>(::dlsym(library, "tc_version"));
    if (free && version)
      memalign = reinterpret_cast<decltype(memalign)>(::dlsym(library, "tc_memalign"));
#endif
  }
};

// Loaded before main(), while no other thread can read the environment.
const Tcmalloc tcmalloc;

constexpr std::size_t kLargeBlock = std::size_t{1} << 20;
constexpr std::size_t kLargePassingBlock = std::size_t{1} << 16;

std::atomic<bool> returns_large_blocks = false;
std::atomic<int> users_of_passing_blocks = 0;

// Whether a block has its own mapping.
bool is_mapped(std::size_t bytes) {
#if defined(STRATA_SANITIZED)  // a sanitizer must see every block
  return false;
#endif
  if (users_of_passing_blocks.load(std::memory_order_relaxed) > 0)
    return bytes >= kLargePassingBlock;
  return returns_large_blocks.load(std::memory_order_relaxed) && bytes >= kLargeBlock;
}

// Keeps blocks with their own mapping, including free ones that wait for reuse.
class Mappings {
 public:
  void* take(std::size_t bytes) {
    bytes = in_pages(bytes);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = waiting_.find(bytes); found != waiting_.end()) {
        void* const data = found->second;
        waiting_.erase(found);
        return data;
      }
    }
    void* const data =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    return data;
  }

  void give_back(void* data, std::size_t bytes) {
    bytes = in_pages(bytes);
    {
      const std::lock_guard lock(mutex_);
      if (users_of_passing_blocks > 0) {
        waiting_.emplace(bytes, data);
        return;
      }
    }
    ::munmap(data, bytes);
  }

  void end_use() {
    const std::lock_guard lock(mutex_);
    if (--users_of_passing_blocks > 0) return;
    for (const auto& [bytes, data] : waiting_) ::munmap(data, bytes);
    waiting_.clear();
  }

 private:
  static std::size_t in_pages(std::size_t bytes) {
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
  }

  std::mutex mutex_;
  std::multimap<std::size_t, void*> waiting_;  // by bytes
};

// Never destroyed: static tensors are freed late.
Mappings& mappings() {
  static auto& all = *new Mappings;
  return all;
}

}  // namespace

Block allocate_block(std::size_t bytes) {
  if (is_mapped(bytes))
    return {mappings().take(bytes),
            [](void* data, std::size_t count) { mappings().give_back(data, count); }};
  if (!tcmalloc.memalign)
    return {c10::alloc_cpu(bytes), [](void* data, std::size_t) { c10::free_cpu(data); }};
  void* const data = tcmalloc.memalign(c10::gAlignment, bytes);
  if (!data) throw std::bad_alloc();
  return {data, [](void* data, std::size_t) { tcmalloc.free(data); }};
}

std::string block_malloc_name() {
  if (!tcmalloc.memalign) return "the C library's";
  return std::string("tcmalloc of ") + tcmalloc.version(nullptr, nullptr, nullptr);
}

void return_large_blocks() {
  returns_large_blocks = true;
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, kLargeBlock);  // fixed: glibc raises it when such blocks are freed
#endif
}

PassingBlocks::PassingBlocks() { ++users_of_passing_blocks; }
PassingBlocks::~PassingBlocks() { mappings().end_use(); }

}  // namespace strata
