// Simulates a machine: the system's files lie in a scratch folder.
#include "strata/device/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "strata/base/scratch_folder.h"
#include "strata/device/device.h"

namespace strata {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

class HostMemoryTest : public testing::Test {
 protected:
  // 64 GiB, of which 48 are free.
  HostMemoryTest() {
    write(
        "proc/meminfo",
        "MemTotal:       67108864 kB\nMemFree:         1048576 kB\nMemAvailable:   50331648 kB\n");
  }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.path(path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void write(const std::string& path, std::int64_t number) {
    write(path, std::to_string(number) + "\n");
  }
  void expect(std::int64_t gibibytes, std::int64_t free_gibibytes) {
    const HostMemory memory = host_memory(folder_.path(""));
    EXPECT_EQ(memory.bytes, gibibytes * kGiB);
    EXPECT_EQ(memory.free_bytes, free_gibibytes * kGiB);
  }

 private:
  ScratchFolder folder_;
};

TEST_F(HostMemoryTest, EqualsMachineMemoryWithoutGroupLimit) {
  expect(64, 48);
  write("proc/self/cgroup", "0::/user.slice\n");
  expect(64, 48);  // no memory controller
  write("sys/fs/cgroup/user.slice/memory.max", "max\n");
  write("sys/fs/cgroup/user.slice/memory.current", 60 * kGiB);
  expect(64, 48);
}

TEST_F(HostMemoryTest, EqualsContainerLimit) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", 8 * kGiB);
  write("sys/fs/cgroup/memory.current", 5 * kGiB);
  expect(8, 3);
  // File pages that were not used for a while are freed when memory is needed.
  write("sys/fs/cgroup/memory.stat", "anon 1\nfile 5\ninactive_file " + std::to_string(2 * kGiB) +
                                         "\nactive_file " + std::to_string(kGiB) + "\n");
  expect(8, 5);
  write("sys/fs/cgroup/memory.current", 12 * kGiB);
  expect(8, 0);
}

TEST_F(HostMemoryTest, EqualsMachineMemoryBelowContainerLimit) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", 60 * kGiB);
  write("sys/fs/cgroup/memory.current", 2 * kGiB);
  expect(60, 48);
}

TEST_F(HostMemoryTest, IsLimitedByEveryOuterGroup) {
  write("proc/self/cgroup", "0::/jobs/job7/rank0\n");
  write("sys/fs/cgroup/jobs/job7/rank0/memory.max", 16 * kGiB);
  write("sys/fs/cgroup/jobs/job7/rank0/memory.current", 1 * kGiB);
  expect(16, 15);
  write("sys/fs/cgroup/jobs/memory.max", 20 * kGiB);
  write("sys/fs/cgroup/jobs/memory.current", 18 * kGiB);
  expect(16, 2);
}

TEST_F(HostMemoryTest, IsLimitedByCgroupsVersion1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/docker/1\n4:hugetlb,memory:/docker/1\n0::/\n");
  // A container sees its own group as the root.
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", 4 * kGiB);
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", 3 * kGiB);
  write("sys/fs/cgroup/memory/memory.stat", "total_inactive_file " + std::to_string(kGiB) + "\n");
  expect(4, 2);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712);  // no limit
  expect(64, 48);
  write("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", 2 * kGiB);
  expect(2, 2);
}

TEST(HostMemory, EqualsMemoryOfCpuBackend) {
  const HostMemory memory = host_memory();
  EXPECT_GT(memory.free_bytes, 0);
  EXPECT_LE(memory.free_bytes, memory.bytes);
  EXPECT_EQ(cpu_backend().facts(0).bytes, memory.bytes);
  EXPECT_GT(cpu_backend().free_bytes(0), 0);
}

}  // namespace
}  // namespace strata
