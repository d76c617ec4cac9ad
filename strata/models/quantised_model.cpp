#include "strata/models/int8_model.h"

#include <algorithm>
#include <utility>

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"
#include "strata/nn/primitives/int8_weight.h"

namespace strata {
namespace {

constexpr std::int64_t kInt8ValueBytes = 4;  // of a value that a product of many rows reads

bool is_matrix(const std::vector<std::int64_t>& shape) { return shape.size() == 2; }

// A block with its matrices in 8 bits; everything else is the block's.
class Int8Block final : public Layer {
 public:
  Int8Block(std::shared_ptr<const Layer> block, int ranks)
      : block_(std::move(block)), sources_(block_->weights()) {
    for (const WeightSpec& source : sources_) shapes_.push_back(slice_shape(source, ranks));
  }

  // A weight in 8 bits is a rank's own part: its tiles do not divide like its rows and columns.
  std::vector<WeightSpec> weights() const override {
    std::vector<WeightSpec> specs = sources_;
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (const std::vector<std::int64_t>& shape = shapes_[i]; is_matrix(shape))
        specs[i] = {.name = specs[i].name,
                    .shape = {int8_words(shape[0], shape[1])},
                    .decay = specs[i].decay};
    return specs;
  }

  const WeightSpec* source(std::size_t weight) const {
    return is_matrix(sources_[weight].shape) ? &sources_[weight] : nullptr;
  }

  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    STRATA_CHECK(!context.training, "models.int8");
    std::vector<at::Tensor> viewed(weights.begin(), weights.end());
    for (std::size_t i = 0; i < viewed.size(); ++i)
      if (const std::vector<std::int64_t>& shape = shapes_[i]; is_matrix(shape))
        viewed[i] = int8_weight(viewed[i], shape[0], shape[1]);
    return block_->forward(context, viewed, inputs);
  }

  // In addition, the values of one matrix.
  LayerBytes bytes(std::span<const TensorSpec> inputs, bool keep) const override {
    std::int64_t largest = 0;
    for (const std::vector<std::int64_t>& shape : shapes_)
      if (is_matrix(shape)) largest = std::max(largest, shape[0] * shape[1] * kInt8ValueBytes);
    LayerBytes bytes = block_->bytes(inputs, keep);
    bytes.no_grad_transient = bytes.without_graph() + largest;
    return bytes;
  }

  std::string signature() const override { return "int8 " + block_->signature(); }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return block_->outputs(inputs);
  }
  bool recomputable() const override { return block_->recomputable(); }
  double forward_flops(std::span<const TensorSpec> inputs) const override {
    return block_->forward_flops(inputs);
  }
  LayerWork work(std::span<const TensorSpec> inputs) const override { return block_->work(inputs); }
  std::vector<TensorSpec> cache(std::int64_t pages, std::int64_t page_tokens) const override {
    return block_->cache(pages, page_tokens);
  }

 private:
  std::shared_ptr<const Layer> block_;
  std::vector<WeightSpec> sources_;
  std::vector<std::vector<std::int64_t>> shapes_;  // of a rank's parts
};

}  // namespace

const char* name_of(WeightType type) {
  using enum WeightType;
  static constexpr EnumNames<WeightType> kNames{{kPrecision, "precision"}, {kInt8, "int8"}};
  return kNames[type];
}

std::shared_ptr<const Layer> int8_block(std::shared_ptr<const Layer> block, int ranks) {
  return std::make_shared<Int8Block>(std::move(block), ranks);
}

bool is_in_int8(const std::string& name, const std::vector<std::int64_t>& shape) {
  return name.starts_with("block") && is_matrix(shape);
}

const WeightSpec* int8_source(const Layer& layer, std::size_t weight) {
  const auto* block = dynamic_cast<const Int8Block*>(&layer);
  return block ? block->source(weight) : nullptr;
}

}  // namespace strata
