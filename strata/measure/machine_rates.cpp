// Arrays are larger than caches, and threads are torch's own, as in the updates of a run. The disk
// is read and written through AsyncFile, as tiers do, which reports a machine without io_uring or
// O_DIRECT.
#include "strata/measure/machine_rates.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/device/device.h"
#include "strata/device/link.h"
#include "strata/disk/aligned_buffer.h"
#include "strata/disk/async_file.h"
#include "strata/disk/disk_folder.h"
#include "strata/optim/update_kernels.h"

namespace strata {
namespace {

constexpr int kRounds = 5;
constexpr int kDiskRounds = 3;
constexpr std::int64_t kGrain = 1 << 16;
constexpr std::int64_t kTransferBytes = 8 << 20;  // of the disk: the size of a layer's buffers
constexpr std::int64_t kPage = 4096;

template <typename F>
double best_seconds(int rounds, F f) {
  f();  // pays for page faults and the threads' start
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round) {
    const double begin = now_seconds();
    f();
    best = std::min(best, now_seconds() - begin);
  }
  return best;
}

Bytes rate(std::int64_t bytes, double seconds) {
  return {static_cast<std::int64_t>(static_cast<double>(bytes) / std::max(seconds, 1e-9))};
}

class Threads {
 public:
  explicit Threads(int threads) : before_(at::get_num_threads()) { at::set_num_threads(threads); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

using Arrays = std::vector<std::vector<float>>;

Bytes copy_rate(Arrays& arrays) {
  const auto n = static_cast<std::int64_t>(arrays[0].size());
  const double seconds = best_seconds(kRounds, [&] {
    at::parallel_for(0, n, kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(&arrays[0][begin], &arrays[1][begin], (end - begin) * sizeof(float));
    });
  });
  return rate(2 * n * static_cast<std::int64_t>(sizeof(float)), seconds);
}

// As in STREAM.
Bytes triad_rate(Arrays& arrays) {
  const auto n = static_cast<std::int64_t>(arrays[0].size());
  const double seconds = best_seconds(kRounds, [&] {
    at::parallel_for(0, n, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) arrays[0][i] = arrays[1][i] + 3.0f * arrays[2][i];
    });
  });
  return rate(3 * n * static_cast<std::int64_t>(sizeof(float)), seconds);
}

Bytes update_rate(Arrays& arrays, int threads) {
  const Threads here(threads);
  const auto n = static_cast<std::int64_t>(arrays[0].size());
  const kernels::UpdateStep step{.size = 1e-3f,
                                 .mean_kept = 0.9f,
                                 .mean_share = 0.1f,
                                 .square_kept = 0.99f,
                                 .square_share = 0.01f,
                                 .root_scale = 1,
                                 .epsilon = 1e-8f};
  const kernels::UpdateArrays update{.weights = arrays[0].data(),
                                     .gradients = arrays[1].data(),
                                     .slots = {arrays[2].data(), arrays[3].data()}};
  const double seconds = best_seconds(kRounds, [&] {
    at::parallel_for(0, n, kGrain, [&](std::int64_t begin, std::int64_t end) {
      kernels::update(step, update, {begin, end});
    });
  });
  constexpr std::int64_t kElementBytes = 28;  // w, m, v read and written, g read
  return rate(kElementBytes * n, seconds);
}

void measure_host(MachineProfile& machine, const MachineRatesOptions& options) {
  const Threads all(options.cores);
  constexpr int kArrays = 4;
  const std::int64_t elements =
      options.memory_bytes / (kArrays * static_cast<std::int64_t>(sizeof(float)));
  Arrays arrays(kArrays, std::vector<float>(elements, 1e-3f));
  machine.host.cores = options.cores;
  machine.host.bytes.count = cpu_backend().facts(0).bytes;
  machine.host.copy = copy_rate(arrays);
  machine.host.triad = triad_rate(arrays);
  machine.host.update = update_rate(arrays, options.cores);
  machine.host.update_one_core = options.cores > 1 ? update_rate(arrays, 1) : machine.host.update;
}

