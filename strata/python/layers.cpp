// strata._core.running_layer(): what a layer that runs in Python (strata/python_call.py) needs of
// the step.
#include "strata/nn/graph/running_layer.h"
#include "strata/python/module.h"

namespace strata {
namespace nb = nanobind;
namespace {

// (training, seed, step, first sample); None: no layer runs on this thread.
nb::object running_layer() {
  const ForwardContext* context = RunningLayer::context();
  if (!context) return nb::none();
  return nb::make_tuple(context->training, context->seed, context->step, context->first_sample);
}

}  // namespace

void add_layers(nb::module_& module) { module.def("running_layer", &running_layer); }

}  // namespace strata
