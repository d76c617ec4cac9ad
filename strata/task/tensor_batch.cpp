#include "strata/task/tensor_batch.h"

#include <ATen/TensorOperators.h>

#include <string>
#include <utility>

#include "strata/base/error_source.h"

namespace strata {
namespace {

constexpr ErrorSource kBatchErrors{"task.batch",
                                   "bring the model's inputs, then the targets, sample by sample"};

std::string text_of(at::ScalarType dtype, at::IntArrayRef shape) {
  std::string text = std::string(c10::toString(dtype)) + " [samples";
  for (std::size_t i = 1; i < shape.size(); ++i) text += ", " + std::to_string(shape[i]);
  return text + "]";
}

std::string place_of(std::size_t tensor, std::size_t tensors) {
  return tensor + 1 == tensors ? "targets" : "input " + std::to_string(tensor + 1);
}

bool fits(const at::Tensor& tensor, const TensorSpec& spec) {
  const at::IntArrayRef shape(spec.shape);
  const bool integers =
      c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) && spec.dtype == at::kLong;
  return tensor.dim() == static_cast<std::int64_t>(shape.size()) &&
         tensor.sizes().slice(1) == shape.slice(1) &&
         (tensor.scalar_type() == spec.dtype || integers);
}

}  // namespace

std::vector<at::Tensor> fitting_tensors(std::vector<at::Tensor> tensors,
                                        const std::vector<TensorSpec>& specs) {
  if (tensors.size() != specs.size())
    throw kBatchErrors.user("the mini-batch", "the model has another number of tensors",
                            std::to_string(specs.size() - 1) + " inputs and the targets",
                            std::to_string(tensors.size()) + " tensors");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string place = place_of(i, tensors.size());
    if (!fits(tensors[i], specs[i]))
      throw kBatchErrors.user(place, "the tensor does not fit the model",
                              text_of(specs[i].dtype, specs[i].shape),
                              text_of(tensors[i].scalar_type(), tensors[i].sizes()));
    if (tensors[i].size(0) != tensors[0].size(0) || tensors[i].size(0) == 0)
      throw kBatchErrors.user(place, "the tensors have different numbers of samples, or none",
                              std::to_string(tensors[0].size(0)) + ", as input 1 has",
                              std::to_string(tensors[i].size(0)));
    tensors[i] = tensors[i].detach().to(specs[i].dtype).contiguous();
  }
  return tensors;
}

MiniBatch tensor_batch(std::vector<at::Tensor> tensors, const std::vector<TensorSpec>& specs) {
  MiniBatch batch{.inputs = fitting_tensors(std::move(tensors), specs)};
  const at::Tensor& targets = batch.inputs.back();
  batch.samples = targets.size(0);
  batch.valid_tokens = targets.ne(kIgnoredTarget).sum().item<std::int64_t>();
  return batch;
}

}  // namespace strata
