#include "strata/base/option_changes.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <string>

#include "strata/base/yaml_text.h"

namespace strata {
namespace {

using Changes = std::vector<OptionChange>;

void compare(const YAML::Node& before, const YAML::Node& now, const std::string& path,
             Changes& changes);

bool are_sections(const YAML::Node& list) {
  return std::all_of(list.begin(), list.end(), [](const YAML::Node& each) { return each.IsMap(); });
}

bool names_same_fields(const YAML::Node& before, const YAML::Node& now) {
  return before.size() == now.size() && std::all_of(now.begin(), now.end(), [&](const auto& entry) {
           return before[entry.first.Scalar()].IsDefined();
         });
}

// A section that another component reads lists only the fields that were set: if their names
// differ, the whole section has changed. In other sections, a field of only one recipe belongs to
// another version.
void compare_sections(const YAML::Node& before, const YAML::Node& now, const std::string& path,
                      bool in_list, Changes& changes) {
  if (in_list && !names_same_fields(before, now)) {
    changes.push_back({path, in_one_line(before), in_one_line(now)});
    return;
  }
  for (const auto& entry : now) {
    const std::string name = entry.first.Scalar();
    if (const YAML::Node same = before[name]; same.IsDefined())
      compare(same, entry.second, path.empty() ? name : path + "." + name, changes);
  }
}

void compare(const YAML::Node& before, const YAML::Node& now, const std::string& path,
             Changes& changes) {
  const bool in_list = path.find('[') != std::string::npos;
  if (before.IsMap() && now.IsMap()) return compare_sections(before, now, path, in_list, changes);
  if (before.IsMap() != now.IsMap() && !in_list) return;  // a field of only one recipe
  if (before.IsSequence() && now.IsSequence() && before.size() == now.size() &&
      are_sections(before) && are_sections(now)) {
    for (std::size_t i = 0; i < now.size(); ++i)
      compare(before[i], now[i], path + "[" + std::to_string(i) + "]", changes);
    return;
  }
  const std::string old = in_one_line(before), fresh = in_one_line(now);
  if (old != fresh) changes.push_back({path, old, fresh});
}

}  // namespace

std::vector<OptionChange> changed_options(const std::string& before, const std::string& now) {
  Changes changes;
  try {
    const YAML::Node old = YAML::Load(before), fresh = YAML::Load(now);
    if (old.IsMap() && fresh.IsMap()) compare(old, fresh, "", changes);
  } catch (const YAML::Exception&) {
    changes.clear();
  }
  return changes;
}

}  // namespace strata
