#include "strata/plan/machine_profile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr const char* kText = R"(
name: a machine
device: {bytes: 32GiB, bandwidth: 900GB, fp32: 1.5e13, bf16: 2e13, fp16: 3e13}
link: {to_device: 12GB, to_host: 11GB, latency: 1e-5}
host: {bytes: 90GB, cores: 12, copy: 80GB, triad: 70GB, update: 60GB, update_one_core: 9GB}
disk: {bytes: 1TB, read: 3GB, write: 2GB}
network: {bandwidth: 1.25GB, latency: 1e-4}
)";

TEST(MachineProfile, RoundTripsThroughJson) {
  const MachineProfile machine = parse_machine(kText, "m.yaml");
  EXPECT_EQ(machine.device.bytes.count, std::int64_t{32} << 30);
  EXPECT_EQ(machine.device.bf16, 2e13);
  EXPECT_EQ(machine.link.to_host.count, 11'000'000'000);
  EXPECT_EQ(machine.disk.write.count, 2'000'000'000);
  const nlohmann::json json = to_json(machine);
  EXPECT_EQ(json["device"].size(), 5u);
  EXPECT_EQ(json["link"].size(), 3u);
  EXPECT_EQ(json["host"].size(), 6u);
  EXPECT_EQ(json["disk"].size(), 3u);
  EXPECT_EQ(json["network"].size(), 2u);
  EXPECT_EQ(machine.network.bandwidth.count, 1'250'000'000);
  EXPECT_EQ(to_json(parse_machine(json.dump(), "m.json")), json);
}

TEST(MachineProfile, ReservesHostMemoryUnlessFileSetsIt) {
  EXPECT_EQ(parse_machine(kText, "m").host.reserve.count, std::int64_t{6} << 30);
  const MachineProfile own = parse_machine("host: {bytes: 90GB, reserve: 8GB}", "m");
  EXPECT_EQ(own.host.reserve.count, 8'000'000'000);
  EXPECT_EQ(parse_machine(to_json(own).dump(), "m").host.reserve.count, 8'000'000'000);
}

TEST(MachineProfile, OmitsUnknownFields) {
  const MachineProfile machine = parse_machine("host: {cores: 2}", "file");
  EXPECT_EQ(machine.name, "file");
  EXPECT_EQ(machine.link.to_device.count, 0);
  EXPECT_EQ(to_json(machine).dump(), R"({"host":{"cores":2},"name":"file"})");
}

TEST(MachineProfile, RejectsUnknownFieldsAndMissingFiles) {
  EXPECT_THROW(parse_machine("device: {size: 3}", "m"), UserError);
  EXPECT_THROW(parse_machine("device: {bytes: -3}", "m"), UserError);
  EXPECT_THROW(parse_machine("link: {latency: 9}", "m"), UserError);
  EXPECT_THROW(parse_machine("network: {latency: 9}", "m"), UserError);
  EXPECT_THROW(load_machine("/nowhere/m.yaml"), UserError);
}

TEST(MachineProfile, FindsGpusByName) {
  for (const char* name : {"a100", "h100", "h200"}) {
    const MachineProfile machine = find_machine(name);
    EXPECT_EQ(machine.source, "published");
    EXPECT_EQ(machine.device.kind, MachineKind::kCuda);
    EXPECT_GT(machine.device.bf16, machine.device.fp32);
    EXPECT_GT(machine.device.bandwidth.count, 1'000'000'000'000);
    EXPECT_LT(machine.device.bf16, machine.device.peak);  // programs do not reach it
    EXPECT_GT(machine.peers.bandwidth.count, machine.network.bandwidth.count);
    EXPECT_EQ(to_json(parse_machine(to_json(machine).dump(), "m")), to_json(machine));
  }
  for (const auto& [name, fix] :
       {std::pair("H100", "did you mean 'h100'?"),
        std::pair("b200",
                  "describe the machine in a file, as machines/v100-stronghold.yaml does one")}) {
    try {
      find_machine(name);
      FAIL();
    } catch (const UserError& error) {
      EXPECT_NE(error.text().expected.find("a100, h100, h200"), std::string::npos);
      EXPECT_EQ(error.text().fix, fix);
    }
  }
}

// The profiles in the repository can be planned for.
TEST(MachineProfile, ShippedFilesHaveBudgetsAndRates) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(STRATA_SOURCE_DIR) + "/machines")) {
    const MachineProfile machine = load_machine(entry.path().string());
    EXPECT_GT(machine.device.bytes.count, 0) << entry.path();
    EXPECT_GT(machine.device.fp32, 0) << entry.path();
    EXPECT_GT(machine.host.bytes.count, 0) << entry.path();
    EXPECT_NE(machine.name, entry.path());
    ++files;
  }
  EXPECT_GE(files, 2);
}

}  // namespace
}  // namespace strata
