#include "strata/schedule/sharing.h"

#include "strata/schedule/placement.h"

namespace strata::schedule {

Sharing make_sharing(const Dataflow& dataflow, const std::vector<char>& has_weights,
                     const SharingRequest& request) {
  Sharing sharing;
  if (request.replicas == 1 && !request.partial_gradients) return sharing;
  const bool shared = request.shards > 1;
  const std::vector<char> tied = tied_layers(dataflow);
  for (int layer = 0; layer < dataflow.num_layers; ++layer) {
    const bool weights = has_weights[layer];
    const bool divides = shared && weights && !tied[layer];
    sharing.reduced.push_back(weights);
    sharing.divided_gradients.push_back(divides && request.zero >= 2);
    sharing.each.push_back(divides && request.zero >= 2 && request.reduce_each);
    sharing.fetched.push_back(divides && request.zero == 3);
  }
  sharing.gather = shared && request.zero >= 1;
  return sharing;
}

}  // namespace strata::schedule
