// Tests messages of ranks whose devices run asynchronously, within a process and between two.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/delayed_ranks_test.h"
#include "strata/comm/rank_cases_test.h"

namespace strata {
namespace {

TEST(DeviceMessages, ArriveAfterTheirBytes) {
  for (const int devices : {1, 2}) {
    DelayedDevices all(7, devices);
    run_delayed(2, all, [](Group& group) {
      RankDevice& device = group.rank_device();
      if (group.rank() == 0) {
        delayed(device.stream).hold();
        at::Tensor x = upload(group, example_values(0, 100));
        group.send(1, {}, x);
        x.reset();  // freed after the reader's copy, or handed over
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        delayed(device.stream).release();
        group.barrier();
        group.import_buffer(1, {.value = 2});  // forgets what was read
      } else {
        const at::Tensor x = group.receive(0, {});
        EXPECT_TRUE(delayed(device.stream).has(x));  // on this device, wherever the sender's is
        EXPECT_TRUE(at::equal(download(group, x), example_values(0, 100)));
        group.barrier();
        group.export_buffer(0, {.value = 2}, x);
      }
    });
  }
}

TEST(DeviceMessages, SenderWaitsForReaderBeforeWriting) {
  DelayedDevices all(8);
  run_delayed(2, all, [](Group& group) {
    RankDevice& device = group.rank_device();
    const at::Tensor x = upload(group, example_values(0, 100));
    if (group.rank() == 0) {
      group.export_buffer(1, {}, x);
      group.barrier();  // the reader has enqueued its work on its stream, which has not started
      group.before_write(x);
      overwrite(group, x);
    } else {
      at::Tensor copy = device.ops->empty_like(device.stream, x);
      delayed(device.stream).hold();
      device.ops->copy(device.stream, copy, group.import_buffer(0, {}).tensor());
      group.barrier();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      delayed(device.stream).release();
      EXPECT_TRUE(at::equal(download(group, copy), example_values(0, 100)));
    }
  });
}

// A background save receives such messages while the rank's stream is being recorded.
TEST(DeviceMessages, HostMessagesEnqueueNothing) {
  DelayedDevices all(18);
  run_delayed(2, all, [](Group& group) {
    const at::Tensor x = upload(group, example_values(0, 8));
    if (group.rank() == 0) {
      group.export_buffer(1, {}, x);
      group.receive(1, {.value = 1});
      group.export_buffer(1, {.value = 2}, at::ones({8}));
      EXPECT_EQ(x.use_count(),
                // the export holds it and is dropped after the stream's wait for its reader
                2);
      group.before_write(x);
      EXPECT_EQ(x.use_count(), 1);
    } else {
      (void)group.import_buffer(0, {});
      group.send(0, {.value = 1}, at::ones({8}));
      group.import_buffer(0, {.value = 2});
    }
  });
}

TEST(DeviceMessages, RejectWriteToBytesThatPeerMayStillRead) {
  for (const int devices : {1, 2}) {
    DelayedDevices all(14, devices);
    run_delayed(2, all, [](Group& group) {
      const at::Tensor x = upload(group, example_values(0, 8));
      if (group.rank() == 0) {
        group.export_buffer(1, {.value = 1}, x);
        EXPECT_THROW(group.before_write(x), InternalError);
        group.barrier();  // now it may be read
        group.barrier();  // by which it was
        group.before_write(x);
      } else {
        group.barrier();
        EXPECT_TRUE(group.import_buffer(0, {.value = 1}).is_exported());
        group.barrier();
      }
    });
  }
}

// A sent tensor has its value at the time of sending, even if it is written to or freed at once. A
// received one is kept in host memory until the receiver's stream has copied it.
TEST(DeviceMessages, BetweenProcessesCopyInStreamOrder) {
  for (const bool reads_in_place : {false, true}) {
    DelayedDevices all(13);
    run_processes(
        2, all,
        [](Group& group) {
          const int peer = 1 - group.rank();
          DelayedQueue& queue = delayed(group.rank_device().stream);
          const at::Tensor kept = upload(group, example_values(group.rank(), 50000));
          at::Tensor freed = upload(group, example_values(group.rank() + 2, 50000));
          queue.hold();
          group.send(peer, {.value = 1}, kept);
          overwrite(group, kept);
          group.send(peer, {.value = 2}, freed);
          freed.reset();
          // a send that did not wait has left by now
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          queue.release();
          group.barrier();
          queue.synchronize();
          queue.hold();
          const at::Tensor first = group.receive(peer, {.value = 1}),
                           second = group.receive(peer, {.value = 2});
          std::vector<at::Tensor> others;  // reuse the freed memory
          for (int i = 0; i < 20; ++i) others.push_back(at::full({50000}, 7.0));
          queue.release();
          EXPECT_TRUE(at::equal(download(group, first), example_values(peer, 50000)));
          EXPECT_TRUE(at::equal(download(group, second), example_values(peer + 2, 50000)));
          // Brought by another stream than the rank's.
          const Stream copy_stream({}, std::make_shared<DelayedQueue>());
          delayed(copy_stream).hold();
          const at::Tensor late = example_values(group.rank() + 4, 50000);
          group.rank_device().ops->copy(copy_stream, kept, late);
          group.export_buffer(peer, {.value = 3}, kept, copy_stream.record());
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          delayed(copy_stream).release();
          EXPECT_TRUE(at::equal(download(group, group.import_buffer(peer, {.value = 3}).tensor()),
                                example_values(peer + 4, 50000)));
          group.barrier();
        },
        reads_in_place);
  }
}

}  // namespace
}  // namespace strata
