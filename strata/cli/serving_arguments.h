/// Reads the options of a server of text that decide what it needs and how fast it is, for `strata
/// serve` and `strata plan --serve`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strata/serve/service_options.h"

namespace strata {

struct ServingArguments {
  std::optional<std::string> cache;  ///< none: the default of ServiceOptions
  std::string host_cache = "0", disk_cache = "0";
  WeightType weights = WeightType::kPrecision;
  std::optional<std::int64_t> guesses;  ///< none: kDraftGuesses with a draft model, else 0
  std::string draft = {};               ///< a model's path; empty: none
  WeightType draft_weights = WeightType::kPrecision;
  ServiceOptions service;

  std::vector<CLI::Option*> add_to(CLI::App& verb);  ///< returns the options
  /// For `served`. UserError: a cache that is no number of bytes, a --draft that cannot guess
  /// for it.
  ServiceOptions options(const ServedModel& served) const;
  /// " --draft PATH --guesses 4", as they were passed; "" without.
  std::string guess_options() const;
};

}  // namespace strata
