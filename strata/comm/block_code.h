/// Packs ranges of a layer's flat buffer in blocks of 8- or 4-bit integers with one scale a block.
///
/// An element x of a block whose largest magnitude is a becomes the integer nearest to m x / a,
/// ties to even, where m is 127 or 7; it stands for the integer times a / m. If a block has a NaN
/// or an infinity, all its elements become NaN. A block whose scale a / m is no normal number
/// becomes zero. Blocks are parts of one weight and begin at the weight or at a multiple of the
/// block's elements, so codes depend neither on how a buffer is cut in whole blocks of kFlatBlock
/// nor on the weights beside. Elements outside of the weights are copied.
///
/// Source   Dettmers et al. 2022 (8-bit optimizers by blocks, arXiv 2110.02861); Wang et al. 2023
///          (ZeRO++, arXiv 2306.10209).
/// Shapes   flat, contiguous, in host memory, fp32, bf16 or fp16; a code is a flat byte tensor.
/// Threads  the calling thread's pool; threads change no bit.
/// Cost     one pass over memory; bits / 8 + 4 / block bytes an element.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/base/flat_range.h"
#include "strata/layout/traffic_format.h"

namespace strata {

class BlockCode {
 public:
  /// `weights`: the ranges that become integers; each begins at an even element. `block`: even, and
  /// a divisor of kFlatBlock.
  BlockCode(TrafficFormat format, std::int64_t block, std::vector<FlatRange> weights);

  /// The bytes of the code of `range`, which begins at a multiple of kFlatBlock and ends at one or
  /// at the buffer's end.
  std::int64_t bytes(FlatRange range, at::ScalarType dtype) const;

  /// `elements`: those of `range`.
  at::Tensor encode(const at::Tensor& elements, FlatRange range) const;

  /// Writes what the code stands for to `elements`, or adds it there (fp32).
  void decode(const at::Tensor& code, FlatRange range, const at::Tensor& elements) const;
  void add(const at::Tensor& code, FlatRange range, const at::Tensor& elements) const;

 private:
  // Elements of one weight, or between weights.
  struct Run {
    FlatRange elements;
    bool coded = false;
    std::int64_t begin = 0;  // of its bytes in the code
    std::int64_t bytes = 0;
  };
  std::vector<Run> runs(FlatRange range, at::ScalarType dtype) const;
  static std::int64_t bytes(const std::vector<Run>& runs);
  Run run(FlatRange elements, bool coded, std::int64_t begin, at::ScalarType dtype) const;
  std::int64_t blocks(FlatRange elements) const;
  template <typename F>
  void for_each_block(const Run& run, F f) const;
  template <typename T>
  void encode_run(const Run& run, const T* elements, std::uint8_t* code) const;
  template <bool kAdd, typename T>
  void decode_run(const Run& run, const std::uint8_t* code, T* elements) const;
  template <bool kAdd>
  void decode_all(const at::Tensor& code, FlatRange range, const at::Tensor& elements) const;

  TrafficFormat format_;
  std::int64_t block_;
  std::vector<FlatRange> weights_;  // ascending
};

}  // namespace strata
