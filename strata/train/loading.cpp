#include "strata/train/loading.h"

#include "strata/train/saving.h"

namespace strata {

void load_trainer(Trainer& trainer, const std::string& path) {
  trainer.set_steps_done(load_states(path, trainer.weights(), trainer.slots()));
  trainer.loaded();
}

void load_weights(Trainer& trainer, const std::string& path) {
  load_weights(path, trainer.weights());
  trainer.loaded();
}

}  // namespace strata
