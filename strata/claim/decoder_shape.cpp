#include "strata/claim/decoder_shape.h"

namespace strata {
namespace {

double number(std::int64_t count) { return static_cast<double>(count); }

}  // namespace

// Four matrices of attention (4 h^2) and two of the MLP (8 h^2); biases of both (4 h and 5 h) and
// two norms (4 h).
double block_parameters(const DecoderShape& shape) {
  const double h = number(shape.width);
  return 12 * h * h + 13 * h;
}

double parameters_of(const DecoderShape& shape) {
  const double rows = number(shape.vocabulary) * (shape.tied ? 1 : 2) +
                      (shape.learned_positions ? number(shape.tokens) : 0);
  return number(shape.layers) * block_parameters(shape) + rows * number(shape.width);
}

double attention_flops(const DecoderShape& shape) {
  return 4 * number(shape.tokens) * number(shape.tokens) * number(shape.width);
}

double block_flops(const DecoderShape& shape) {
  const double h = number(shape.width);
  return 24 * number(shape.tokens) * h * h + attention_flops(shape);
}

double head_flops(const DecoderShape& shape) {
  return 2 * number(shape.tokens) * number(shape.width) * number(shape.vocabulary);
}

double step_flops(const DecoderShape& shape, double samples, bool recomputes) {
  const double blocks = number(shape.layers) * block_flops(shape);
  return samples * ((recomputes ? 4 : 3) * blocks + 3 * head_flops(shape));
}

}  // namespace strata
