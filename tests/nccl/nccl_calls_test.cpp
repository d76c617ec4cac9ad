// Tests the calls of NCCL: how many elements of which type, from where to where, to which rank, on
// which stream.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/communicator.h"
#include "tests/nccl/written_calls.h"

namespace strata {
namespace {

constexpr Device kDevice{DeviceKind::kCuda, 1};

const CommunicatorRun healthy_run{
    .failed = [] { return false; },
    .fail = [](const Error& error, LibraryFailure) { FAIL() << error.what(); }};

class NoWork final : public StreamQueue {
 public:
  Completion record(EventTime) override { return {}; }
  void wait(const Completion&) override {}
  void synchronize() override {}
  void copy(void*, const void*, std::size_t) override {}
  void* native() override { return this; }
};

struct NcclCalls : testing::Test {
  NcclCalls() {
    written = {};
    handle = library.init_rank(std::string(128, 'i'), 2, 4, kDevice);
    written.calls.clear();
  }
  static at::Tensor tensor(std::int64_t numel, at::ScalarType dtype = at::kFloat) {
    return at::empty({numel}, host_options(dtype));
  }
  // As the calls that move or sum data: with the communicator, on the stream.
  NcclCall in_stream(NcclCall call) const {
    call.communicator = static_cast<ncclComm_t>(handle);
    call.stream = static_cast<cudaStream_t>(stream.native());
    return call;
  }

