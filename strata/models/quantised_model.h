/// Builds a decoder whose blocks keep their matrices in 8 bits, and says which weights those are.
///
/// Embeddings, head, norms and biases stay fp32. A row of a matrix has one scale
/// (nn/kernels/int8_columns.h), that of the whole row also where tensor-parallel ranks divide the
/// row, so its values do not depend on the mesh. In the layout of a layer such a weight is one
/// dimension of fp32 elements, a rank's own part of it; stores move and count it like any other.
///
/// Errors  as make_model().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/models/model.h"
#include "strata/models/weight_type.h"

namespace strata {

/// make_model() with logits as its output, for a host, with weights of this type: kInt8 only in
/// fp32.
Sequential make_served_model(const DecoderOptions& options, WeightType type, TensorSplit split = {},
                             at::ScalarType precision = at::kFloat);

/// The block with its matrices in 8 bits. `ranks`: the tensor-parallel ranks that it was made for.
std::shared_ptr<const Layer> int8_block(std::shared_ptr<const Layer> block, int ranks);

/// Whether kInt8 keeps the weight of this name ("block3.mlp.up.weight") and shape in 8 bits.
bool is_in_int8(const std::string& name, const std::vector<std::int64_t>& shape);

/// The spec of the fp32 weight that a layer's weight holds in 8 bits; null: it is not in 8 bits.
const WeightSpec* int8_source(const Layer& layer, std::size_t weight);

}  // namespace strata
