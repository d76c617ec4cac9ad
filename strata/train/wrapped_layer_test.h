/// Disturbs one layer of a decoder, for tests that detect it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/nn/graph/sequential.h"

namespace strata {

/// Calls `before` before each forward of the inner layer.
class WrappedLayer final : public Layer {
 public:
  using Before = std::function<void(std::span<const at::Tensor> weights)>;
  /// `inner` must outlive this.
  WrappedLayer(const Layer& inner, Before before) : inner_(inner), before_(std::move(before)) {}

  std::string signature() const override { return inner_.signature(); }
  std::vector<WeightSpec> weights() const override { return inner_.weights(); }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return inner_.outputs(inputs);
  }
  LayerBytes bytes(std::span<const TensorSpec> inputs, Recompute recompute) const override {
    return inner_.bytes(inputs, recompute);
  }
  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    before_(weights);
    return inner_.forward(context, weights, inputs);
  }
  bool recomputable() const override { return inner_.recomputable(); }
  bool is_loss() const override { return inner_.is_loss(); }
  double forward_flops(std::span<const TensorSpec> inputs) const override {
    return inner_.forward_flops(inputs);
  }

 private:
  const Layer& inner_;
  Before before_;
};

/// A decoder without skips whose layer `wrapped` is disturbed. `model` must outlive it.
inline Sequential with_wrapped_layer(const Sequential& model, int wrapped,
                                     WrappedLayer::Before before) {
  Sequential copy(model.batch_inputs(), model.split());
  const int head = model.num_layers() - 1;
  for (int i = 0; i <= head; ++i) {
    std::shared_ptr<const Layer> layer(std::shared_ptr<void>(), &model.layer(i));
    if (i == wrapped) layer = std::make_shared<WrappedLayer>(model.layer(i), before);
    if (i == 0) copy.add(model.name(i), layer, {"tokens"}, {"x"});
    if (i > 0 && i < head) copy.add(model.name(i), layer);
    if (i == head) copy.add(model.name(i), layer, {"x", "targets"}, {"loss"});
  }
  return copy;
}

}  // namespace strata
