/// Plans the passes of a served model: which layers keep their weights on the device, what each
/// rank needs at most, and how long passes take.
///
/// A pass uses every layer once, so a window, as training has it, would fetch every layer in every
/// pass. Instead as many layers as fit stay on the device. The others, spread evenly over their
/// stage, are copied to the device in every pass, each while layers before it compute. A pass
/// computes all running answers, so one copy of a layer serves all of them.
///
/// Source  Sheng et al. 2023 (FlexGen); Aminabadi et al. 2022 (ZeRO-Inference).
/// Units   bytes of one rank; seconds.
/// Cost    a ledger for each step of two bisections over the layers.
/// Errors  UserError `[plan.memory]`: budgets that nothing fits, with the smallest that something
///         does. What decoder_steps() refuses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/layout/costs.h"
#include "strata/nn/graph/sequential.h"
#include "strata/plan/ledger/ledger.h"
#include "strata/plan/plan_options.h"
#include "strata/plan/simulate/tier_traffic.h"
#include "strata/schedule/step_plan.h"
#include "strata/serve/key_value_cache.h"
#include "strata/serve/pass_seconds.h"

namespace strata {

struct ServingRequest {
  const Sequential& model;  ///< as for Decoder
  Mesh mesh = {};
  PageRoom room = {};
  std::int64_t context = 0;           ///< tokens of the longest sequence
  std::int64_t pass_tokens = 0;       ///< of the largest pass
  std::int64_t pass_logits = 0;       ///< its tokens that need logits
  std::int64_t draft_bytes = 0;       ///< of the device that a draft model takes
  std::int64_t draft_page_bytes = 0;  ///< of a page of the draft model; 0: there is none
  MemoryOptions memory = {};
  TierRates rates = {};
  /// How to need less of each, for errors; may be empty.
  struct Smaller {
    std::string device = {}, host = {}, disk = {};
  } smaller = {};
};

struct ServingPlan {
  StepPlan steps;
  CostTable costs;                        ///< of the largest pass
  Ledger ledger = {};                     ///< of the largest pass, with the pages
  std::vector<TierTraffic> traffic = {};  ///< of a pass, per rank
  int layers_away = 0;                    ///< whose weights are copied to the device in every pass
  int layers_on_disk = 0;                 ///< of these, read from the disk
};

ServingPlan plan_serving(const ServingRequest& request);

/// The seconds of a pass on the plan's ranks and tiers, if its layers take these seconds.
double pass_seconds(const ServingPlan& plan, const ServingRequest& request,
                    const PassSeconds& layers);

/// "weights of 12 of 32 layers off the device (12 on the host), 300 MiB copied to a rank in every
/// pass"; "" if all stay.
std::string tiers_sentence(const ServingPlan& plan);

}  // namespace strata
