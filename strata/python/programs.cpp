// strata._core.gpipe_programs(): the order in which strata.GPipe runs its partitions.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "strata/python/module.h"
#include "strata/schedule/builders.h"

namespace strata {
namespace nb = nanobind;
namespace {

using Steps = std::vector<std::pair<std::string, int>>;  // "F" or "B", and the micro-batch

std::vector<Steps> gpipe_programs(int stages, int micro_batches) {
  std::vector<Steps> programs;
  for (const Program& program : gpipe({.ranks = stages, .micro_batches = micro_batches}).programs) {
    Steps& steps = programs.emplace_back();
    for (const Action& action : program) steps.emplace_back(kind_of(action.op), action.micro_batch);
  }
  return programs;
}

}  // namespace

void add_programs(nb::module_& module) {
  module.def("gpipe_programs", &gpipe_programs, nb::arg("stages"), nb::arg("micro_batches"));
}

}  // namespace strata
