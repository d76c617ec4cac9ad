/// Guesses the next tokens of sequences with a small model, for the served model to check in one
/// pass.
///
/// The draft model computes the tokens of every pass before the served model does, and then one
/// guess after the other. It has pages of its own with the numbers of the served model's pages, and
/// puts the same tokens into them. So its keys and values are right, whichever pages are reused or
/// taken away and whichever guesses are wrong.
///
/// Guesses decide how many tokens a pass yields, never which: the served model chooses each token
/// as without guesses. A guess is drawn with the random number of the token that it guesses, so
/// models that nearly agree draw the same token also above temperature 0.
///
/// Source   Leviathan et al. 2023, Chen et al. 2023 (speculative decoding; there, a guess that was
///          drawn otherwise is accepted with a probability).
/// Threads  one rank's thread, without other ranks.
/// Cost     1 + guesses passes of the draft model for a pass of the served one. All pages at
///          construction, of the rank's account.
/// Errors   what Decoder throws.
#pragma once

#include "strata/comm/group.h"
#include "strata/serve/request_loop.h"
#include "strata/serve/served_model.h"
#include "strata/serve/serving_plan.h"

namespace strata {

/// UserError: a model that cannot guess for `served`, because its tokens are others.
void check_draft(const ServedModel& draft, const ServedModel& served);

/// Bytes of the device that the draft model needs: weights, pages and its largest pass, which
/// guesses for `sequences`. `model`: network_of() it; `served`: the passes.
std::int64_t draft_bytes(const Sequential& model, const ServingRequest& served,
                         std::int64_t sequences);

class DraftModel {
 public:
  /// On this rank alone. `model`: made for one rank; must outlive it. `room`: of the served model.
  /// `tiers`: for its pages off the device.
  DraftModel(const Sequential& model, const PageRoom& room, const Group& world,
             const WeightTiers& tiers = {});

  Decoder& decoder() { return decoder_; }  ///< to fill

  /// Computes the pass of the batch, and replaces its guesses.
  void guess(Batch& batch, const ChooseGuess& choose);

 private:
  Group alone_;
  Decoder decoder_;
};

}  // namespace strata
