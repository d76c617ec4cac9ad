// The Python module strata._core; the package strata/ is its user and the one that people see.
#include "strata/python/module.h"

#include "strata/cli/version.h"
#include "strata/python/calls.h"

NB_MODULE(_core, module) {
  strata::translate_errors();
  module.attr("version") = strata::kVersion;
  strata::add_sessions(module);
  strata::add_recipes(module);
  strata::add_layers(module);
  strata::add_programs(module);
}
