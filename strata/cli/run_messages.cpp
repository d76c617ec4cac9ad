#include "strata/cli/run_messages.h"

#include <iostream>
#include <utility>

#include "strata/report/progress.h"

namespace strata {

ResolvedRun resolve_here(Recipe recipe) {
  ResolvedRun run = resolve(std::move(recipe));
  run.on_notice = [](const std::string& line) { std::cerr << line + "\n" << std::flush; };
  if (progress_to_stderr(0, 0).terminal)
    run.on_measuring = [](const std::string& layers) {
      std::cerr << "measuring  " << layers << std::endl;
    };
  return run;
}

}  // namespace strata
