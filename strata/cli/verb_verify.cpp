#include <iomanip>
#include <iostream>
#include <memory>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/cli/arguments.h"
#include "strata/cli/run_messages.h"
#include "strata/cli/verbs.h"
#include "strata/run/resume_point.h"
#include "strata/run/verify.h"

namespace strata {
namespace {

void print(const Verification& result) {
  std::cout << "loss   mesh " << format_hex(result.mesh_loss) << "  one rank "
            << format_hex(result.reference_loss) << '\n';
  for (const LayerComparison& layer : result.layers) {
    std::cout << std::left << std::setw(12) << layer.layer << std::right << std::setw(10)
              << format_count(static_cast<double>(layer.elements)) << "  ";
    if (layer.differing == 0) {
      std::cout << "equal\n";
    } else {
      std::cout << layer.differing << " elements differ, by at most " << layer.largest_difference
                << ", first in " << layer.first_weight << '\n';
    }
  }
}

void run_verify(const RecipeArguments& arguments, const std::string& resume) {
  const ResolvedRun resolved = resolve_here(arguments.load());
  const Recipe& recipe = resolved.recipe;
  resume_position(recipe, resume);  // refuses before measuring
  const PlannedRun run = plan_run(resolved);
  std::cout << "replaying one step on " << run.ranks << " ranks (" << name_of(run.mesh.schedule)
            << ", recompute " << name_of(recipe.memory.recompute) << ") and on one\n";
  const Verification result = verify(recipe, run, resume);
  print(result);
  if (result.holds() && result.bits_expected) {
    std::cout << "bit-equal: loss and every gradient of " << result.layers.size() << " layers\n";
    return;
  }
  if (result.holds()) {
    std::cout << "within " << kGradientTolerance
              << " of each layer's largest gradient, loss within " << kLossTolerance
              << ": ranks, or blocks of attention, add in another order\n";
    return;
  }
  const LayerComparison* layer = result.first_difference();
  std::string difference = "another loss";
  if (layer)
    difference = result.bits_expected ? "first difference in " + layer->first_weight
                                      : "largest difference in " + layer->worst_weight;
  throw InternalError({.operation = "cli.verify",
                       .where = layer ? layer->layer : "loss",
                       .what = "the mesh computes something else than one rank",
                       .expected = result.bits_expected ? "equal bits" : "equal up to rounding",
                       .got = difference,
                       .fix =
                           "report it with this recipe; docs/gpipe.md says for which sizes threads "
                           "may change bits"});
}

}  // namespace

void add_verify_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("verify", "replay a step on one rank and compare every gradient");
  auto arguments = std::make_shared<RecipeArguments>();
  auto resume = std::make_shared<std::string>();
  arguments->add_to(*verb);
  verb->add_option("--resume", *resume, "take the step after this checkpoint")
      ->check(refuse_empty_path)
      ->type_name("CHECKPOINT");
  verb->callback([arguments, resume] { run_verify(*arguments, *resume); });
}

}  // namespace strata
