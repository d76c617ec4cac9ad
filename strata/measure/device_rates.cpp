// Random numbers are multiplied, not zeros: a GPU's clock depends on how many bits flip.
#include "strata/measure/device_rates.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "strata/base/measurement.h"
#include "strata/base/units.h"
#include "strata/device/determinism.h"
#include "strata/device/pinned.h"

namespace strata {
namespace {

// The median of several calls, each between two device events.
double seconds_of(Device device, int rounds, const std::function<void()>& call) {
  const Stream stream = Stream::compute(device);
  call();  // handles, workspaces, pages
  stream.synchronize();
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    const Completion begin = stream.record(EventTime::kKnown);
    call();
    const Completion end = stream.record(EventTime::kKnown);
    seconds.push_back(seconds_between(begin, end));
  }
  return std::max(median(seconds), 1e-9);
}

double product_rate(Device device, at::ScalarType dtype, const DeviceRatesOptions& options) {
  const std::int64_t n = options.product_size;
  const at::Tensor a = at::randn({n, n}, device.options(at::kFloat)).to(dtype);
  const at::Tensor b = at::randn({n, n}, device.options(at::kFloat)).to(dtype);
  at::Tensor c = at::empty({n, n}, device.options(dtype));
  const auto size = static_cast<double>(n);
  return 2 * size * size * size / seconds_of(device, options.rounds, [&] { at::mm_out(c, a, b); });
}

// Host seconds to enqueue the smallest kernel, with too few kernels to fill the queue.
double launch_seconds(Device device, int rounds) {
  constexpr int kLaunches = 200;
  const at::Tensor x = at::empty({1}, device.options(at::kFloat));
  const Stream stream = Stream::compute(device);
  std::vector<double> seconds;
  for (int round = 0; round <= rounds; ++round) {
    stream.synchronize();
    const double begin = now_seconds();
    for (int i = 0; i < kLaunches; ++i) x.fill_(i);
    seconds.push_back((now_seconds() - begin) / kLaunches);
  }
  return median(std::move(seconds));
}

void copy(Device device, const at::Tensor& to, const at::Tensor& from, std::int64_t bytes) {
  if (StreamQueue* queue = Stream::compute(device).queue()) {
    queue->copy(to.data_ptr(), from.const_data_ptr(), static_cast<std::size_t>(bytes));
  } else {
    std::memcpy(to.data_ptr(), from.const_data_ptr(), static_cast<std::size_t>(bytes));
  }
}

void measure_copies(DeviceRates& rates, Device device, const DeviceRatesOptions& options) {
  const at::Tensor here = at::empty({options.bytes}, device.options(at::kByte)).fill_(1);
  const at::Tensor there = at::empty({options.bytes}, device.options(at::kByte)).fill_(2);
  const at::Tensor host = pinned_bytes(options.bytes, device, nullptr);
  const auto bytes = static_cast<double>(options.bytes);
  const auto rate = [&](const at::Tensor& to, const at::Tensor& from) {
    return bytes /
           seconds_of(device, options.rounds, [&] { copy(device, to, from, options.bytes); });
  };
  rates.copy = 2 * rate(there, here);
  rates.to_device = rate(here, host);
  rates.to_host = rate(host, here);
  rates.transfer_seconds =
      seconds_of(device, 4 * options.rounds, [&] { copy(device, here, host, 64); });
  for (const int peer : rates.facts.peers) {
    const Device other{device.kind, peer};
    if (!backend_of(device.kind).enable_peer_access(device.index, peer)) continue;
    at::Tensor far;
    {
      const DeviceScope on_peer(other);
      far = at::empty({options.bytes}, other.options(at::kByte)).fill_(3);
      Stream::compute(other).synchronize();
    }
    rates.peers.push_back({peer, rate(here, far)});
  }
}

std::string giga(double value) { return format_double(value / 1e9, 1); }
std::string tera(double value) { return format_double(value / 1e12, 1); }

}  // namespace

