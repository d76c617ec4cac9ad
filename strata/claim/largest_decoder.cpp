#include "strata/claim/largest_decoder.h"

#include "strata/base/errors.h"
#include "strata/plan/search/proposal.h"

namespace strata {
namespace {

PlanRequest request_for(const LargestDecoderRequest& wanted, std::int64_t layers) {
  DecoderShape shape = wanted.shape;
  shape.layers = layers;
  const DecoderModel model = decoder_model(
      shape, {.split = {.samples = wanted.samples, .element_bytes = wanted.element_bytes}},
      precision_convention(wanted.convention), wanted.machine);
  PlanRequest request{.dataflow = model.dataflow};
  request.costs = model.costs;
  request.micro_batch = wanted.samples;
  request.machine = wanted.machine;
  request.updates_measured = false;
  request.updates_at_once = wanted.updates_at_once;
  MemoryOptions& memory = request.memory;
  memory.device = wanted.machine.device.bytes;
  memory.host = {wanted.machine.host.bytes.count - wanted.machine.host.reserve.count};
  memory.recompute = RecomputeMode::kFull;
  if (wanted.disk_bytes > 0) memory.disk = {.path = "disk", .bytes = {wanted.disk_bytes}};
  return request;
}

}  // namespace

std::vector<TierDepth> largest_decoders(const LargestDecoderRequest& request) {
  constexpr std::int64_t kFirst = 2;
  const PlanRequest small = request_for(request, kFirst);
  std::vector<double> parameters(small.dataflow.num_layers, block_parameters(request.shape));
  DecoderShape ends = request.shape;
  ends.layers = 0;
  parameters.front() = parameters_of(ends);
  parameters.back() = 0;
  return largest_depths(small, parameters);
}

const TierDepth& depth_of(const std::vector<TierDepth>& depths, Placement placement) {
  const auto place = static_cast<std::size_t>(placement);
  STRATA_CHECK(place < depths.size(), "claim.depth");
  return depths[place];
}

double decoder_step_seconds(const LargestDecoderRequest& wanted, int layers, Placement placement,
                            int window) {
  PlanRequest request = request_for(wanted, layers);
  const auto place = [&](Placement from) {
    return placement >= from ? TierChoice::kHost : TierChoice::kDevice;
  };
  MemoryOptions& memory = request.memory;
  memory.weights = place(Placement::kWindow);
  memory.gradients = memory.states = place(Placement::kOffload);
  memory.activations = TierChoice::kDevice;
  memory.window = window;
  return propose(request).simulation.step_seconds;
}

}  // namespace strata
