/// Gives each use of a value a name of its own where eager mode adds the uses' gradients in another
/// order than layers would.
///
/// Eager mode adds the gradients of a value's uses from the last to the first, a use being an
/// argument of an operator. A layer adds those
/// of its own uses, and the sums of layers are added. The orders differ where one layer reads a
/// value more than once and a later layer reads it, too. There the earlier uses read aliases, whose
/// gradients the layer that made the value receives one by one, in eager mode's order.
#pragma once

#include <string>
#include <vector>

#include "strata/exported/graph_pieces.h"

namespace strata {

/// `outputs`: of the model. Declares the aliases in `program`.
void separate_uses(std::vector<GraphPiece>& pieces, const std::vector<std::string>& outputs,
                   ExportedProgram& program);

}  // namespace strata