DeviceRates measure_device(Device device, const DeviceRatesOptions& options) {
  const DeviceScope scope(device);
  const DeviceBackend& backend = backend_of(device.kind);
  DeviceRates rates{.facts = backend.facts(device.index),
                    .free_bytes = backend.free_bytes(device.index)};
  rates.fp32 = product_rate(device, at::kFloat, options);
  rates.bf16 = product_rate(device, at::kBFloat16, options);
  rates.fp16 = product_rate(device, at::kHalf, options);
  rates.launch_seconds = launch_seconds(device, options.rounds);
  measure_copies(rates, device, options);
  return rates;
}

void set_device(MachineProfile& machine, const DeviceRates& rates) {
  const auto count = [](double value) { return Bytes{static_cast<std::int64_t>(value)}; };
  const bool is_gpu = !rates.facts.capability.empty();
  machine.device.kind = is_gpu ? MachineKind::kCuda : MachineKind::kCpu;
  machine.device.multiprocessors = is_gpu ? rates.facts.multiprocessors : 0;
  machine.device.workspace.count = is_gpu ? kFixedWorkspaceBytes : 0;
  machine.device.launch = is_gpu ? rates.launch_seconds : 0;
  machine.device.bytes.count = rates.facts.bytes;
  machine.device.bandwidth = count(rates.copy);
  machine.device.fp32 = rates.fp32;
  machine.device.bf16 = rates.bf16;
  machine.device.fp16 = rates.fp16;
  machine.link.to_device = count(rates.to_device);
  machine.link.to_host = count(rates.to_host);
  machine.link.latency = rates.transfer_seconds;
  if (rates.peers.empty()) return;
  machine.peers.devices = static_cast<std::int64_t>(rates.peers.size()) + 1;
  machine.peers.bandwidth =
      count(std::ranges::min(rates.peers, {}, &PeerRate::bytes_per_second).bytes_per_second);
}

std::string device_text(int index, const DeviceRates& rates) {
  const std::string name = "GPU " + std::to_string(index);
  std::string text =
      name + std::string(14 - name.size(), ' ') + rates.facts.name + ", " +
      format_bytes(rates.facts.bytes) + " (" + format_bytes(rates.free_bytes) + " free), " +
      std::to_string(rates.facts.multiprocessors) + " multiprocessors, capability " +
      rates.facts.capability + "\n  GEMM        " + tera(rates.bf16) + " TFLOP/s bf16, " +
      tera(rates.fp16) + " fp16, " + tera(rates.fp32) + " fp32\n  memory      " + giga(rates.copy) +
      " GB/s copied\n  link        " + giga(rates.to_device) + " GB/s to the device, " +
      giga(rates.to_host) + " to the host, " + format_seconds(rates.transfer_seconds) +
      " a transfer\n  launch      " + format_seconds(rates.launch_seconds) + " a kernel\n";
  if (rates.facts.peers.empty()) return text + "  peers       none\n";
  text += "  peers       ";
  for (std::size_t i = 0; i < rates.peers.size(); ++i)
    text += (i ? ", " : "") + std::string("GPU ") + std::to_string(rates.peers[i].peer) + " " +
            giga(rates.peers[i].bytes_per_second) + " GB/s";
  return text + '\n';
}

nlohmann::json device_json(const DeviceRates& rates) {
  nlohmann::json peers = nlohmann::json::object();
  for (const PeerRate& peer : rates.peers) peers[std::to_string(peer.peer)] = peer.bytes_per_second;
  return {{"name", rates.facts.name},
          {"bytes", rates.facts.bytes},
          {"free_bytes", rates.free_bytes},
          {"multiprocessors", rates.facts.multiprocessors},
          {"capability", rates.facts.capability},
          {"flops_per_second", {{"fp32", rates.fp32}, {"bf16", rates.bf16}, {"fp16", rates.fp16}}},
          {"copy_bytes_per_second", rates.copy},
          {"to_device_bytes_per_second", rates.to_device},
          {"to_host_bytes_per_second", rates.to_host},
          {"transfer_seconds", rates.transfer_seconds},
          {"launch_seconds", rates.launch_seconds},
          {"peer_bytes_per_second", peers}};
}

}  // namespace strata
