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

/// Fields that both have, with other values, in the order of `now`. A field of one alone is another
/// version's, with nothing to compare it with. Lists of as many sections are compared section by section
/// ("data.numeric[1].name"); a section in there whose fields are others is one change. A text that is no YAML
/// has no fields.
std::vector<OptionChange> changed_options(const std::string& before, const std::string& now);

}  // namespace strata
