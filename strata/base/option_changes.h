/// Compares two effective recipes, as OptionSet::to_yaml() writes them.
#pragma once

#include <string>
#include <vector>

namespace strata {

struct OptionChange {
  std::string path;  ///< "train.steps"
  std::string before, now;

  friend bool operator==(const OptionChange&, const OptionChange&) = default;
};

/// Returns the fields of both recipes whose values differ, in the order of `now`. A field of only
/// one recipe belongs to another version and is left out. Lists of equally many sections are
/// compared section by section ("data.numeric[1].name"); such a section with other field names is
/// one change. A text that is not YAML has no fields.
std::vector<OptionChange> changed_options(const std::string& before, const std::string& now);

}  // namespace strata
