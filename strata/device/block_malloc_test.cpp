#include "strata/device/block_malloc.h"

#include <c10/core/alignment.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace strata {
namespace {

TEST(BlockMalloc, BlocksAreAlignedAndApart) {
  std::vector<Block> blocks;
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 1; bytes < (8 << 20); bytes = bytes * 3 + 1) {
    blocks.push_back(allocate_block(bytes));
    sizes.push_back(bytes);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().data) % c10::gAlignment, 0u) << bytes;
    std::memset(blocks.back().data, static_cast<int>(blocks.size()), bytes);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(blocks[i].data);
    EXPECT_EQ(bytes[0], i + 1);
    EXPECT_EQ(bytes[sizes[i] - 1], i + 1);
  }
  // A thread that did not allocate the blocks frees them.
  std::thread([&] {
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].release(blocks[i].data, sizes[i]);
  }).join();
}

// Two mallocs that both move the program's break would give the same addresses to two threads.
TEST(BlockMalloc, BlocksDoNotOverlapCLibraryHeap) {
  if (block_malloc_name() == "the C library's") GTEST_SKIP() << "there is no tcmalloc here";
  std::vector<Block> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(allocate_block(1 << 20));
  std::ifstream maps("/proc/self/maps");
  std::uintptr_t begin = 0, end = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find("[heap]") != std::string::npos)
      ASSERT_EQ(std::sscanf(line.c_str(), "%lx-%lx", &begin, &end), 2) << line;
  for (const Block& block : blocks) {
    const auto at = reinterpret_cast<std::uintptr_t>(block.data);
    EXPECT_FALSE(begin <= at && at < end);
    block.release(block.data, 1 << 20);
  }
}

TEST(BlockMalloc, RefusesBlockBeyondMemory) {
  EXPECT_ANY_THROW(allocate_block(std::size_t{1} << 60));
}

std::int64_t resident_bytes() {
  std::ifstream status("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  status >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// A measurement allocates the same blocks repeatedly; afterwards its memory returns to the system.
TEST(BlockMalloc, PassingBlocksAreReusedAndFinallyUnmapped) {
#if defined(STRATA_SANITIZED)
  GTEST_SKIP() << "sanitizers keep freed blocks";
#endif
  constexpr std::int64_t kBytes = 512 << 10, kBlocks = 128;  // 64 MiB
  const auto use = [] {
    std::vector<Block> blocks;
    for (int i = 0; i < kBlocks; ++i) {
      blocks.push_back(allocate_block(kBytes));
      std::memset(blocks.back().data, 1, kBytes);
    }
    std::set<const void*> places;
    for (const Block& block : blocks) {
      places.insert(block.data);
      block.release(block.data, kBytes);
    }
    return places;
  };
  const std::int64_t before = resident_bytes();
  {
    const PassingBlocks passing;
    const std::set<const void*> places = use();
    EXPECT_GE(resident_bytes() - before, kBlocks * kBytes * 9 / 10);  // their pages are resident
    EXPECT_EQ(use(), places);
  }
  EXPECT_LE(resident_bytes() - before, kBlocks * kBytes / 10);
}

TEST(BlockMalloc, EarlierBlocksKeepEarlierRelease) {
  const Block before = allocate_block(3 << 20);
  return_large_blocks();
  const Block after = allocate_block(3 << 20);
  before.release(before.data, 3 << 20);
  after.release(after.data, 3 << 20);
}

}  // namespace
}  // namespace strata
