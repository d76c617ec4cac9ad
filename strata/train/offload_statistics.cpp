#include "strata/train/offload_statistics.h"

#include <utility>

namespace strata {

void OffloadStatistics::add(StepSums& sums, const Trainer::OffloadUse& use) {
  const Trainer::OffloadUse before = std::exchange(before_, use);
  sums.of_each_rank(use.host_peak_bytes, &record_.host_peak_bytes);
  sums.sum(use.bytes_to_device - before.bytes_to_device, &record_.bytes_to_device);
  sums.sum(use.bytes_to_host - before.bytes_to_host, &record_.bytes_to_host);
  sums.largest(use.weights_wait_seconds - before.weights_wait_seconds,
               &record_.weights_wait_seconds);
  sums.largest(use.gradients_wait_seconds - before.gradients_wait_seconds,
               &record_.gradients_wait_seconds);
  sums.largest(use.activations_wait_seconds - before.activations_wait_seconds,
               &record_.activations_wait_seconds);
  sums.sum(use.disk.bytes_read - before.disk.bytes_read, &disk_.bytes_read);
  sums.sum(use.disk.bytes_written - before.disk.bytes_written, &disk_.bytes_written);
  sums.largest(use.disk.read_seconds - before.disk.read_seconds, &disk_.read_seconds);
  sums.largest(use.disk.write_seconds - before.disk.write_seconds, &disk_.write_seconds);
}

OffloadRecord OffloadStatistics::record(bool on_disk) const {
  OffloadRecord record = record_;
  if (on_disk) record.disk = disk_;
  return record;
}

}  // namespace strata
