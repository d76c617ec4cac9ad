// The code of a run: the scales of its blocks, then their integers, two 4-bit ones in a byte, the
// first in the low half. Every run begins at a multiple of four bytes.
#include "strata/comm/block_code.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "strata/base/errors.h"
#include "strata/comm/block_kernels.h"
#include "strata/device/device.h"
#include "strata/device/parallel.h"

namespace strata {
namespace {

constexpr std::int64_t kScale = sizeof(float);  // bytes

struct Int8 {
  static constexpr int kBits = 8;
  static constexpr float kMost = 127;
  static constexpr std::uint8_t kZeros = 0;
  static constexpr auto pack = kernels::pack_int8;
  static constexpr auto unpack = kernels::unpack_int8;
  static constexpr auto add = kernels::add_int8;
};

struct Int4 {
  static constexpr int kBits = 4;
  static constexpr float kMost = 7;
  static constexpr std::uint8_t kZeros = 0x88;
  static constexpr auto pack = kernels::pack_int4;
  static constexpr auto unpack = kernels::unpack_int4;
  static constexpr auto add = kernels::add_int4;
};

std::int64_t integer_bytes(std::int64_t elements, int bits) { return (elements * bits + 7) / 8; }

// Returns the scale. If it is no normal number, it alone decides what the integers stand for.
template <typename Integers>
float pack_block(const float* x, std::int64_t n, std::uint8_t* to) {
  const float largest = kernels::largest_magnitude(x, n), scale = largest / Integers::kMost;
  if (std::isnormal(scale)) {
    Integers::pack(x, Integers::kMost / largest, to, n);
    return scale;
  }
  std::fill_n(to, integer_bytes(n, Integers::kBits), Integers::kZeros);
  return std::isnan(scale) ? scale : 0;
}

// A block's elements as floats, which bf16 and fp16 are converted to.
template <typename T>
class Floats {
 public:
  explicit Floats(T* x) : x_(x) {}
  float* data() { return buffer_; }
  void read(std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) buffer_[i] = static_cast<float>(x_[i]);
  }
  void write(std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) x_[i] = static_cast<T>(buffer_[i]);
  }
  void add(std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) x_[i] = static_cast<T>(x_[i] + buffer_[i]);
  }

 private:
  T* x_;
  float buffer_[kFlatBlock];
};

template <typename F>
void with_integers(TrafficFormat format, F f) {
  format == TrafficFormat::kInt8 ? f(Int8()) : f(Int4());
}

template <typename F>
void with_type(at::ScalarType dtype, F f) {
  AT_DISPATCH_SWITCH(dtype, "block_code",
                     AT_DISPATCH_CASE(at::kFloat, [&] { f(scalar_t()); })
                         AT_DISPATCH_CASE(at::kBFloat16, [&] { f(scalar_t()); })
                             AT_DISPATCH_CASE(at::kHalf, [&] { f(scalar_t()); }));
}

void require_flat(const at::Tensor& x, std::int64_t numel) {
  STRATA_CHECK(x.is_cpu() && x.is_contiguous() && x.numel() == numel, "comm.block_code");
}

}  // namespace

BlockCode::BlockCode(TrafficFormat format, std::int64_t block, std::vector<FlatRange> weights)
    : format_(format), block_(block), weights_(std::move(weights)) {
  STRATA_CHECK(format != TrafficFormat::kFull, "comm.block_code");
  STRATA_CHECK(block > 0 && block % 2 == 0 && kFlatBlock % block == 0, "comm.block_code");
  std::ranges::sort(weights_, {}, &FlatRange::begin);
  std::int64_t end = 0;
  for (const FlatRange& weight : weights_) {
    STRATA_CHECK(weight.begin >= end && weight.begin % 2 == 0, "comm.block_code");
    end = weight.end;
  }
}

std::int64_t BlockCode::blocks(FlatRange elements) const {
  return (elements.end + block_ - 1) / block_ - elements.begin / block_;
}

BlockCode::Run BlockCode::run(FlatRange elements, bool coded, std::int64_t begin,
                              at::ScalarType dtype) const {
  const std::int64_t bytes =
      coded ? kScale * blocks(elements) + integer_bytes(elements.size(), bits_of(format_))
            : elements.size() * static_cast<std::int64_t>(c10::elementSize(dtype));
  return {elements, coded, begin, (bytes + kScale - 1) / kScale * kScale};
}

std::vector<BlockCode::Run> BlockCode::runs(FlatRange range, at::ScalarType dtype) const {
  STRATA_CHECK_EQ(range.begin % kFlatBlock, 0, "comm.block_code");
  std::vector<Run> all;
  std::int64_t position = range.begin, bytes = 0;
  const auto add = [&](std::int64_t end, bool coded) {
    if (position >= end) return;
    all.push_back(run({position, end}, coded, bytes, dtype));
    bytes += all.back().bytes;
    position = end;
  };
  for (const FlatRange& weight : weights_) {
    add(std::min(weight.begin, range.end), false);
    add(std::min(weight.end, range.end), true);
  }
  add(range.end, false);
  return all;
}

