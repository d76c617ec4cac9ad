/// Composes layers into a model: a description without weights.
///
///     Sequential model({"tokens", "targets"});
///     model.add("embed", embedding, {"tokens"}, {"x"});
///     model.add("block0", block);                         // reads and writes "x"
///     model.add("merge", concat, {"x", "early"}, {"x"});  // a skip from any earlier layer
///     model.add("head", head, {"x", "targets"}, {"loss"});
///
/// A name refers to the latest value written under it. Weights that name the same tie are one
/// weight.
///
/// Inputs of the mini-batch have no gradient, except those that want_gradient() names: the backward
/// of their only reader returns it, and this layer passes the input on as a value if other layers
/// need it.
///
/// Errors  UserError: unknown input name, a name read twice by one layer, duplicate layer names,
///         tied weights of different shapes, a second reader of an input whose gradient is wanted.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "strata/comm/tensor_parallel.h"
#include "strata/layout/dataflow.h"
#include "strata/nn/graph/layer.h"
#include "strata/nn/graph/layout.h"

namespace strata {

/// The source of a layer's input: a value of the dataflow, or a tensor of the mini-batch.
struct InputRef {
  int value = -1;
  int batch_input = -1;
};

class Sequential {
 public:
  /// `split`: the tensor-parallel ranks that the layers were made for; `precision`: of the weights.
  explicit Sequential(std::vector<std::string> batch_inputs, TensorSplit split = {},
                      at::ScalarType precision = at::kFloat);

  int add(const std::string& name, std::shared_ptr<const Layer> layer,
          const std::vector<std::string>& inputs = {"x"},
          const std::vector<std::string>& outputs = {"x"});

  /// Sets the alignment of weights in flat buffers (nn/graph/layout.h); call it after adding all
  /// layers.
  void align_weights(std::int64_t bytes);

  /// Makes the model return the gradient of this input of the mini-batch, such as rows of
  /// embeddings. Call it before adding layers, for at most one input.
  void want_gradient(const std::string& batch_input);
  bool wants_gradient(int batch_input) const { return wanted_[batch_input]; }
  int rows_input() const;                          ///< the input whose gradient is wanted; -1: none
  int batch_input(const std::string& name) const;  ///< its index

  int num_layers() const { return static_cast<int>(layers_.size()); }
  const Layer& layer(int index) const { return *layers_[index]; }
  const std::string& name(int index) const { return names_[index]; }
  const std::vector<std::string>& batch_inputs() const { return batch_inputs_; }
  const std::vector<InputRef>& inputs(int layer) const { return inputs_[layer]; }
  std::vector<bool> differentiable_inputs(int layer) const;  ///< per input: has it a gradient?
  const std::vector<int>& outputs(int layer) const { return outputs_[layer]; }  ///< value indices
  const Dataflow& dataflow() const { return dataflow_; }

  const TensorSplit& split() const { return split_; }

  /// The flat buffer of a layer on one tensor-parallel rank; uses of weights that other layers own
  /// are marked borrowed.
  const LayerLayout& layout(int layer) const { return layouts_[layer]; }

  /// Shapes of every value, inferred from those of the mini-batch inputs.
  std::vector<TensorSpec> value_specs(const std::vector<TensorSpec>& batch_inputs) const;
  std::vector<TensorSpec> input_specs(int layer, const std::vector<TensorSpec>& batch_inputs,
                                      const std::vector<TensorSpec>& values) const;

  /// Elements of the whole model; counts each tied weight once and no running statistics.
  std::int64_t num_weights() const;

 private:
  void resolve_ties(int layer, std::vector<WeightSpec> specs);

  std::vector<std::string> batch_inputs_;
  std::vector<bool> wanted_, read_;  // per batch input: gradient wanted, read by a layer
  TensorSplit split_;
  at::ScalarType precision_;
  std::vector<std::string> names_;
  std::unordered_set<std::string> known_names_;  // the same, for look-up
  std::vector<std::shared_ptr<const Layer>> layers_;
  std::vector<std::vector<InputRef>> inputs_;
  std::vector<std::vector<int>> outputs_;
  std::vector<LayerLayout> layouts_;
  std::unordered_map<std::string, int> latest_;  // name -> value index
  Dataflow dataflow_;
};

}  // namespace strata
