/// Holds what the layers of all decoders are made of: weights' descriptions, a rank's part of the
/// work, the bytes at the borders of split regions.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "strata/models/decoder_parts.h"
#include "strata/nn/layer.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

inline constexpr double kWeightStddev = 0.02;
inline constexpr const char* kTokenTie = "tokens";

WeightSpec matrix_spec(std::string name, std::int64_t out, std::int64_t in, double stddev,
                       WeightSplit split = {});
WeightSpec vector_spec(std::string name, std::int64_t size, Init::Kind kind,
                       WeightSplit split = {});

/// Logits of all ranks' slices of the vocabulary, on every rank.
/// Shapes  [B, ceil(classes / n)] -> [B, classes]
at::Tensor gather_classes(const TensorParallel* group, const at::Tensor& logits,
                          std::int64_t classes);

/// Refuses a number of tensor-parallel ranks that does not divide `size`, naming the legal number
/// nearest to it: a divisor of `legal`.
void check_divides(const std::string& what, std::int64_t size, std::int64_t legal, int ranks);

class DecoderLayer : public Layer {
 public:
  explicit DecoderLayer(const DecoderSetup& setup)
      : options_(setup.options), split_(setup.split), precision_(setup.precision) {}

 protected:
  /// A signature: kind, sizes, split, precision.
  std::string sizes(const std::string& kind, std::initializer_list<std::int64_t> numbers) const;

  /// The token embedding's weight; a tied head has the same.
  WeightSpec token_matrix(const std::string& name) const;

  /// The stream that tokens become. Refuses samples of a length that the model doesn't take.
  /// Shapes  [B, T] -> [B, T, C], or a rank's part of the sequence
  TensorSpec embedded(const TensorSpec& tokens) const;

  /// Undivided weights that are used between split regions.
  std::vector<WeightSpec> with_partial_gradients(std::vector<WeightSpec> specs) const;

  /// Parts of the sequence between split regions.
  std::int64_t parts() const { return split_.sequence ? split_.ranks : 1; }
  /// Columns of the vocabulary on one rank, padding included.
  std::int64_t columns() const { return (options_.vocab + split_.ranks - 1) / split_.ranks; }

  /// Bytes beside an activation of `whole` bytes: while its ranks' sum is made; gathered from
  /// parts.
  std::int64_t sum_bytes(std::int64_t whole) const;
  std::int64_t gathered_bytes(std::int64_t whole) const { return split_.sequence ? whole : 0; }

  /// Bytes of so many weights or activations.
  std::int64_t bytes_of(std::int64_t numel) const;
  /// In 16 bit, 0 otherwise: what a product of so many rows, in either direction, or its weight's
  /// gradient takes beside operands and result.
  std::int64_t product_bytes(std::int64_t rows, std::int64_t in, std::int64_t out) const;
  std::int64_t weight_gradient_bytes(std::int64_t rows, std::int64_t in, std::int64_t out) const;

  /// While a chunk of at most so many rows of logits becomes loss and gradient: the logits and
  /// three numbers a row; in 16 bit beside what products take.
  std::int64_t logit_bytes(std::int64_t rows) const;

  DecoderOptions options_;
  TensorSplit split_;
  at::ScalarType precision_;
};

}  // namespace strata
