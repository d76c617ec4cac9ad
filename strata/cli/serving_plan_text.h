/// Prints what `strata serve` would need and reach, before anything is loaded: `strata plan
/// --serve`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strata/plan/machine_profile.h"
#include "strata/serve/model_service.h"

namespace strata {

/// The options of a server that decide what it needs, for `strata plan --serve` and `strata serve`.
struct ServingArguments {
  std::optional<std::string> cache;  ///< none: the default of ServiceOptions
  std::string host_cache = "0", disk_cache = "0";
  WeightType weights = WeightType::kPrecision;
  std::optional<std::int64_t> guesses;  ///< none: kDraftGuesses with a draft model, else 0
  std::string draft = {};               ///< a model's path; empty: none
  WeightType draft_weights = WeightType::kPrecision;
  ServiceOptions service;

  std::vector<CLI::Option*> add_to(CLI::App& verb);
  /// For `served`. UserError: a cache that is no number of bytes, a --draft that cannot guess
  /// for it.
  ServiceOptions options(const ServedModel& served) const;
  /// " --draft PATH --guesses 4", as they were passed; "" without.
  std::string guess_options() const;
};

/// Numbers of answers at once that are worth a row: 1, 4, 16 and so on, and the most.
std::vector<std::int64_t> numbers_at_once(std::int64_t most);

struct ServingForecast {
  std::string text;
  std::string json;
};

/// `measure`: measures passes of a few blocks on this machine; false: only bytes. `machine`: the
/// rates of its tiers.
/// Errors  UserError: what serving_request() and plan_serving() refuse.
ServingForecast forecast_serving(const ServedModel& served, const ServiceOptions& options,
                                 const MachineProfile& machine, bool measure);

}  // namespace strata
