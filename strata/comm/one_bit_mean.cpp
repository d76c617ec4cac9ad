// A message is its scale, an fp32, and the bits. Averages are made in rank order.
#include "strata/comm/one_bit_mean.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <span>
#include <utility>

#include "strata/base/errors.h"
#include "strata/comm/sign_bits.h"
#include "strata/device/device.h"

namespace strata {
namespace {

constexpr std::int64_t kScaleBytes = sizeof(float);

std::span<float> floats_of(const at::Tensor& x) {
  STRATA_CHECK(x.is_cpu() && x.is_contiguous() && x.scalar_type() == at::kFloat,
               "comm.one_bit_mean");
  return {x.data_ptr<float>(), static_cast<std::size_t>(x.numel())};
}

float scale_of(const at::Tensor& message) {
  float scale = 0;
  std::memcpy(&scale, message.const_data_ptr(), kScaleBytes);
  return scale;
}

const std::uint8_t* bits_of(const at::Tensor& message) {
  return message.const_data_ptr<std::uint8_t>() + kScaleBytes;
}

void require_elements(const at::Tensor& message, std::int64_t elements) {
  STRATA_CHECK_EQ(message.numel(), kScaleBytes + sign_bytes(elements), "comm.one_bit_mean");
}

// The mean magnitude of each tensor over the slices.
std::vector<float> common_scales(Group& slices, const std::vector<at::Tensor>& tensors) {
  std::vector<double> sums;
  for (const at::Tensor& x : tensors) {
    sums.push_back(sum_of_magnitudes(floats_of(x)));
    sums.push_back(static_cast<double>(x.numel()));
  }
  slices.all_reduce(sums);
  std::vector<float> scales;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    scales.push_back(static_cast<float>(sums[2 * i + 1] > 0 ? sums[2 * i] / sums[2 * i + 1] : 0));
  return scales;
}

// Leaves in `x` what the message omits.
at::Tensor message_of(const at::Tensor& x, float scale) {
  at::Tensor message = at::empty({kScaleBytes + sign_bytes(x.numel())}, host_options(at::kByte));
  std::memcpy(message.mutable_data_ptr(), &scale, kScaleBytes);
  take_signs(floats_of(x), scale, message.mutable_data_ptr<std::uint8_t>() + kScaleBytes);
  return message;
}

}  // namespace

OneBitMean OneBitMean::start(Group& group, Group& slices, const at::Tensor& values, Shards parts) {
  STRATA_CHECK_EQ(parts.size(), static_cast<std::size_t>(group.size()), "comm.one_bit_mean");
  OneBitMean mean;
  mean.group_ = &group;
  mean.slices_ = &slices;
  mean.parts_ = std::move(parts);
  mean.values_tag_ = group.next_collective();
  mean.mean_tag_ = group.next_collective();
  std::vector<at::Tensor> each;
  for (int peer = 0; peer < group.size(); ++peer)
    each.push_back(shard_of(values, mean.parts_, peer));
  const std::vector<float> scales = common_scales(slices, each);
  for (int peer = 0; peer < group.size(); ++peer) {
    const auto index = static_cast<std::size_t>(peer);
    at::Tensor message = message_of(each[index], scales[index]);
    if (peer == group.rank()) {
      mean.own_ = std::move(message);
    } else {
      group.send(peer, mean.values_tag_, std::move(message));
    }
  }
  return mean;
}

void OneBitMean::add_average(const at::Tensor& error) {
  const std::int64_t elements = parts_[static_cast<std::size_t>(group_->rank())].size();
  STRATA_CHECK_EQ(error.numel(), elements, "comm.one_bit_mean");
  for (int peer = 0; peer < group_->size(); ++peer) {
    const at::Tensor message = peer == group_->rank() ? own_ : group_->receive(peer, values_tag_);
    require_elements(message, elements);
    add_signs(bits_of(message), scale_of(message) / static_cast<float>(group_->size()),
              floats_of(error));
  }
}

void OneBitMean::send_average(const at::Tensor& error) {
  own_ = message_of(error, common_scales(*slices_, {error})[0]);
  for (int peer = 0; peer < group_->size(); ++peer)
    if (peer != group_->rank()) group_->send(peer, mean_tag_, own_);
}

void OneBitMean::finish(const at::Tensor& mean) {
  for (int peer = 0; peer < group_->size(); ++peer) {
    const at::Tensor part = shard_of(mean, parts_, peer);
    const at::Tensor message = peer == group_->rank() ? own_ : group_->receive(peer, mean_tag_);
    require_elements(message, part.numel());
    set_to_signs(bits_of(message), scale_of(message), floats_of(part));
  }
  own_.reset();
}

}  // namespace strata
