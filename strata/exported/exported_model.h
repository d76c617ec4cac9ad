/// Makes a model of layers from a file of torch.export: any PyTorch model on every mesh and tier,
/// without Python.
///
///     const ExportedModel exported("model.pt2");
///     const Sequential model = exported.layers(ExportedLoss::kCrossEntropy);
///     run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
///       Trainer trainer(model, plan_steps(model, {.partition = {{0, 3, 6}}}), group);
///       exported.fill(trainer.weights(), model);
///       trainer.loaded();
///       for (...) trainer.step(batch, learning_rate);   // inputs of the model, then targets
///     });
///
/// Errors  as ExportedProgram, cut_graph() and graph_layer(); UserError `[exported.model]`: a model
///         without a single output.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "strata/checkpoint/named_state.h"
#include "strata/exported/graph_pieces.h"
#include "strata/nn/graph/sequential.h"

namespace strata {

enum class ExportedLoss {
  kCrossEntropy,  ///< of logits [..., classes] and int64 targets [...]; kIgnoredTarget: no loss
  kSquaredError,  ///< of the output and targets of its shape
};

class ExportedModel {
 public:
  /// `borders`: modules that become layers; empty: chosen (graph_pieces.h).
  explicit ExportedModel(const std::string& path, const std::vector<std::string>& borders = {});

  /// Batch inputs: those of the model, then "targets". The last layer is the loss: its sum divided
  /// by MiniBatch::valid_tokens.
  Sequential layers(ExportedLoss loss) const;

  /// Fills weights and running statistics of `model`, made by layers(), with those of the file.
  void fill(const std::vector<NamedState>& states, const Sequential& model) const;

  /// The name in state_dict() of a weight of `model` by its name in checkpoints.
  std::string state_name(const Sequential& model, const std::string& weight) const;

 private:
  std::map<std::string, std::string> targets_of(const Sequential& model) const;

  std::string path_;
  ExportedProgram program_;
  std::vector<GraphPiece> pieces_;
  std::map<std::string, std::string> ties_;
  std::vector<std::string> inputs_;
  std::string output_;
};

}  // namespace strata
