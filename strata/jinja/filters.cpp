#include "strata/jinja/filters.h"

#include "strata/base/user_text.h"
#include "strata/jinja/filter_arguments.h"

namespace strata {
namespace {

JinjaValue defaulted(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("default", {"default_value", "boolean"});
  const bool lacks = value.undefined() || (flag_argument(bound[1], false) && !value.truth());
  return lacks ? bound[0].value_or(JinjaValue("")) : value;
}

JinjaValue attribute_filter(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("attr", {"name"});
  if (!bound[0]) throw JinjaProblem{"the filter 'attr' needs a name"};
  if (value.dict() || value.object()) {
    if (JinjaObject* object = value.object())
      if (auto attribute = object->attribute(bound[0]->text())) return *attribute;
    if (value.object()) return JinjaUndefined{"there is no such attribute"};
  }
  throw JinjaProblem{"the filter 'attr' is not supported for this value", "a namespace",
                     value.type()};
}

JinjaValue text_filter(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("string", call);
  return value.text();
}

const JinjaFilters& filters() {
  static const JinjaFilters all = [] {
    JinjaFilters joined = {
        {"attr", attribute_filter},
        {"d", defaulted},
        {"default", defaulted},
        {"string", text_filter},
    };
    for (const JinjaFilters* group : {&number_filters(), &text_filters(), &list_filters()})
      joined.insert(group->begin(), group->end());
    return joined;
  }();
  return all;
}

}  // namespace

bool flag_argument(const JinjaArgument& argument, bool otherwise) {
  return argument ? argument->truth() : otherwise;
}

std::int64_t whole_argument(const JinjaArgument& argument, std::int64_t otherwise) {
  if (!argument) return otherwise;
  if (const auto value = argument->whole()) return *value;
  throw JinjaProblem{"an argument of a filter is no int", "an int", argument->type()};
}

std::string text_argument(const JinjaArgument& argument, const std::string& otherwise) {
  return argument ? argument->text() : otherwise;
}

void refuse_arguments(const std::string& filter, const JinjaCall& call) { call.bind(filter, {}); }

JinjaValue apply_filter(const std::string& name, const JinjaValue& value, const JinjaCall& call) {
  const auto found = filters().find(name);
  if (found == filters().end())
    throw JinjaProblem{"Strata does not support this filter", "", quote(name)};
  call.meter.step();
  return found->second(value, call);
}

void check_filter(const std::string& name, JinjaPlace, const JinjaTokenReader& reader) {
  if (filters().contains(name)) return;
  std::vector<std::string> known;
  for (const auto& [each, filter] : filters()) known.push_back(each);
  const std::string nearest = nearest_name(name, known);
  reader.refuse("Strata does not support the filter " + quote(name),
                nearest.empty() ? "" : "perhaps '" + nearest + "'");
}

}  // namespace strata
