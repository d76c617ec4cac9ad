#include "strata/measure/machine_rates.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/measure/processor.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMiB = 1 << 20;

// Next to the program, because temporary folders may be in memory.
fs::path folder_on_disk() {
  const fs::path folder = fs::current_path() / "machine_rates_test_folder";
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

TEST(MachineRates, CoverAllDevicesAndLeaveNoFile) {
  const fs::path folder = folder_on_disk();
  at::set_num_threads(1);
  const MachineProfile machine = measure_machine({.cores = 2,
                                                  .memory_bytes = 8 * kMiB,
                                                  .link_bytes = kMiB,
                                                  .disk_bytes = 16 * kMiB,
                                                  .disk_folder = folder.string()});
  EXPECT_EQ(at::get_num_threads(), 1);
  for (const Bytes rate :
       {machine.host.copy, machine.host.triad, machine.host.update, machine.host.update_one_core,
        machine.link.to_device, machine.link.to_host, machine.disk.read, machine.disk.write}) {
    EXPECT_GT(rate.count, std::int64_t{1} << 20);
    EXPECT_LT(rate.count, std::int64_t{1} << 42);
  }
  EXPECT_GT(machine.link.latency, 0);
  EXPECT_LT(machine.link.latency, 1);
  EXPECT_EQ(machine.host.cores, 2);
  EXPECT_GT(machine.disk.bytes.count, 0);
  EXPECT_TRUE(fs::is_empty(folder));
  fs::remove_all(folder);
}

TEST(MachineRates, WithoutFolderOmitDisk) {
  const MachineProfile machine =
      measure_machine({.cores = 1, .memory_bytes = kMiB, .link_bytes = kMiB});
  EXPECT_EQ(machine.disk.read.count, 0);
  EXPECT_EQ(machine.host.update.count, machine.host.update_one_core.count);
  EXPECT_FALSE(to_json(machine).contains("disk"));
}

TEST(MachineRates, RejectMissingFolderOrFolderInMemory) {
  const fs::path folder = folder_on_disk();
  EXPECT_THROW(measure_machine({.disk_folder = (folder / "none").string()}), UserError);
  if (fs::is_directory("/dev/shm"))
    EXPECT_THROW(measure_machine({.disk_folder = "/dev/shm"}), UserError);
  fs::remove_all(folder);
}

TEST(MachineProfile, IsSavedWithRatesOfProcessor) {
  const ScratchFolder folder;
  const std::string file = folder.path("strata/doctor.json");
  const ProcessorIdentity here{.model = "a processor", .cores = 2, .instruction_set = "AVX2"};
  ProcessorIdentity there = here;
  there.cores = 4;
  EXPECT_EQ(load_profile(file, here).host.update.count, 0);
  MachineProfile machine;
  machine.host.update = {28'000'000'001};
  machine.disk.read = {3'000'000'000};
  save_profile(file, here, machine);
  const PrecisionRates rates = {
      {at::kFloat, 1e11, 2e11}, {at::kBFloat16, 1e9, 2e9}, {at::kHalf, 1, 2}};
  save_rates(file, here, rates);  // keeps the rest
  MachineProfile again;
  again.host.update = {30'000'000'000};
  save_profile(file, here, again);  // the disk was not measured this time
  const MachineProfile loaded = load_profile(file, here);
  EXPECT_EQ(loaded.host.update.count, 30'000'000'000);
  EXPECT_EQ(loaded.disk.read.count, 3'000'000'000);
  EXPECT_EQ(loaded.device.fp32, 2e11);
  EXPECT_EQ(loaded.device.bandwidth.count, 30'000'000'000);
  ASSERT_TRUE(load_rates(file, here));
  EXPECT_EQ(load_profile(file, there).host.update.count, 0);
  std::ofstream(file) << "{\"" << here.text() << "\": {\"machine\": {\"host\": 3}}}";
  EXPECT_EQ(load_profile(file, here).host.update.count, 0);
}

TEST(MachineProfile, GpuAppliesOnlyToRanksOnGpus) {
  const ScratchFolder folder;
  const std::string file = folder.path("strata/doctor.json");
  const ProcessorIdentity here{.model = "a processor", .cores = 2, .instruction_set = "AVX2"};
  MachineProfile saved;
  saved.device.kind = MachineKind::kCuda;
  saved.device.bytes = {80'000'000'000};
  saved.device.bf16 = 8e14;
  saved.link.to_device = {55'000'000'000};
  saved.peers.devices = 8;
  saved.host.update = {30'000'000'000};
  save_profile(file, here, saved);
  save_rates(file, here, {{at::kFloat, 1e11, 2e11}, {at::kBFloat16, 1e9, 2e9}, {at::kHalf, 1, 2}});
  const MachineProfile gpu = load_profile(file, here, MachineKind::kCuda);
  EXPECT_EQ(gpu.device.kind, MachineKind::kCuda);
  EXPECT_EQ(gpu.device.bf16, 8e14);
  EXPECT_EQ(gpu.link.to_device.count, 55'000'000'000);
  EXPECT_EQ(gpu.peers.devices, 8);
  EXPECT_EQ(gpu.host.update.count, 30'000'000'000);
  const MachineProfile cpu = load_profile(file, here);
  EXPECT_EQ(cpu.device.kind, MachineKind::kCpu);
  EXPECT_EQ(cpu.device.bytes.count, 0);
  EXPECT_EQ(cpu.device.bf16, 2e9);
  EXPECT_EQ(cpu.link.to_device.count, 0);
  EXPECT_EQ(cpu.peers.devices, 0);
  EXPECT_EQ(cpu.host.update.count, 30'000'000'000);
}

}  // namespace
}  // namespace strata
