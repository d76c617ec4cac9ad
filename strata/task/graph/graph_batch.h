/// Makes a mini-batch of an exported model from tensors: the model's inputs, then the targets.
///
/// Errors  UserError `[graph.data]`: a target that the loss does not have.
#pragma once

#include <string>
#include <vector>

#include "strata/data/batch.h"
#include "strata/exported/exported_model.h"

namespace strata {

/// What the model reads of samples.
struct GraphSamples {
  std::vector<TensorSpec> specs;  ///< of one sample: inputs, targets (ExportedModel::batch_inputs)
  ExportedLoss loss = ExportedLoss::kSquaredError;
  std::int64_t classes = 0;  ///< 0: the loss has none
};

/// `tensors` have the types and sizes of the model. `where`: the place of the targets, for errors.
MiniBatch graph_batch(const GraphSamples& model, std::vector<at::Tensor> tensors,
                      const std::string& where);

}  // namespace strata
