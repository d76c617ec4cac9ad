#include "strata/measure/device_rates.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "strata/device/determinism.h"
#include "strata/plan/search/gpu_costs.h"

namespace strata {
namespace {

DeviceRates made_up() {
  return {.facts = {.name = "a GPU",
                    .bytes = std::int64_t{80} << 30,
                    .multiprocessors = 132,
                    .capability = "9.0",
                    .peers = {1, 2}},
          .free_bytes = std::int64_t{79} << 30,
          .fp32 = 51e12,
          .bf16 = 798e12,
          .fp16 = 801.25e12,
          .copy = 3.0e12,
          .to_device = 55e9,
          .to_host = 54e9,
          .transfer_seconds = 5e-6,
          .launch_seconds = 3e-6,
          .peers = {{1, 380e9}, {2, 381e9}}};
}

TEST(DeviceRatesText, HasOneLinePerMeasurement) {
  EXPECT_EQ(device_text(0, made_up()),
            "GPU 0         a GPU, 80.00 GiB (79.00 GiB free), 132 multiprocessors, capability 9.0\n"
            "  GEMM        798.0 TFLOP/s bf16, 801.2 fp16, 51.0 fp32\n"
            "  memory      3000.0 GB/s copied\n"
            "  link        55.0 GB/s to the device, 54.0 to the host, 5 us a transfer\n"
            "  launch      3 us a kernel\n"
            "  peers       GPU 1 380.0 GB/s, GPU 2 381.0 GB/s\n");
  DeviceRates alone = made_up();
  alone.facts.peers.clear();
  EXPECT_NE(device_text(11, alone).find("  peers       none\n"), std::string::npos);
}

TEST(DeviceRatesText, IsInJson) {
  const nlohmann::json json = device_json(made_up());
  EXPECT_EQ(json["name"], "a GPU");
  EXPECT_EQ(json["free_bytes"], std::int64_t{79} << 30);
  EXPECT_EQ(json["flops_per_second"]["bf16"], 798e12);
  EXPECT_EQ(json["peer_bytes_per_second"]["2"], 381e9);
}

TEST(DeviceRates, BecomeMachineProfileOfPlan) {
  MachineProfile machine{.name = "here"};
  set_device(machine, made_up());
  EXPECT_EQ(machine.device.bytes.count, std::int64_t{80} << 30);
  EXPECT_EQ(machine.device.bf16, 798e12);
  EXPECT_EQ(machine.device.bandwidth.count, 3'000'000'000'000);
  EXPECT_EQ(machine.link.to_host.count, 54'000'000'000);
  EXPECT_EQ(machine.link.latency, 5e-6);
  EXPECT_EQ(machine.name, "here");
}

// The rates that plan/search/gpu_costs.h uses; none is a CPU's.
TEST(DeviceRates, AddGpuAndPeerCostsToPlans) {
  MachineProfile machine{.name = "here"};
  set_device(machine, made_up());
  machine = parse_machine(to_json(machine).dump(), "saved");
  EXPECT_EQ(machine.device.kind, MachineKind::kCuda);
  EXPECT_EQ(machine.device.multiprocessors, 132);
  EXPECT_EQ(machine.device.launch, 3e-6);
  EXPECT_EQ(machine.peers.devices, 3);
  EXPECT_EQ(machine.peers.bandwidth.count, 380'000'000'000);  // the slowest peer's
  const AttentionShape attention{.samples = 1, .heads = 2, .tokens = 128, .head_width = 64};
  const CostTable costs = with_gpu_costs({.layers = {{.work = {.attention = attention}}}}, machine);
  EXPECT_EQ(costs.workspace_bytes, kFixedWorkspaceBytes);
  EXPECT_EQ(costs.context_bytes, 0);  // counted in no rank's budget
  EXPECT_EQ(costs.launch.kernel, 3e-6);
  const AxisRates rates =
      gpu_axis_rates(machine, {{Axis::kPipeline, 2}, {Axis::kTensor, 3}},
                     {{Axis::kPipeline, 1}, {Axis::kData, 1}, {Axis::kTensor, 1}});
  EXPECT_EQ(rates[Axis::kTensor], 380e9);
  EXPECT_EQ(rates[Axis::kPipeline], 1);  // to another machine, whose network is unknown
  DeviceRates cpu = made_up();
  cpu.facts.capability.clear();
  cpu.peers.clear();
  MachineProfile none;
  set_device(none, cpu);
  EXPECT_EQ(none.device.kind, MachineKind::kCpu);
  EXPECT_EQ(none.device.multiprocessors, 0);
  EXPECT_EQ(none.device.launch, 0);
  EXPECT_EQ(none.peers.devices, 0);
}

// The same code with the clock of a CPU.
TEST(DeviceRates, AreMeasuredOnAnyDevice) {
  const DeviceRates rates = measure_device({}, {.product_size = 64, .bytes = 1 << 20, .rounds = 3});
  EXPECT_EQ(rates.facts.name, "CPU");
  EXPECT_GT(rates.facts.bytes, 1 << 20);
  for (const double rate :
       {rates.fp32, rates.bf16, rates.fp16, rates.copy, rates.to_device, rates.to_host})
    EXPECT_GT(rate, 1e3);
  EXPECT_GT(rates.launch_seconds, 0);
  EXPECT_LT(rates.launch_seconds, 1e-2);
  EXPECT_TRUE(rates.peers.empty());
}

}  // namespace
}  // namespace strata
