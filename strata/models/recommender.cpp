#include "strata/models/recommender.h"

#include "strata/base/errors.h"
#include "strata/models/recommender_layer.h"

namespace strata {
namespace {

void refuse_mesh(const std::string& where, const std::string& what, const std::string& expected,
                 const std::string& got) {
  throw UserError({.operation = "models.recommender",
                   .where = where,
                   .what = what,
                   .expected = expected,
                   .got = got,
                   .fix = "set " + where + " to " + expected});
}

}  // namespace

Sequential make_recommender(const RecommenderOptions& input, const RecommenderInputs& inputs,
                            RecommenderOutput output, TensorSplit split, at::ScalarType precision) {
  if (split.ranks > 1)
    refuse_mesh("mesh.tp", "layers of a recommender are not divided among ranks", "1",
                std::to_string(split.ranks));
  if (precision != at::kFloat)
    refuse_mesh("train.precision", "a recommender computes in 32 bit", "fp32",
                c10::toString(precision));
  const RecommenderOptions options = completed(input, inputs);
  std::vector<std::string> batch = {"numeric", "rows"};
  if (output == RecommenderOutput::kLoss) batch.push_back("labels");
  Sequential model(std::move(batch));
  if (output == RecommenderOutput::kLoss) model.want_gradient("rows");
  const RecommenderSetup setup{options, inputs, output};
  switch (options.kind) {
    case RecommenderKind::kDlrm:
      add_dlrm(model, setup);
      break;
    case RecommenderKind::kDcn:
      add_dcn(model, setup);
      break;
    case RecommenderKind::kDeepWide:
      add_deep_wide(model, setup);
      break;
  }
  return model;
}

std::vector<TensorSpec> recommender_batch(const RecommenderInputs& inputs, std::int64_t samples,
                                          RecommenderOutput output) {
  std::vector<TensorSpec> batch = {{.shape = {samples, inputs.numeric}},
                                   {.shape = {samples, inputs.rows()}}};
  if (output == RecommenderOutput::kLoss) batch.push_back({.shape = {samples}});
  return batch;
}

}  // namespace strata
