#include "strata/base/option_changes.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <utility>

#include "strata/base/yaml_text.h"

namespace strata {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

void append_fields(const YAML::Node& section, const std::string& prefix, Fields& fields) {
  for (const auto& entry : section) {
    const std::string path = prefix + entry.first.Scalar();
    if (entry.second.IsMap()) {
      append_fields(entry.second, path + ".", fields);
    } else {
      fields.emplace_back(path, in_one_line(entry.second));
    }
  }
}

Fields fields_of(const std::string& recipe) {
  Fields fields;
  try {
    const YAML::Node root = YAML::Load(recipe);
    if (root.IsMap()) append_fields(root, "", fields);
  } catch (const YAML::Exception&) {
    fields.clear();
  }
  return fields;
}

}  // namespace

std::vector<OptionChange> changed_options(const std::string& before, const std::string& now) {
  const Fields old = fields_of(before);
  std::vector<OptionChange> changes;
  for (const auto& [path, value] : fields_of(now)) {
    const auto same = std::ranges::find(old, path, &Fields::value_type::first);
    if (same != old.end() && same->second != value) changes.push_back({path, same->second, value});
  }
  return changes;
}

}  // namespace strata
