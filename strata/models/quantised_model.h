/// Builds a decoder whose blocks keep their matrices in 8 or 4 bits, and says which weights those
/// are.
///
/// Embeddings, head, norms and biases stay fp32. Scales are those of whole rows and groups
/// (nn/kernels/quantised_rows.h) also where tensor-parallel ranks divide the row, so values do not
/// depend on the mesh. In the layout of a layer such a weight is one dimension of fp32 elements, a
/// rank's own part of it; stores move and count it like any other.
///
/// Errors  as make_model(). UserError: tensor-parallel ranks would divide a group of a row in 4
///         bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/models/model.h"
#include "strata/models/weight_type.h"
#include "strata/nn/kernels/quantised_rows.h"

namespace strata {

/// make_model() with logits as its output, for a host, with weights of this type: fewer bits only
/// in fp32.
Sequential make_served_model(const DecoderOptions& options, WeightType type, TensorSplit split = {},
                             at::ScalarType precision = at::kFloat);

/// The block with its matrices in fewer bits. `ranks`: the tensor-parallel ranks that it was made
/// for.
std::shared_ptr<const Layer> quantised_block(std::shared_ptr<const Layer> block,
                                             kernels::QuantisedType type, int ranks);

/// Whether a model with weights in fewer bits has the weight of this name ("block3.mlp.up.weight")
/// and shape in them.
bool keeps_fewer_bits(const std::string& name, const std::vector<std::int64_t>& shape);

/// How weights of this type, which is not kPrecision, are rounded.
kernels::QuantisedType rounding_of(WeightType type);

/// The fp32 weight that a layer's weight holds in fewer bits.
struct QuantisedSource {
  const WeightSpec* spec = nullptr;  ///< null: it is not in fewer bits
  kernels::QuantisedType type = kernels::QuantisedType::kInt8;

  explicit operator bool() const { return spec != nullptr; }
};
QuantisedSource quantised_source(const Layer& layer, std::size_t weight);

}  // namespace strata
