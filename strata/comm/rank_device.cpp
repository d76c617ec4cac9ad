#include "strata/comm/rank_device.h"

#include <exception>

#include "strata/base/errors.h"
#include "strata/device/tensor_executor.h"

namespace strata {

RankDevice::RankDevice(Stream compute, Stream communication, const StreamOps* ops,
                       const CollectiveLibrary& library, Reduction reduction)
    : stream(std::move(compute)),
      communication(std::move(communication)),
      ops(ops),
      library(library),
      reduction(reduction) {}

RankDevice::RankDevice(Device device, Reduction reduction)
    : RankDevice(Stream::compute(device), Stream(device), stream_ops(device.kind), nccl_library(),
                 reduction) {}

const StreamOps* stream_ops(DeviceKind kind) {
  return kind == DeviceKind::kCpu ? nullptr : &cuda_stream_ops();
}

at::Tensor RankDevice::on_host(const at::Tensor& x) const {
  at::Tensor host = ops->host_empty_like(x);
  ops->copy(stream, host, x);
  stream.record().wait();
  return host;
}

at::Tensor RankDevice::on_device(const at::Tensor& host) {
  at::Tensor x = ops->empty_like(stream, host);
  copy_to_device(x, host);
  return x;
}

void RankDevice::copy_to_device(const at::Tensor& to, const at::Tensor& host) {
  forget_arrived();
  ops->copy(stream, to, host);
  arriving_.emplace_back(stream.record(), host);
}

void RankDevice::forget_arrived() {
  std::erase_if(arriving_, [](const auto& copy) { return copy.first.ready(); });
}

void RankDevice::pass_to_host(const at::Tensor& x, std::function<void(at::Tensor)> then,
                              std::function<void(const Error&)> failed) {
  const at::Tensor host = ops->host_empty_like(x);
  ops->copy(stream, host, x);
  if (!departures_) departures_ = std::make_unique<Executor>(tensor_executor("to host"));
  departures_->submit(
      [copied = stream.record(), host, then = std::move(then), failed = std::move(failed)] {
        try {
          copied.wait();
          then(host);
        } catch (const std::exception& error) {
          failed(to_error(error));
        }
      });
}

}  // namespace strata
