// The filters of Jinja that make texts.
#include <algorithm>

#include "strata/jinja/filter_arguments.h"
#include "strata/jinja/json.h"
#include "strata/jinja/python_text.h"

namespace strata {
namespace {

template <std::string (*Change)(std::string_view)>
JinjaValue changed(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("a filter of texts", call);
  return Change(value.text());
}

JinjaValue trimmed(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("trim", {"chars"});
  const std::string set = text_argument(bound[0], "");
  const std::string all = value.text();
  return strip(all, bound[0] && !bound[0]->is_none() ? &set : nullptr, true, true);
}

JinjaValue replaced(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("replace", {"old", "new", "count"});
  if (!bound[0] || !bound[1])
    throw JinjaProblem{"the filter 'replace' needs two texts", "old, new"};
  std::string made = replace(value.text(), bound[0]->text(), bound[1]->text(),
                             bound[2] && !bound[2]->is_none() ? whole_argument(bound[2], -1) : -1);
  call.meter.text(static_cast<std::int64_t>(made.size()));
  return made;
}

JinjaValue indented(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("indent", {"width", "first", "blank"});
  if (!value.string())
    throw JinjaProblem{"the filter 'indent' needs a text", "a str", value.type()};
  const std::int64_t width = bound[0] && bound[0]->string() ? 0 : whole_argument(bound[0], 4);
  call.meter.text(std::max<std::int64_t>(width, 0));
  const std::string indent =
      bound[0] && bound[0]->string()
          ? *bound[0]->string()
          : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  std::string made = flag_argument(bound[1], false) ? indent : "";
  bool first = true;
  for (const std::string& line : split_lines(value.text() + "\n")) {
    call.meter.grown(made.size() + line.size() + indent.size());
    if (!first) made += "\n" + (line.empty() && !flag_argument(bound[2], false) ? "" : indent);
    made += line;
    first = false;
  }
  return made;
}

JinjaValue centred(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("center", {"width"});
  const std::string all = value.text();
  const std::int64_t width = whole_argument(bound[0], 80), length = character_count(all);
  call.meter.text(std::max<std::int64_t>(width, 0));
  const std::int64_t pad = std::max<std::int64_t>(width - length, 0);
  const std::int64_t left = pad / 2 + (pad & width & 1);
  return std::string(static_cast<std::size_t>(left), ' ') + all +
         std::string(static_cast<std::size_t>(pad - left), ' ');
}

JinjaValue to_json(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound =
      call.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonLayout layout{.ascii = flag_argument(bound[0], false),
                    .sort_keys = flag_argument(bound[3], false)};
  if (bound[1] && !bound[1]->is_none()) {
    const std::int64_t width = bound[1]->string() ? 0 : whole_argument(bound[1], 0);
    call.meter.text(std::max<std::int64_t>(width, 0));
    layout.indent =
        bound[1]->string()
            ? *bound[1]->string()
            : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    layout.item_separator = ",";
  }
  if (bound[2] && !bound[2]->is_none()) {
    const std::vector<JinjaValue> both = bound[2]->items();
    if (both.size() != 2 || !both[0].string() || !both[1].string())
      throw JinjaProblem{"the separators of 'tojson' are not two texts", "(',', ':')"};
    layout.item_separator = *both[0].string();
    layout.key_separator = *both[1].string();
  }
  return json_text(value, layout, call.meter);
}

JinjaValue words_of(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("wordcount", call);
  return word_count(value.text());
}

}  // namespace

const JinjaFilters& text_filters() {
  static const JinjaFilters all = {
      {"capitalize", changed<capitalize>},
      {"center", centred},
      {"indent", indented},
      {"lower", changed<to_lower>},
      {"replace", replaced},
      {"tojson", to_json},
      {"trim", trimmed},
      {"upper", changed<to_upper>},
      {"wordcount", words_of},
  };
  return all;
}

}  // namespace strata
