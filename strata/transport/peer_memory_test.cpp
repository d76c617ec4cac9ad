#include "strata/transport/peer_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

namespace strata {
namespace {

TEST(PeerMemory, ResumesPartialReadWhereItStopped) {
  std::vector<unsigned char> memory(1000);
  std::iota(memory.begin(), memory.end(), 0);
  for (const std::size_t most : {1, 7, 333, 999, 1000}) {
    int calls = 0;
    const ReadOnce partial = [&](std::uint64_t address, std::size_t count, void* to) -> ssize_t {
      if (++calls % 3 == 0) {
        errno = EINTR;
        return -1;
      }
      const std::size_t some = std::min(count, most);
      std::memcpy(to, reinterpret_cast<const void*>(address), some);
      return static_cast<ssize_t>(some);
    };
    std::vector<unsigned char> read(memory.size());
    EXPECT_TRUE(read_completely(partial, reinterpret_cast<std::uint64_t>(memory.data()),
                                memory.size(), read.data()));
    EXPECT_EQ(read, memory) << "at most " << most << " bytes a call";
  }
}

TEST(PeerMemory, SocketsOnlyUnlessVariableIsUnsetEmptyOrZero) {
  ::unsetenv("STRATA_SOCKETS");
  EXPECT_FALSE(sockets_only());
  for (const char* off : {"", "0"}) {
    ::setenv("STRATA_SOCKETS", off, 1);
    EXPECT_FALSE(sockets_only()) << off;
  }
  ::setenv("STRATA_SOCKETS", "1", 1);
  EXPECT_TRUE(sockets_only());
  ::unsetenv("STRATA_SOCKETS");
}

TEST(PeerMemory, ReadBeyondMappingFails) {
  const ReadOnce nothing = [](std::uint64_t, std::size_t, void*) -> ssize_t { return 0; };
  char byte;
  EXPECT_FALSE(read_completely(nothing, 0, 1, &byte));
  EXPECT_TRUE(read_completely(nothing, 0, 0, &byte));
  // The kernel copies up to the unmapped page and reports that; the rest is not mapped.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* pages = static_cast<char*>(
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ::munmap(pages + page, page);
  std::vector<char> read(2 * page);
  const auto address = reinterpret_cast<std::uint64_t>(pages);
  EXPECT_TRUE(read_memory(::getpid(), address, page, read.data()));
  EXPECT_FALSE(read_memory(::getpid(), address, 2 * page, read.data()));
  ::munmap(pages, page);
}

}  // namespace
}  // namespace strata