std::int64_t BlockCode::bytes(const std::vector<Run>& runs) {
  return runs.empty() ? 0 : runs.back().begin + runs.back().bytes;
}

std::int64_t BlockCode::bytes(FlatRange range, at::ScalarType dtype) const {
  return bytes(runs(range, dtype));
}

// Calls f(begin, end, index) with the run's elements, from 0 on, of every block.
template <typename F>
void BlockCode::for_each_block(const Run& run, F f) const {
  const auto [begin, end] = run.elements;
  const std::int64_t first = begin / block_;
  parallel_ranges(blocks(run.elements), kLeastElements / block_,
                  [&](std::int64_t from, std::int64_t to) {
                    for (std::int64_t i = from; i < to; ++i)
                      f(std::max((first + i) * block_, begin) - begin,
                        std::min((first + i + 1) * block_, end) - begin, i);
                  });
}

template <typename T>
void BlockCode::encode_run(const Run& run, const T* elements, std::uint8_t* code) const {
  std::uint8_t* const integers = code + kScale * blocks(run.elements);
  with_integers(format_, [&](auto kind) {
    for_each_block(run, [&](std::int64_t begin, std::int64_t end, std::int64_t index) {
      const std::int64_t n = end - begin;
      std::uint8_t* const to = integers + integer_bytes(begin, bits_of(format_));
      float scale = 0;
      if constexpr (std::is_same_v<T, float>) {
        scale = pack_block<decltype(kind)>(elements + begin, n, to);
      } else {
        Floats<const T> floats(elements + begin);
        floats.read(n);
        scale = pack_block<decltype(kind)>(floats.data(), n, to);
      }
      std::memcpy(code + kScale * index, &scale, kScale);
    });
  });
}

template <bool kAdd, typename T>
void BlockCode::decode_run(const Run& run, const std::uint8_t* code, T* elements) const {
  const std::uint8_t* const integers = code + kScale * blocks(run.elements);
  with_integers(format_, [&](auto kind) {
    for_each_block(run, [&](std::int64_t begin, std::int64_t end, std::int64_t index) {
      const std::uint8_t* const from = integers + integer_bytes(begin, bits_of(format_));
      const std::int64_t n = end - begin;
      float scale = 0;
      std::memcpy(&scale, code + kScale * index, kScale);
      if constexpr (std::is_same_v<T, float>) {
        (kAdd ? decltype(kind)::add : decltype(kind)::unpack)(from, scale, elements + begin, n);
      } else {
        Floats<T> floats(elements + begin);
        decltype(kind)::unpack(from, scale, floats.data(), n);
        kAdd ? floats.add(n) : floats.write(n);
      }
    });
  });
}

at::Tensor BlockCode::encode(const at::Tensor& elements, FlatRange range) const {
  require_flat(elements, range.size());
  const std::vector<Run> all = runs(range, elements.scalar_type());
  at::Tensor code = at::empty({bytes(all)}, host_options(at::kByte));
  with_type(elements.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    for (const Run& run : all) {
      const T* const from = elements.const_data_ptr<T>() + (run.elements.begin - range.begin);
      std::uint8_t* const to = code.mutable_data_ptr<std::uint8_t>() + run.begin;
      if (run.coded) {
        encode_run(run, from, to);
      } else {
        std::memcpy(to, from, static_cast<std::size_t>(run.elements.size()) * sizeof(T));
      }
    }
  });
  return code;
}

template <bool kAdd>
void BlockCode::decode_all(const at::Tensor& code, FlatRange range,
                           const at::Tensor& elements) const {
  const std::vector<Run> all = runs(range, elements.scalar_type());
  require_flat(elements, range.size());
  require_flat(code, bytes(all));
  with_type(elements.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    for (const Run& run : all) {
      T* const to = elements.mutable_data_ptr<T>() + (run.elements.begin - range.begin);
      const std::uint8_t* const from = code.const_data_ptr<std::uint8_t>() + run.begin;
      if (run.coded) {
        decode_run<kAdd>(run, from, to);
      } else if constexpr (kAdd) {
        for (std::int64_t i = 0; i < run.elements.size(); ++i)
          to[i] = static_cast<T>(to[i] + reinterpret_cast<const T*>(from)[i]);
      } else {
        std::memcpy(to, from, static_cast<std::size_t>(run.elements.size()) * sizeof(T));
      }
    }
  });
}

void BlockCode::decode(const at::Tensor& code, FlatRange range, const at::Tensor& elements) const {
  decode_all</*kAdd=*/false>(code, range, elements);
}

void BlockCode::add(const at::Tensor& code, FlatRange range, const at::Tensor& elements) const {
  decode_all</*kAdd=*/true>(code, range, elements);
}

}  // namespace strata