  const CollectiveLibrary& library = nccl_library();
  WrittenCalls& written = written_calls();
  CollectiveLibrary::Handle handle = nullptr;
  const Stream stream{kDevice, std::make_shared<NoWork>()};
};

TEST_F(NcclCalls, JoinOnDeviceOfRankWithoutBlocking) {
  const std::string id = library.unique_id();
  EXPECT_EQ(id.size(), 128u);
  EXPECT_EQ(id.substr(100, 7), "meeting");
  EXPECT_EQ(library.init_rank(id, 1, 3, kDevice), handle);
  const std::vector<NcclCall> expected{{.function = "ncclCommInitRankConfig", .rank = 1}};
  EXPECT_EQ(written.calls, expected);
  EXPECT_EQ(written.joined, id);
  EXPECT_EQ(written.size, 3);
  EXPECT_EQ(written.config->blocking, 0);
  EXPECT_EQ(written.bound.back(), 1);
  EXPECT_EQ(library.version(), 22809);
  EXPECT_NE(library.device_id({DeviceKind::kCuda, 0}), library.device_id(kDevice));
  EXPECT_THROW(library.device_id({DeviceKind::kCuda, 2}), SystemError);
}

// All types are sent as bytes, because NCCL need not know them.
TEST_F(NcclCalls, MoveBytes) {
  for (const at::ScalarType dtype :
       {at::kFloat, at::kBFloat16, at::kDouble, at::kLong, at::kBool}) {
    const at::Tensor part = tensor(7, dtype), whole = tensor(28, dtype);
    const std::size_t bytes = 7 * part.element_size();
    written.calls.clear();
    library.send(handle, part, 3, stream);
    library.receive(handle, part, 1, stream);
    library.all_gather(handle, part, whole, stream);
    const std::vector<NcclCall> expected{in_stream({.function = "ncclSend",
                                                    .from = part.data_ptr(),
                                                    .count = bytes,
                                                    .type = ncclUint8,
                                                    .rank = 3}),
                                         in_stream({.function = "ncclRecv",
                                                    .to = part.data_ptr(),
                                                    .count = bytes,
                                                    .type = ncclUint8,
                                                    .rank = 1}),
                                         in_stream({.function = "ncclAllGather",
                                                    .from = part.data_ptr(),
                                                    .to = whole.data_ptr(),
                                                    .count = bytes,
                                                    .type = ncclUint8})};
    EXPECT_EQ(written.calls, expected) << c10::toString(dtype);
  }
}

TEST_F(NcclCalls, SumElements) {
  const std::pair<at::ScalarType, ncclDataType_t> types[] = {{at::kFloat, ncclFloat32},
                                                             {at::kDouble, ncclFloat64},
                                                             {at::kBFloat16, ncclBfloat16},
                                                             {at::kHalf, ncclFloat16}};
  for (const auto& [dtype, type] : types) {
    const at::Tensor part = tensor(7, dtype), whole = tensor(28, dtype);
    written.calls.clear();
    library.all_reduce(handle, whole, stream);
    library.reduce_scatter(handle, whole, part, stream);
    library.reduce(handle, whole, part, 2, stream);
    library.reduce(handle, part, {}, 1, stream);
    const auto sum = [&](const char* function, const at::Tensor& from, void* to,
                         std::size_t count) {
      return in_stream({.function = function,
                        .from = from.data_ptr(),
                        .to = to,
                        .count = count,
                        .type = type,
                        .operation = ncclSum});
    };
    std::vector<NcclCall> expected{sum("ncclAllReduce", whole, whole.data_ptr(), 28),
                                   sum("ncclReduceScatter", whole, part.data_ptr(), 7),
                                   sum("ncclReduce", whole, part.data_ptr(), 28),
                                   sum("ncclReduce", part, nullptr, 7)};
    expected[2].rank = 2;
    expected[3].rank = 1;
    EXPECT_EQ(written.calls, expected) << c10::toString(dtype);
  }
  EXPECT_THROW(library.all_reduce(handle, tensor(4, at::kLong), stream), InternalError);
}

// All sends precede all receives, each in the order of its peers; empty parts are not sent.
TEST_F(NcclCalls, GroupAllMessagesOfExchange) {
  const at::Tensor a = tensor(10), b = tensor(20), c = tensor(30), none = tensor(0);
  {
    Communicator communicator(library, std::string(128, 'i'), 2, {4, 5, 6, 7}, kDevice,
                              healthy_run);
    written.calls.clear();
    const std::vector<Communicator::Part> sends{{0, a}, {1, none}, {3, b}},
        receives{{0, none}, {1, c}, {3, a}};
    communicator.exchange(sends, receives, stream);
  }
  const auto sent = [&](const at::Tensor& x, int rank) {
    return in_stream({.function = "ncclSend",
                      .from = x.data_ptr(),
                      .count = x.nbytes(),
                      .type = ncclUint8,
                      .rank = rank});
  };
  const auto received = [&](const at::Tensor& x, int rank) {
    return in_stream({.function = "ncclRecv",
                      .to = x.data_ptr(),
                      .count = x.nbytes(),
                      .type = ncclUint8,
                      .rank = rank});
  };
  const std::vector<NcclCall> expected{
      {.function = "ncclGroupStart"},
      sent(a, 0),
      sent(b, 3),
      received(c, 1),
      received(a, 3),
      {.function = "ncclGroupEnd"},
      {.function = "ncclCommAbort", .communicator = static_cast<ncclComm_t>(handle)}};
  EXPECT_EQ(written.calls, expected);
}

// Every rank names the same roots in the same order; only the root has an output for the sum.
TEST_F(NcclCalls, ReduceEachUnevenShard) {
  const at::Tensor flat = tensor(100), own = tensor(50);
  const std::vector<FlatRange> shards{{0, 30}, {30, 30}, {30, 80}, {80, 100}};
  {
    Communicator communicator(library, std::string(128, 'i'), 2, {4, 5, 6, 7}, kDevice,
                              healthy_run);
    written.calls.clear();
    communicator.reduce_scatter_sum(flat, shards, own, stream);
  }
  ASSERT_EQ(written.calls.size(), 6u);
  const auto* begin = static_cast<const float*>(flat.const_data_ptr());
  const std::size_t roots[] = {0, 2, 3};
  for (std::size_t i = 0; i < 3; ++i) {
    const NcclCall& call = written.calls[i + 1];
    const FlatRange shard = shards[roots[i]];
    EXPECT_EQ(call, in_stream({.function = "ncclReduce",
                               .from = begin + shard.begin,
                               .to = roots[i] == 2 ? own.data_ptr() : nullptr,
                               .count = static_cast<std::size_t>(shard.size()),
                               .type = ncclFloat32,
                               .operation = ncclSum,
                               .rank = static_cast<int>(roots[i])}));
  }
}

TEST_F(NcclCalls, NameFailure) {
  const std::pair<ncclResult_t, LibraryFailure> failures[] = {
      {ncclUnhandledCudaError, LibraryFailure::kDevice},
      {ncclSystemError, LibraryFailure::kPeer},
      {ncclInternalError, LibraryFailure::kPeer},
      {ncclRemoteError, LibraryFailure::kPeer},
      {ncclInvalidArgument, LibraryFailure::kMisuse},
      {ncclInvalidUsage, LibraryFailure::kMisuse}};
  for (const auto& [result, failure] : failures) {
    written.result = result;
    EXPECT_EQ(library.state(handle).failure, failure);
    EXPECT_TRUE(library.state(handle).done);
    EXPECT_EQ(library.state(handle).error, "an error: the last");
  }
  written.result = ncclInProgress;
  EXPECT_FALSE(library.state(handle).done);
  EXPECT_EQ(library.state(handle).failure, LibraryFailure::kNone);
  written.result = ncclSuccess;
  EXPECT_TRUE(library.state(handle).done);
}

TEST_F(NcclCalls, NameRefusedCall) {
  const at::Tensor x = tensor(4);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"ncclCommInitRankConfig", [&] { library.init_rank(std::string(128, 'i'), 0, 1, kDevice); }},
      {"ncclGroupStart", [&] { library.group_start(); }},
      {"ncclGroupEnd", [&] { library.group_end(); }},
      {"ncclSend", [&] { library.send(handle, x, 0, stream); }},
      {"ncclRecv", [&] { library.receive(handle, x, 0, stream); }},
      {"ncclAllGather", [&] { library.all_gather(handle, x, x, stream); }},
      {"ncclAllReduce", [&] { library.all_reduce(handle, x, stream); }},
      {"ncclReduceScatter", [&] { library.reduce_scatter(handle, x, x, stream); }},
      {"ncclReduce", [&] { library.reduce(handle, x, x, 0, stream); }},
      {"ncclCommFinalize", [&] { library.finalize(handle); }},
      {"ncclCommDestroy", [&] { library.destroy(handle); }},
      {"ncclCommAbort", [&] { library.abort(handle); }}};
  for (const auto& [function, call] : calls) {
    written.refused = "";
    EXPECT_NO_THROW(call()) << function;
    EXPECT_EQ(written.calls.back().function, function);
    written.refused = function;
    try {
      call();
      ADD_FAILURE() << function << " was not refused";
    } catch (const SystemError& error) {
      EXPECT_EQ(error.text().where, function);
      EXPECT_EQ(error.text().got, "an error: the last");
    }
  }
}

}  // namespace
}  // namespace strata
