#include "strata/pipeline/device_rates.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace strata {
namespace {

DeviceRates made_up() {
  return {.facts = {.name = "a GPU",
                    .bytes = std::int64_t{80} << 30,
                    .multiprocessors = 132,
                    .capability = "9.0",
                    .peers = {1, 2}},
          .fp32 = 51e12,
          .bf16 = 798e12,
          .fp16 = 801.25e12,
          .copy = 3.0e12,
          .to_device = 55e9,
          .to_host = 54e9,
          .transfer_seconds = 5e-6,
          .peers = {{1, 380e9}, {2, 381e9}}};
}

TEST(DeviceRatesText, HasALineForEverything) {
  EXPECT_EQ(device_text(0, made_up()),
            "GPU 0         a GPU, 80.00 GiB, 132 multiprocessors, capability 9.0\n"
            "  GEMM        798.0 TFLOP/s bf16, 801.2 fp16, 51.0 fp32\n"
            "  memory      3000.0 GB/s copied\n"
            "  link        55.0 GB/s to the device, 54.0 to the host, 5 us a transfer\n"
            "  peers       GPU 1 380.0 GB/s, GPU 2 381.0 GB/s\n");
  DeviceRates alone = made_up();
  alone.facts.peers.clear();
  EXPECT_NE(device_text(11, alone).find("  peers       none\n"), std::string::npos);
}

TEST(DeviceRatesText, IsInJsonToo) {
  const nlohmann::json json = device_json(made_up());
  EXPECT_EQ(json["name"], "a GPU");
  EXPECT_EQ(json["flops_per_second"]["bf16"], 798e12);
  EXPECT_EQ(json["peer_bytes_per_second"]["2"], 381e9);
}

TEST(DeviceRates, AreWhatAPlanKnowsOfTheMachine) {
  MachineProfile machine{.name = "here"};
  set_device(machine, made_up());
  EXPECT_EQ(machine.device.bytes.count, std::int64_t{80} << 30);
  EXPECT_EQ(machine.device.bf16, 798e12);
  EXPECT_EQ(machine.device.bandwidth.count, 3'000'000'000'000);
  EXPECT_EQ(machine.link.to_host.count, 54'000'000'000);
  EXPECT_EQ(machine.link.latency, 5e-6);
  EXPECT_EQ(machine.name, "here");
}

// The same code with the clock of a CPU.
TEST(DeviceRates, AreMeasuredOnAnyDevice) {
  const DeviceRates rates = measure_device({}, {.product_size = 64, .bytes = 1 << 20, .rounds = 3});
  EXPECT_EQ(rates.facts.name, "CPU");
  EXPECT_GT(rates.facts.bytes, 1 << 20);
  for (const double rate :
       {rates.fp32, rates.bf16, rates.fp16, rates.copy, rates.to_device, rates.to_host})
    EXPECT_GT(rate, 1e3);
  EXPECT_TRUE(rates.peers.empty());
}

}  // namespace
}  // namespace strata
