#include "strata/device/device.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "strata/base/errors.h"

namespace strata {
namespace {

// Records calls to a device with a queue; the test decides when events happen.
struct Notes {
  std::vector<std::string> lines;
  bool happened = false;
};

class NotedEvent final : public DeviceEvent {
 public:
  explicit NotedEvent(Notes& notes) : notes_(notes) {}
  bool ready() const override { return notes_.happened; }
  void wait() const override {
    notes_.lines.emplace_back("waited");
    notes_.happened = true;
  }

 private:
  Notes& notes_;
};

std::string refusal(const std::string& name) {
  try {
    Device::parse(name);
  } catch (const UserError& error) {
    return error.what();
  }
  return "taken";
}

TEST(DeviceNames, AreReadAndWritten) {
  EXPECT_EQ(Device::parse("cpu"), Device{});
  EXPECT_EQ(Device::parse("cpu:0"), Device{});
  EXPECT_EQ(Device{}.name(), "cpu");
  EXPECT_EQ((Device{DeviceKind::kCuda, 1}.name()), "cuda:1");
}

TEST(DeviceNames, AutoIsFirstAvailableKind) {
  const bool cuda = cuda_backend().count() > 0;
  EXPECT_EQ(Device::parse("auto"), (Device{cuda ? DeviceKind::kCuda : DeviceKind::kCpu}));
}

TEST(DeviceNames, AreRefusedIfUnknown) {
  for (const char* name :
       {"", "gpu", "auto:0", "cpu:", "cpu:x", "cpu:-1", "cpu:0:0", "cpu:99999999999"})
    EXPECT_NE(refusal(name).find("not the name of a device"), std::string::npos) << name;
  EXPECT_NE(refusal("cpu:1").find("this machine has no such device"), std::string::npos);
  EXPECT_NE(refusal("cpu:1").find("an index below 1"), std::string::npos);
}

TEST(DeviceNames, AreRefusedForMissingBackend) {
  for (const char* name : {"cuda", "cuda:1"}) {
    const std::string text = refusal(name);
    EXPECT_NE(text.find("[device.cuda]"), std::string::npos) << text;
    for (const char* part : {"expected", "got", "fix"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_THROW(Stream(Device{DeviceKind::kCuda, 0}), UserError);
}

TEST(Backends, StateWhyNoDeviceExists) {
  EXPECT_EQ(cpu_backend().why_none(), "");
  EXPECT_EQ(cpu_backend().facts(0).multiprocessors > 0, true);
  EXPECT_EQ(cuda_backend().why_none().empty(), cuda_backend().count() > 0);
  if (cuda_backend().count() > 0) GTEST_SKIP() << "a GPU is there";
  EXPECT_THROW(cuda_backend().facts(0), UserError);
  EXPECT_THROW(DeviceScope({DeviceKind::kCuda, 0}), UserError);
  EXPECT_THROW(Stream::compute({DeviceKind::kCuda, 0}), UserError);
  EXPECT_THROW(device_of_rank(DeviceKind::kCuda, 0), UserError);
}

TEST(Ranks, ShareTheOneCpu) {
  for (const int rank : {0, 1, 17}) EXPECT_EQ(device_of_rank(DeviceKind::kCpu, rank), Device{});
}

TEST(CpuStreams, RecordEventTimeOnRequest) {
  const Stream stream = Stream::compute({});
  const Completion begin = stream.record(EventTime::kKnown), end = stream.record(EventTime::kKnown);
  EXPECT_TRUE(end.ready());
  EXPECT_GE(seconds_between(begin, end), 0);
  EXPECT_LT(seconds_between(end, begin), 1e-9);
  EXPECT_THROW(seconds_between(stream.record(), end), InternalError);
}

TEST(Factories, UseOptionsOfDevice) {
  const at::Tensor x = at::empty({2}, Device{}.options(at::kBFloat16));
  EXPECT_TRUE(x.is_cpu());
  EXPECT_EQ(x.scalar_type(), at::kBFloat16);
  const c10::TensorOptions cuda = Device{DeviceKind::kCuda, 1}.options(at::kFloat);
  EXPECT_EQ(cuda.device(), c10::Device(c10::DeviceType::CUDA, 1));
  EXPECT_EQ(host_options(at::kLong).device(), c10::Device(c10::DeviceType::CPU));
}

TEST(CpuStreams, FinishWorkBeforeEventIsRecorded) {
  const Stream stream;
  EXPECT_EQ(stream.device(), Device{});
  const Completion event = stream.record();
  EXPECT_TRUE(event.ready());
  event.wait();
  Stream().wait(event);
  stream.synchronize();
  EXPECT_TRUE(Completion().ready());
}

TEST(CpuStreams, BlockCallerUntilEventOfAnotherDevice) {
  Notes notes;
  const Completion event(std::make_shared<NotedEvent>(notes));
  const Completion copy = event;
  EXPECT_FALSE(copy.ready());
  Stream().wait(event);
  EXPECT_EQ(notes.lines, std::vector<std::string>{"waited"});
  EXPECT_TRUE(copy.ready());
}

}  // namespace
}  // namespace strata
