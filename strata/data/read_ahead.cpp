#include "strata/data/read_ahead.h"

#include <utility>

#include "strata/device/tensor_executor.h"

namespace strata {

ReadAhead::ReadAhead(MiniBatchSource source, int threads)
    : source_(std::move(source)), pool_(threads), reader_(tensor_executor("read ahead")) {}

MiniBatch ReadAhead::at(std::int64_t samples_seen, bool is_last) {
  const std::shared_ptr<Read> wanted = reads_.change([&](Reads& reads) {
    reads.erase(reads.begin(), reads.lower_bound(samples_seen));
    std::shared_ptr<Read> read = begun(reads, samples_seen);
    if (!is_last) begun(reads, source_.seen_after(samples_seen));
    return read;
  });
  wanted->ended.wait();
  return wanted->batch;
}

std::shared_ptr<ReadAhead::Read> ReadAhead::begun(Reads& reads, std::int64_t samples_seen) {
  std::shared_ptr<Read>& read = reads[samples_seen];
  if (!read) {
    read = std::make_shared<Read>();
    read->ended = reader_.submit([this, read, samples_seen] {
      const ThreadPoolScope scope(pool_);
      read->batch = source_.at(samples_seen);
    });
  }
  return read;
}

}  // namespace strata
