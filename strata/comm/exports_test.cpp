#include "strata/comm/exports.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>

#include "strata/base/errors.h"
#include "strata/comm/group.h"
#include "strata/comm/message.h"
#include "strata/comm/ranks.h"
#include "strata/device/delayed_stream_test.h"

namespace strata {
namespace {

TEST(Exports, RejectOverlappingWriteUntilRead) {
  const Stream stream;
  Exports exports;
  const at::Tensor bytes = at::zeros({100});
  const std::shared_ptr<Export> open_export = exports.add(bytes.narrow(0, 10, 20), 3, false);
  exports.before_write(bytes.narrow(0, 0, 10), stream);
  exports.before_write(bytes.narrow(0, 30, 70), stream);
  for (const auto& [begin, size] : {std::pair{9, 2}, {29, 2}, {15, 1}, {0, 100}}) {
    try {
      exports.before_write(bytes.narrow(0, begin, size), stream);
      FAIL() << begin;
    } catch (const InternalError& error) {
      EXPECT_EQ(error.text().got, "not read by rank 3");
    }
  }
  open_export->end({});
  exports.before_write(bytes, stream);
}

TEST(Exports, EndOnce) {
  Export open_export(at::zeros({1}), 0, false, std::make_shared<std::atomic<int>>(0));
  open_export.end({});
  EXPECT_THROW(open_export.end({}), InternalError);
}

TEST(Exports, KeepBytesUntilExportersStreamWaitsForReader) {
  const auto queue = std::make_shared<DelayedQueue>(), readers = std::make_shared<DelayedQueue>();
  const Stream stream(Device{}, queue), reader(Device{DeviceKind::kCpu, 1}, readers);
  Exports exports;
  at::Tensor x = queue->empty({4}, at::kFloat);
  const float* const address = x.const_data_ptr<float>();
  queue->give([address] { *const_cast<float*>(address) = 7; });
  std::shared_ptr<const void> exported = reading(exports.add(x, 1, true), reader);
  readers->hold();
  float seen = 0;
  reader.wait(stream.record());
  readers->give([address, &seen] { seen = *address; });
  exported.reset();  // all reads are on the reader's stream
  x.reset();
  exports.reclaim(stream);  // the exporter's stream poisons what is freed here
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  readers->release();
  reader.synchronize();
  EXPECT_EQ(seen, 7);
}

// The object is destroyed in the reader's thread, possibly during an exception; the exporter gets
// the error.
TEST(Exports, FailureOfReadersStreamIsThrownByExporter) {
  class BrokenQueue final : public StreamQueue {
   public:
    Completion record(EventTime) override { throw std::runtime_error("an illegal memory access"); }
    void wait(const Completion&) override {}
    void synchronize() override {}
    void copy(void*, const void*, std::size_t) override {}
    void* native() override { return nullptr; }
  };
  Exports exports;
  const at::Tensor bytes = at::zeros({8});
  std::shared_ptr<const void> first =
      reading(exports.add(bytes, 3, false), Stream(Device{}, std::make_shared<BrokenQueue>()));
  const std::shared_ptr<Export> second = exports.add(bytes.narrow(0, 4, 4), 1, false);
  first.reset();
  try {
    exports.before_write(bytes.narrow(0, 0, 4), Stream());
    FAIL() << "the failure was lost";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.text().where, "rank 3");
    EXPECT_EQ(error.text().got, "an illegal memory access");
  }
  EXPECT_THROW(exports.before_write(bytes, Stream()), InternalError);  // the other is still open
  second->end({});
  exports.before_write(bytes, Stream());
}

// A background save and the rank access the same exports.
TEST(Exports, AreDroppedAfterWaitForTheirReaders) {
  struct SlowQueue final : StreamQueue {
    Completion record(EventTime) override { return {}; }
    void wait(const Completion&) override {
      waiting.count_down();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      enqueued = true;
    }
    void synchronize() override {}
    void copy(void*, const void*, std::size_t) override {}
    void* native() override { return nullptr; }
    std::latch waiting{1};
    std::atomic<bool> enqueued = false;
  };
  const auto queue = std::make_shared<SlowQueue>();
  const Stream stream(Device{}, queue);
  Exports exports;
  const at::Tensor bytes = at::zeros({8});
  exports.add(bytes, 1, false)->end({});
  const std::jthread other([&] { exports.reclaim(stream); });
  queue->waiting.wait();
  exports.before_write(bytes, stream);
  EXPECT_TRUE(queue->enqueued);
}

// As many exports as a save of a large model makes: the cost of a message must not grow with them.
TEST(Exports, AreDroppedInAnyOrderOfEnd) {
  const Stream stream;
  Exports exports;
  const at::Tensor bytes = at::zeros({100});
  std::vector<std::shared_ptr<Export>> open;
  for (int i = 0; i < 100; ++i) open.push_back(exports.add(bytes.narrow(0, i, 1), i, false));
  for (const int first : {1, 0}) {
    for (int i = first; i < 100; i += 2) open[static_cast<std::size_t>(i)]->end({});
    exports.reclaim(stream);
    for (int i = 0; i < 100; ++i) {
      if (first == 0 || i % 2 == 1) {
        exports.before_write(bytes.narrow(0, i, 1), stream);
      } else {
        EXPECT_THROW(exports.before_write(bytes.narrow(0, i, 1), stream), InternalError);
      }
    }
  }
}

// Messages between CPU ranks cost no more than without exports.
TEST(Exports, ExistOnlyForDevices) {
  run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
    const at::Tensor x = at::zeros({8});
    if (group.rank() == 0) {
      group.export_buffer(1, {}, x);
      group.before_write(x);
    } else {
      EXPECT_FALSE(group.import_buffer(0, {}).is_exported());
    }
  });
}

TEST(Frames, NeverCarryDeviceAddress) {
  Message message{.tensor = at::empty({4}, at::TensorOptions(at::kMeta).dtype(at::kFloat)),
                  .numbers = {}};
  EXPECT_THROW(frame_of(Address{}, message), InternalError);
}

TEST(Frames, NeverCarryIncompleteBytes) {
  DelayedQueue queue;
  queue.hold();
  Message message{.tensor = at::zeros({4}), .numbers = {}, .ready = queue.record()};
  EXPECT_THROW(frame_of(Address{}, message), InternalError);
}

}  // namespace
}  // namespace strata
