/// Measures the rates of one device with a queue and prints them: a block of `strata doctor`.
///
/// Units  operations and bytes per second; a copy within the device counts reads and writes.
/// Cost   some seconds and 2 GiB of the device; a GiB of locked host memory.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "strata/device/device.h"
#include "strata/plan/machine_profile.h"

namespace strata {

struct PeerRate {
  int peer = 0;
  double bytes_per_second = 0;  ///< read by the device from the peer
};

struct DeviceRates {
  DeviceFacts facts;
  std::int64_t free_bytes = 0;          ///< free memory before the measurements
  double fp32 = 0, bf16 = 0, fp16 = 0;  ///< large products
  double copy = 0, to_device = 0, to_host = 0;
  double transfer_seconds = 0;  ///< a small transfer
  double launch_seconds = 0;    ///< of the host, to enqueue a kernel
  std::vector<PeerRate> peers;
};

struct DeviceRatesOptions {
  std::int64_t product_size = 8192;  ///< rows and columns of each matrix
  std::int64_t bytes = std::int64_t{1} << 30;
  int rounds = 10;
};

/// On a CPU, too, for tests.
DeviceRates measure_device(Device device, const DeviceRatesOptions& options = {});

/// What plans read: the device, its link and its peers.
void set_device(MachineProfile& machine, const DeviceRates& rates);

/// Lines of 14 columns and a text: GPU, GEMM, memory, link, launch, peers.
std::string device_text(int index, const DeviceRates& rates);
nlohmann::json device_json(const DeviceRates& rates);

}  // namespace strata
