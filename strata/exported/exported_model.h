/// Makes a model of layers from a file of torch.export: any PyTorch model on every mesh and tier,
/// without Python.
///
///     const ExportedModel exported("model.pt2");
///     const Sequential model = exported.layers(ExportedLoss::kCrossEntropy);
///     const auto names = exported.state_names(model);
///     run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
///       Trainer trainer(model, plan_steps(model, {.partition = {{0, 3, 6}}}), group);
///       trainer.fill([&](const auto& states, const auto&) { exported.fill(states, names); });
///       trainer.loaded();
///       for (...) trainer.step(batch, learning_rate);   // inputs of the model, then targets
///     });
///
/// Errors  as ExportedProgram, cut_graph() and graph_layer(); UserError `[exported.model]`: a model
///         without a single output of real numbers [samples, ...]; a loss that does not fit it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "strata/checkpoint/named_state.h"
#include "strata/exported/graph_pieces.h"
#include "strata/nn/graph/sequential.h"

namespace strata {

enum class ExportedLoss : std::uint8_t {
  /// of logits [..., classes] and int64 targets [...]; kIgnoredTarget: no loss
  kCrossEntropy,
  /// the same with classes in dimension 1: of images [N, classes, H, W] and [N, H, W]
  kCrossEntropyOfChannels,
  /// of logits and targets of their shape, from 0 to 1; NaN: no loss
  kBinaryCrossEntropy,
  /// of the output and targets of its shape; NaN: no loss
  kSquaredError,
};
const char* name_of(ExportedLoss loss);  ///< "cross_entropy", ...

class ExportedModel {
 public:
  /// `borders`: modules that become layers; empty: chosen (graph_pieces.h).
  explicit ExportedModel(const std::string& path, const std::vector<std::string>& borders = {});

  /// Batch inputs: those of the model, then the targets. The last layer is the loss: its sum,
  /// divided by MiniBatch::valid_tokens. With classes it scores samples (LossSink::scores): how
  /// many of a sample's targets have the largest logit.
  /// `own_operations`: linear layers and layer norms by Strata's operations (own_step.h).
  Sequential layers(ExportedLoss loss, bool own_operations = false) const;

  /// The batch inputs of layers() for so many samples.
  std::vector<TensorSpec> batch_inputs(ExportedLoss loss, std::int64_t samples) const;
  /// The number of classes of a cross-entropy; 0: the loss has none.
  std::int64_t classes(ExportedLoss loss) const;

  /// Equal for files with the same layers and operators, whatever the values of their weights.
  std::string identity() const;
  /// They are constants of layers, which no plan counts.
  bool has_frozen_parameters() const;

  /// The names in state_dict() of the weights of `model`, made by layers(), by their names in
  /// checkpoints. A weight that PyTorch names twice has one of its names.
  std::map<std::string, std::string> state_names(const Sequential& model) const;

  /// Fills weights and running statistics with those of the file. `names`: state_names().
  void fill(const std::vector<NamedState>& states,
            const std::map<std::string, std::string>& names) const;

 private:
  std::string path_;
  ExportedProgram program_;
  std::vector<GraphPiece> pieces_;
  std::map<std::string, std::string> ties_;
  std::vector<std::string> inputs_;
  std::string output_;
};

}  // namespace strata
