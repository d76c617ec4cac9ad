/// The parts of the Python module strata._core.
#pragma once

#include <nanobind/nanobind.h>

namespace strata {

void add_sessions(nanobind::module_& module);  ///< Session
void add_recipes(nanobind::module_& module);   ///< Plan, plan(), train(), generate()
void add_layers(nanobind::module_& module);    ///< running_layer(), for layers in Python
void add_programs(nanobind::module_& module);  ///< the schedules' actions, for strata.GPipe

}  // namespace strata
