#include "strata/task/graph/graph_batch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isnan.h>

#include <limits>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/ignored_target.h"
#include "strata/base/units.h"

namespace strata {
namespace {

constexpr ErrorSource kTargetErrors{"graph.data", "give each sample a target of the loss"};

void check_targets(const GraphSamples& model, const at::Tensor& targets, const std::string& where) {
  at::Tensor wrong;
  std::string expected;
  if (model.classes > 0) {
    wrong = (targets.ge(model.classes) | targets.lt(0)) & targets.ne(kIgnoredTarget);
    expected = "0 to " + std::to_string(model.classes - 1) + ", or " +
               std::to_string(kIgnoredTarget) + " for none";
  } else if (model.loss == ExportedLoss::kBinaryCrossEntropy) {
    wrong = targets.gt(1) | targets.lt(0);
    expected = "0 to 1, or NaN for none";
  }
  if (!wrong.defined() || !wrong.any().item<bool>()) return;
  throw kTargetErrors.user(where, "a target is none of the model's loss", expected,
                           format_double(targets.masked_select(wrong)[0].item<double>(), 6));
}

}  // namespace

MiniBatch graph_batch(const GraphSamples& model, std::vector<at::Tensor> tensors,
                      const std::string& where) {
  MiniBatch batch{.inputs = std::move(tensors)};
  const at::Tensor& targets = batch.inputs.back();
  batch.samples = targets.size(0);
  check_targets(model, targets, where);
  at::Tensor ignored;
  if (model.classes > 0) {
    ignored = targets.eq(kIgnoredTarget);
  } else {
    batch.ignored_target = std::numeric_limits<double>::quiet_NaN();
    ignored = targets.isnan();
  }
  batch.valid_tokens = targets.numel() - ignored.sum().item<std::int64_t>();
  return batch;
}

}  // namespace strata
