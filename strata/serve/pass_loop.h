/// Runs passes on all ranks: one rank decides, all compute.
///
/// The rank that gets the logits takes each pass from its request loop and sends it to the others.
/// While it has no request, it sends a sign of life every second, so that waiting ranks do not
/// count as stalled (transport/watchdog.h).
///
/// Guesses  `guess`, on the rank that decides, replaces those of each pass (serve/draft_model.h).
/// Weights  `load` fills the decoder from a checkpoint when the request loop orders kLoad.
/// Threads  collective; returns on all ranks when the loop stops. `loop` is used on the rank that
///          decides; each process may pass its own.
/// Errors   what passes throw.
#pragma once

#include <functional>
#include <string>

#include "strata/comm/group.h"
#include "strata/serve/decoder.h"
#include "strata/serve/request_loop.h"

namespace strata {

using LoadWeights = std::function<void(Decoder& decoder, const std::string& checkpoint)>;

void run_passes(Decoder& decoder, Group& world, RequestLoop& loop, const LoadWeights& load = {},
                const GuessTokens& guess = {});

}  // namespace strata
