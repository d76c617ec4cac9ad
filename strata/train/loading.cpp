#include "strata/train/loading.h"

namespace strata {

TrainingPosition load_trainer(Trainer& trainer, const DecoderOptions& model,
                              const std::string& path) {
  const TrainingPosition position = load_states(path, model, trainer.weights(), trainer.slots());
  trainer.set_steps_done(position.steps_done);
  trainer.loaded();
  return position;
}

void load_weights(Trainer& trainer, const DecoderOptions& model, const std::string& path) {
  load_weights(path, model, trainer.weights());
  trainer.loaded();
}

}  // namespace strata