void measure_link(MachineProfile& machine, const MachineRatesOptions& options) {
  constexpr std::int64_t kSmall = 16;
  Link link({}, nullptr, options.device);
  const auto pair_of = [&](std::int64_t elements) {
    return std::pair(at::zeros({elements}, options.device.options(at::kFloat)),
                     at::zeros({elements}, host_options(at::kFloat)));
  };
  const auto [device, host] =
      pair_of(options.link_bytes / static_cast<std::int64_t>(sizeof(float)));
  const auto bytes = static_cast<std::int64_t>(host.nbytes());
  machine.link.to_device =
      rate(bytes, best_seconds(kRounds, [&] { link.to_device(device, host).wait(); }));
  machine.link.to_host =
      rate(bytes, best_seconds(kRounds, [&] { link.to_host(host, device).wait(); }));
  const auto [near, far] = pair_of(kSmall);
  machine.link.latency = best_seconds(4 * kRounds, [&] { link.to_device(near, far).wait(); });
}

// A file of whole pages that is removed with this object.
class ScratchFile {
 public:
  ScratchFile(const std::string& folder, std::int64_t bytes)
      : path_(folder + "/strata-doctor-" + std::to_string(::getpid())) {
    const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const int error = descriptor < 0 ? errno : ::posix_fallocate(descriptor, 0, bytes);
    if (descriptor >= 0) ::close(descriptor);
    if (error == 0) return;
    if (descriptor >= 0) ::unlink(path_.c_str());
    throw_error(file_error("pipeline.machine_rates", path_, "the file cannot be made", error));
  }
  ~ScratchFile() { ::unlink(path_.c_str()); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void measure_disk(MachineProfile& machine, const MachineRatesOptions& options) {
  const std::int64_t bytes =
      std::max(kTransferBytes, options.disk_bytes / kTransferBytes * kTransferBytes);
  require_disk_folder(options.disk_folder, bytes, "--disk");
  if (!std::filesystem::is_directory(options.disk_folder)) {
    throw UserError({.operation = "pipeline.machine_rates",
                     .where = "--disk " + options.disk_folder,
                     .what = "there is no such folder",
                     .expected = "a folder on the disk",
                     .fix = "make it first"});
  }
  const ScratchFile scratch(options.disk_folder, bytes);
  AlignedBuffer memory(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < memory.bytes().size(); i += kPage)
    memory.bytes()[i] = static_cast<std::byte>(i / kPage);
  AsyncFile file(scratch.path(), {.buffers = {memory.bytes()}});
  const auto pass = [&](auto begin_one) {
    std::vector<DiskTransfer> transfers;
    for (std::int64_t at = 0; at < bytes; at += kTransferBytes)
      transfers.push_back(
          begin_one(static_cast<std::uint64_t>(at), memory.bytes().subspan(at, kTransferBytes)));
    for (DiskTransfer& transfer : transfers) transfer.wait();
  };
  machine.disk.write =
      rate(bytes, best_seconds(kDiskRounds, [&] {
             pass([&](std::uint64_t at, auto part) { return file.write(at, part); });
             file.sync().wait();
           }));
  machine.disk.read = rate(bytes, best_seconds(kDiskRounds, [&] {
                             pass([&](std::uint64_t at, auto part) { return file.read(at, part); });
                           }));
  machine.disk.bytes.count =
      static_cast<std::int64_t>(std::filesystem::space(options.disk_folder).available);
}

}  // namespace

MachineProfile measure_machine(const MachineRatesOptions& options) {
  MachineProfile machine;
  if (!options.disk_folder.empty()) measure_disk(machine, options);  // refuses before measuring
  measure_host(machine, options);
  measure_link(machine, options);
  return machine;
}

}  // namespace strata
