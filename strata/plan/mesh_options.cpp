#include "strata/plan/mesh_options.h"

namespace strata {

void describe(OptionSet& set, const std::string& prefix, MeshOptions& options) {
  set.add(prefix + ".pp", &options.pp,
          {.help = "Ranks that the layers are cut over", .unit = "ranks", .minimum = 1});
  set.add(prefix + ".virtual_stages", &options.virtual_stages,
          {.help = "Stages that every rank holds; more than one needs gpipe or interleaved",
           .unit = "stages",
           .minimum = 1});
  set.add(prefix + ".schedule", &options.schedule,
          {.help = "Order of forwards and backwards", .choices = {"gpipe", "1f1b", "interleaved"}});
  set.add(prefix + ".threads", &options.threads,
          {.help = "Threads of each rank (0: cores / ranks)", .unit = "threads", .minimum = 0});
}

}  // namespace strata
