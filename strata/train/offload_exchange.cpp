#include "strata/train/offload_exchange.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace strata {

OffloadRecord OffloadExchange::of_step(Group& group, const Trainer::OffloadUse& use, bool on_disk) {
  constexpr int kNumbers = 10;
  const Trainer::OffloadUse before = std::exchange(before_, use);
  std::vector<double> numbers(static_cast<std::size_t>(kNumbers) * group.size(), 0.0);
  const auto mine = std::span(numbers).subspan(kNumbers * group.rank(), kNumbers);
  mine[0] = static_cast<double>(use.host_peak_bytes);
  mine[1] = static_cast<double>(use.bytes_to_device - before.bytes_to_device);
  mine[2] = static_cast<double>(use.bytes_to_host - before.bytes_to_host);
  mine[3] = use.weights_wait_seconds - before.weights_wait_seconds;
  mine[4] = use.gradients_wait_seconds - before.gradients_wait_seconds;
  mine[5] = use.activations_wait_seconds - before.activations_wait_seconds;
  mine[6] = static_cast<double>(use.disk.bytes_read - before.disk.bytes_read);
  mine[7] = static_cast<double>(use.disk.bytes_written - before.disk.bytes_written);
  mine[8] = use.disk.read_seconds - before.disk.read_seconds;
  mine[9] = use.disk.write_seconds - before.disk.write_seconds;
  group.all_reduce(numbers);
  OffloadRecord record;
  DiskRecord disk;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto of = std::span(numbers).subspan(kNumbers * rank, kNumbers);
    record.host_peak_bytes.push_back(static_cast<std::int64_t>(of[0]));
    record.bytes_to_device += static_cast<std::int64_t>(of[1]);
    record.bytes_to_host += static_cast<std::int64_t>(of[2]);
    record.weights_wait_seconds = std::max(record.weights_wait_seconds, of[3]);
    record.gradients_wait_seconds = std::max(record.gradients_wait_seconds, of[4]);
    record.activations_wait_seconds = std::max(record.activations_wait_seconds, of[5]);
    disk.bytes_read += static_cast<std::int64_t>(of[6]);
    disk.bytes_written += static_cast<std::int64_t>(of[7]);
    disk.read_seconds = std::max(disk.read_seconds, of[8]);
    disk.write_seconds = std::max(disk.write_seconds, of[9]);
  }
  if (on_disk) record.disk = disk;
  return record;
}

}  // namespace strata
