#include "strata/models/quantised_model.h"

#include <algorithm>
#include <utility>

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"
#include "strata/nn/primitives/quantised_weight.h"

namespace strata {
namespace {

using kernels::QuantisedType;

constexpr std::int64_t kValueBytes = 4;  // of a value that a product of many rows reads

bool is_matrix(const std::vector<std::int64_t>& shape) { return shape.size() == 2; }

// A group has one scale, so it stays on one rank.
void check_groups(QuantisedType type, const WeightSpec& source,
                  const std::vector<std::int64_t>& shape, int ranks) {
  const std::int64_t terms = kernels::group_terms(type, shape[1]);
  if (shape[1] == source.shape[1] || shape[1] % terms == 0) return;
  throw UserError({.operation = "models.split",
                   .where = "mesh.tp",
                   .what = std::to_string(ranks) + " tensor-parallel ranks divide the " +
                           std::to_string(source.shape[1]) + " inputs of " + source.name +
                           " within groups that share a scale",
                   .expected = "multiples of " + std::to_string(terms) + " inputs a rank",
                   .got = std::to_string(shape[1]),
                   .fix = "set mesh.tp to 1, or use weights in int8"});
}

// A block with its matrices in fewer bits; everything else is the block's.
class QuantisedBlock final : public Layer {
 public:
  QuantisedBlock(std::shared_ptr<const Layer> block, QuantisedType type, int ranks)
      : block_(std::move(block)), type_(type), sources_(block_->weights()) {
    for (const WeightSpec& source : sources_) {
      shapes_.push_back(slice_shape(source, ranks));
      if (is_matrix(source.shape)) check_groups(type, source, shapes_.back(), ranks);
    }
  }

  // Such a weight is a rank's own part: its tiles do not divide like its rows and columns.
  std::vector<WeightSpec> weights() const override {
    std::vector<WeightSpec> specs = sources_;
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (const std::vector<std::int64_t>& shape = shapes_[i]; is_matrix(shape))
        specs[i] = {.name = specs[i].name,
                    .shape = {quantised_words(type_, shape[0], shape[1])},
                    .decay = specs[i].decay};
    return specs;
  }

  QuantisedSource source(std::size_t weight) const {
    return {is_matrix(sources_[weight].shape) ? &sources_[weight] : nullptr, type_};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    STRATA_CHECK(!context.training, "models.quantised");
    std::vector<at::Tensor> viewed(weights.begin(), weights.end());
    for (std::size_t i = 0; i < viewed.size(); ++i)
      if (const std::vector<std::int64_t>& shape = shapes_[i]; is_matrix(shape))
        viewed[i] = quantised_weight(type_, viewed[i], shape[0], shape[1]);
    return block_->forward(context, viewed, inputs);
  }

  // In addition, the values of one matrix.
  LayerBytes bytes(std::span<const TensorSpec> inputs, Recompute recompute) const override {
    std::int64_t largest = 0;
    for (const std::vector<std::int64_t>& shape : shapes_)
      if (is_matrix(shape)) largest = std::max(largest, shape[0] * shape[1] * kValueBytes);
    LayerBytes bytes = block_->bytes(inputs, recompute);
    bytes.no_grad_transient = bytes.without_graph() + largest;
    return bytes;
  }

  std::string signature() const override {
    return (type_ == QuantisedType::kInt8 ? "int8 " : "int4 ") + block_->signature();
  }
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
  QuantisedType type_;
  std::vector<WeightSpec> sources_;
  std::vector<std::vector<std::int64_t>> shapes_;  // of a rank's parts
};

}  // namespace

const char* name_of(WeightType type) {
  using enum WeightType;
  static constexpr EnumNames<WeightType> kNames{
      {kPrecision, "precision"}, {kInt8, "int8"}, {kInt4, "int4"}};
  return kNames[type];
}

std::shared_ptr<const Layer> quantised_block(std::shared_ptr<const Layer> block, QuantisedType type,
                                             int ranks) {
  return std::make_shared<QuantisedBlock>(std::move(block), type, ranks);
}

bool keeps_fewer_bits(const std::string& name, const std::vector<std::int64_t>& shape) {
  return name.starts_with("block") && is_matrix(shape);
}

QuantisedType rounding_of(WeightType type) {
  STRATA_CHECK(type != WeightType::kPrecision, "models.quantised");
  return type == WeightType::kInt8 ? QuantisedType::kInt8 : QuantisedType::kInt4;
}

QuantisedSource quantised_source(const Layer& layer, std::size_t weight) {
  const auto* block = dynamic_cast<const QuantisedBlock*>(&layer);
  return block ? block->source(weight) : QuantisedSource{};
}

}  // namespace strata
