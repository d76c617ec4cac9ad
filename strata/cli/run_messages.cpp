#include "strata/cli/run_messages.h"

#include <iostream>
#include <utility>

#include "strata/report/progress.h"

namespace strata {

ResolvedRun resolve_here(Recipe recipe, bool measure) {
  ResolveOptions options{.measure = measure};
  if (progress_to_stderr(0, 0).terminal)
    options.on_measuring = [](const std::string& layers) {
      std::cerr << "measuring  " << layers << std::endl;
    };
  ResolvedRun run = resolve(std::move(recipe), options);
  run.on_notice = [](const std::string& line) { std::cerr << line + "\n" << std::flush; };
  return run;
}

}  // namespace strata
