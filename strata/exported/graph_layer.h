/// Runs a piece of an exported graph as a layer: the operators of the user's model, in their order,
/// with the bits of PyTorch's eager mode.
///
/// Three things differ from eager mode, because a layer runs on any part of the mini-batch and more
/// than once. Dropout, also that inside attention, draws by (seed, step, sample, layer, use), as
/// every layer here (nn/ops/residual.h). Batch norm normalises by the micro-batch, and its running
/// statistics move once a step, by those of the whole mini-batch, as GPipe's (nn/ops/batch_norm.h).
/// Outside of training all are as in eval().
///
/// Errors  as OperatorCall; UserError: batch norm without running statistics of its own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/exported/graph_pieces.h"
#include "strata/nn/graph/layer.h"

namespace strata {

struct GraphLayerOptions {
  std::map<std::string, std::string> ties = {};  ///< of each parameter that several pieces use
  bool own_operations = false;  ///< linear layers and norms without PyTorch's bits (own_step.h)
};

std::shared_ptr<const Layer> graph_layer(const ExportedProgram& program, const GraphPiece& piece,
                                         const GraphLayerOptions& options);

/// The name of a parameter in its layer: without the layer's own name, if it begins with that.
std::string weight_in_piece(const GraphPiece& piece, const std::string& target);

}  // namespace strata
