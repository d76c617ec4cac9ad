/// Counts the parameters and operations of a GPT-like decoder, whose MLP is four times as wide as
/// the model.
///
/// Source  Narayanan et al. 2021 (arXiv 2104.04473, equations 2 and 3); Huang et al. 2018 (GPipe,
///         whose embedding and head are not tied and whose positions have no weights).
/// Units   operations: one multiplication or one addition.
#pragma once

#include <cstdint>

namespace strata {

struct DecoderShape {
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 1;
  std::int64_t vocabulary = 51200;
  std::int64_t tokens = 2048;  ///< of a sample
  bool tied = true;            ///< the head uses the embedding's weights
  bool learned_positions = true;
};

double block_parameters(const DecoderShape& shape);  ///< of one layer
double parameters_of(const DecoderShape& shape);

/// One forward of one sample.
double attention_flops(const DecoderShape& shape);  ///< scores and values of one layer
double block_flops(const DecoderShape& shape);      ///< one layer, attention included
double head_flops(const DecoderShape& shape);

/// A forward and a backward of `samples`, which takes twice as long; with `recomputes`, every layer
/// but the head runs forward once more.
double step_flops(const DecoderShape& shape, double samples, bool recomputes);

}  // namespace strata
