#include "strata/comm/loan.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/comm/group.h"
#include "strata/comm/message.h"
#include "strata/comm/ranks.h"
#include "strata/device/delayed_stream_test.h"

namespace strata {
namespace {

TEST(Loans, RefuseAWriteUntilTheyAreReadWhereItOverlaps) {
  const Stream stream;
  Loans loans;
  const at::Tensor bytes = at::zeros({100});
  const std::shared_ptr<Loan> loan = loans.lend(bytes.narrow(0, 10, 20), 3, false);
  loans.before_write(bytes.narrow(0, 0, 10), stream);
  loans.before_write(bytes.narrow(0, 30, 70), stream);
  for (const auto& [begin, size] : {std::pair{9, 2}, {29, 2}, {15, 1}, {0, 100}}) {
    try {
      loans.before_write(bytes.narrow(0, begin, size), stream);
      FAIL() << begin;
    } catch (const InternalError& error) {
      EXPECT_EQ(error.text().got, "not read by rank 3");
    }
  }
  loan->end({});
  loans.before_write(bytes, stream);
}

TEST(Loans, EndOnce) {
  Loan loan(at::zeros({1}), 0, false);
  loan.end({});
  EXPECT_THROW(loan.end({}), InternalError);
}

TEST(Loans, KeepTheirBytesUntilTheLendersStreamKnowsThatTheyAreRead) {
  const auto queue = std::make_shared<DelayedQueue>(), readers = std::make_shared<DelayedQueue>();
  const Stream stream(Device{}, queue), reader(Device{DeviceKind::kCpu, 1}, readers);
  Loans loans;
  at::Tensor x = queue->empty({4}, at::kFloat);
  const float* const address = x.const_data_ptr<float>();
  queue->give([address] { *const_cast<float*>(address) = 7; });
  std::shared_ptr<const void> lent = reading(loans.lend(x, 1, true), reader);
  readers->hold();
  float seen = 0;
  reader.wait(stream.record());
  readers->give([address, &seen] { seen = *address; });
  lent.reset();  // all that reads it was given to the reader's stream
  x.reset();
  loans.reclaim(stream);  // what is freed here is poisoned by the lender's stream
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  readers->release();
  reader.synchronize();
  EXPECT_EQ(seen, 7);
}

// Without a device, too: a rank that writes to what another has not read is refused.
TEST(Loans, AreCheckedBetweenThreads) {
  int refused = 0;
  run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
    at::Tensor x = at::zeros({8});
    if (group.rank() == 0) {
      group.export_buffer(1, {.value = 1}, x);
      try {
        group.before_write(x);
      } catch (const InternalError&) {
        ++refused;
      }
      group.barrier();  // by which it was read
      group.before_write(x);
    } else {
      EXPECT_TRUE(group.import_buffer(0, {.value = 1}).lent());
      group.barrier();
    }
  });
  EXPECT_EQ(refused, 1);
}

TEST(Frames, NeverCarryADevicesAddress) {
  Message message{.tensor = at::empty({4}, at::TensorOptions(at::kMeta).dtype(at::kFloat)),
                  .numbers = {}};
  EXPECT_THROW(frame_of(Address{}, message), InternalError);
}

TEST(Frames, NeverCarryBytesThatAreNotThere) {
  DelayedQueue queue;
  queue.hold();
  Message message{.tensor = at::zeros({4}), .numbers = {}, .ready = queue.record()};
  EXPECT_THROW(frame_of(Address{}, message), InternalError);
}

}  // namespace
}  // namespace strata
