#include "strata/train/trained_model.h"

#include "strata/models/model.h"

namespace strata {

Sequential training_model(const Recipe& recipe, TensorSplit split) {
  Sequential model =
      recipe.recommender
          ? make_recommender(recipe.recommender->model, inputs_of(*recipe.recommender),
                             RecommenderOutput::kLoss, split, recipe.train.precision)
          : make_model(recipe.model, DecoderOutput::kLoss, split, recipe.train.precision,
                       recipe.device_kind());
  // Elsewhere weights lie where they did: sums of squares, and so losses, keep their bits.
  if (recipe.device_kind() == DeviceKind::kCuda) model.align_weights(kCudaWeightAlignmentBytes);
  return model;
}

std::vector<TensorSpec> batch_specs(const Recipe& recipe, std::int64_t samples) {
  if (recipe.recommender) return recommender_batch(inputs_of(*recipe.recommender), samples);
  const TensorSpec tokens{{samples, recipe.model.context}, at::kLong};
  return {tokens, tokens};
}

std::int64_t sample_tokens(const Recipe& recipe) {
  return recipe.recommender ? 0 : recipe.model.context;
}

CheckpointModel checkpoint_model(const Recipe& recipe) {
  if (recipe.recommender) return CheckpointModel(network_fields(*recipe.recommender));
  return recipe.model;
}

std::string model_title(const Recipe& recipe) {
  if (!recipe.recommender) return recipe.model.kind == DecoderKind::kLlama ? "Llama" : "GPT";
  switch (recipe.recommender->model.kind) {
    case RecommenderKind::kDlrm:
      return "DLRM";
    case RecommenderKind::kDcn:
      return "DCN-v2";
    case RecommenderKind::kDeepWide:
      return "Deep and wide";
  }
  return "?";
}

}  // namespace strata
