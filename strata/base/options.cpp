// Fields are a list in the order of description, searched linearly: there are about a hundred, and
// `strata options` and the recipe in checkpoints use this order. A default is read like any value
// when it is described, so that the first start of the program reports a default outside its own
// limits.
#include "strata/base/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

constexpr const char* kListAll = "run `strata options` for the list of all fields";

// Returns the index after `list` in `path`: 1 for "a.b" in "a.b[1].c"; -1 if there is none.
std::int64_t index_after(const std::string& list, const std::string& path) {
  if (!path.starts_with(list + "[")) return -1;
  const char* begin = path.data() + list.size() + 1;
  std::int64_t index = -1;
  const auto [stop, error] = std::from_chars(begin, path.data() + path.size(), index);
  return error == std::errc() && stop != path.data() + path.size() && *stop == ']' ? index : -1;
}

std::string suggest(const std::string& nearest, const std::string& otherwise) {
  return nearest.empty() ? otherwise : "did you mean '" + nearest + "'?";
}

bool is_inside(const std::string& path, const std::string& section) {
  return section.empty() ||
         (path.size() > section.size() && path.starts_with(section) && path[section.size()] == '.');
}

}  // namespace

std::string section_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

void OptionSet::add(const std::string& path, Target target, FieldInfo info) {
  constexpr const char* kOperation = "base.options.add";
  STRATA_CHECK(!path.empty() && path.front() != '.' && path.back() != '.' &&
                   path.find("..") == std::string::npos,
               kOperation);
  bool taken = is_section(path);
  for (const Field& field : fields_) {
    taken = taken || field.path == path || is_inside(path, field.path);
  }
  taken = taken || std::ranges::find(retired_, path, &Retired::path) != retired_.end();
  const std::string value = write_value(target);
  try {
    if (const auto* list = std::get_if<OptionList>(&target)) {
      OptionSet elements;
      list->describe_new(elements, path + "[0]");
    } else if (!std::holds_alternative<YamlSection*>(target)) {
      read_value(target, info, path, value, "default");
    }
  } catch (const UserError& error) {
    throw InternalError(error.text());
  }
  if (taken) {
    throw InternalError({.operation = kOperation,
                         .where = "'" + path + "'",
                         .what = "described twice, or as a field and as a section",
                         .expected = "",
                         .got = "",
                         .fix = "give every field a path of its own"});
  }
  fields_.push_back({path, target, std::move(info), value});
}

void OptionSet::add(const std::string& path, std::vector<std::string>* target, FieldInfo info) {
  const FieldInfo of_element{.help = info.help, .choices = info.choices};
  const auto fresh = std::make_shared<std::string>(info.choices.empty() ? "" : info.choices[0]);
  add(path,
      OptionList{.size = [=] { return target->size(); },
                 .resize = [=](std::size_t count) { target->resize(count, *fresh); },
                 .describe = [=](OptionSet& set, const std::string& element,
                                 std::size_t i) { set.add(element, &(*target)[i], of_element); },
                 .describe_new =
                     [=](OptionSet& set, const std::string& element) {
                       set.add(element, fresh.get(), of_element);
                     },
                 .shorthand = ""},
      std::move(info));
}

void OptionSet::retire(const std::string& path, std::string default_text, std::string fix) {
  STRATA_CHECK(lookup(path) == nullptr && !is_section(path), "base.options.retire");
  retired_.push_back({path, std::move(default_text), std::move(fix)});
}

// Whether the field is retired: its last default is ignored. Throws for another value.
bool OptionSet::accept_retired(const std::string& path, const std::string& text,
                               const std::string& where) const {
  const auto retired = std::ranges::find(retired_, path, &Retired::path);
  if (retired == retired_.end()) return false;
  if (text == retired->default_text) return true;
  throw UserError({.operation = "base.options",
                   .where = where,
                   .what = "'" + path + "' is no longer a field",
                   .expected = "nothing, or its last default, " + retired->default_text,
                   .got = quote(text),
                   .fix = retired->fix});
}

void OptionSet::set(const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos) {
    throw UserError({.operation = "base.options",
                     .where = "--set",
                     .what = "no '=' in " + quote(assignment),
                     .expected = "PATH=VALUE",
                     .got = quote(assignment),
                     .fix = "write it like --set train.steps=10"});
  }
  const std::string path = assignment.substr(0, equals);
  const std::string text = assignment.substr(equals + 1);
  if (is_section(path)) refuse_section(path, quote(text), "--set");
  if (!lookup(path)) {
    if (accept_retired(path, text, "--set")) return;
    refuse_unknown(path, false, "--set");
  }
  assign(path, text, "--set");
}

bool OptionSet::is_set(const std::string& path) const { return described(path).where != "default"; }

std::string OptionSet::where(const std::string& path) const { return described(path).where; }

// Elements that no recipe set are described at their first lookup.
void OptionSet::describe_elements(Field& field) {
  const auto& list = std::get<OptionList>(field.target);
  if (field.elements.size() == list.size()) return;
  field.elements.assign(list.size(), {});
  for (std::size_t i = 0; i < field.elements.size(); ++i)
    list.describe(field.elements[i], field.path + "[" + std::to_string(i) + "]", i);
}

OptionSet::Field* OptionSet::lookup(const std::string& path) {
  for (Field& field : fields_) {
    if (field.path == path) return &field;
    if (!std::holds_alternative<OptionList>(field.target)) continue;
    const std::int64_t index = index_after(field.path, path);
    if (index < 0) continue;
    describe_elements(field);
    if (static_cast<std::size_t>(index) < field.elements.size())
      return field.elements[static_cast<std::size_t>(index)].lookup(path);
  }
  return nullptr;
}

// Describing elements has no visible effect.
const OptionSet::Field* OptionSet::lookup(const std::string& path) const {
  return const_cast<OptionSet*>(this)->lookup(path);
}

const OptionSet::Field& OptionSet::described(const std::string& path) const {
  const Field* field = lookup(path);
  if (field) return *field;
  throw InternalError({.operation = "base.options",
                       .where = "'" + path + "'",
                       .what = "no component describes this field",
                       .expected = members(section_of(path)),
                       .got = "",
                       .fix = "describe the field before asking for it"});
}

bool OptionSet::is_section(const std::string& path) const {
  return !path.empty() && std::ranges::any_of(fields_, [&](const Field& field) {
    return is_inside(field.path, path);
  });
}

std::vector<std::string> OptionSet::sections() const {
  std::vector<std::string> all;
  for (const Field& field : fields_) {
    for (std::string path = section_of(field.path); !path.empty(); path = section_of(path)) {
      if (std::ranges::find(all, path) == all.end()) all.push_back(path);
    }
  }
  return all;
}

// Lists the names one level below `section`; for an unknown section, those of its nearest known
// parent.
std::string OptionSet::members(const std::string& section) const {
  if (!section.empty() && !is_section(section)) return members(section_of(section));
  std::vector<std::string> names;
  std::string joined;
  for (const Field& field : fields_) {
    if (!is_inside(field.path, section)) continue;
    const std::size_t begin = section.empty() ? 0 : section.size() + 1;
    const std::string name = field.path.substr(begin, field.path.find('.', begin) - begin);
    if (std::ranges::find(names, name) != names.end()) continue;
    joined += (names.empty() ? "" : ", ") + name;
    names.push_back(name);
  }
  return joined;
}

void OptionSet::assign(const std::string& path, const std::string& text, const std::string& where) {
  Field& field = *lookup(path);
  if (std::holds_alternative<OptionList>(field.target) ||
      std::holds_alternative<YamlSection*>(field.target)) {
    return assign_yaml(field, text, where);
  }
  read_value(field.target, field.info, path, text, where);
  field.where = where;
}

void OptionSet::refuse_unknown(const std::string& path, bool section,
                               const std::string& where) const {
  std::vector<std::string> candidates;
  for (const Field& field : fields_) candidates.push_back(field.path);
  const std::string nearest = nearest_path(path, section ? sections() : candidates);
  throw UserError({.operation = "base.options",
                   .where = where,
                   .what = std::string(section ? "unknown section " : "unknown field ") +
                           quote(path) + (explain_unknown_ ? explain_unknown_(path) : ""),
                   .expected = members(section_of(path)),
                   .got = "",
                   .fix = suggest(nearest, kListAll)});
}

void OptionSet::refuse_section(const std::string& path, const std::string& got,
                               const std::string& where) const {
  const auto member = std::ranges::find_if(
      fields_, [&](const Field& field) { return is_inside(field.path, path); });
  throw UserError({.operation = "base.options",
                   .where = where,
                   .what = "'" + path + "' is a section and takes no value of its own",
                   .expected = "its fields: " + members(path),
                   .got = got,
                   .fix = "set a field of it, such as '" + member->path + "'"});
}

namespace {

constexpr std::size_t kColumns = 4;
using Row = std::array<std::string, kColumns>;

std::string print(const std::vector<Row>& rows) {
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < kColumns; ++i) {
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    table += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return table;
}

}  // namespace

std::vector<std::string> OptionSet::paths() const {
  std::vector<std::string> all;
  for (const Field& field : fields_) all.push_back(field.path);
  return all;
}

// Whether this set has the field with the same default.
bool OptionSet::has_same(const Field& field) const {
  return std::ranges::any_of(fields_, [&](const Field& own) {
    return own.path == field.path && own.default_text == field.default_text;
  });
}

// The fields of a list follow in a section of their own: "data.numeric[]".
std::string OptionSet::to_table(const OptionSet* shared) const {
  std::vector<Field> fields;
  for (const Field& field : fields_) {
    if (shared && shared->has_same(field)) continue;
    fields.push_back(field);
    const auto* list = std::get_if<OptionList>(&field.target);
    if (list == nullptr) continue;
    OptionSet element;
    list->describe_new(element, field.path + "[]");
    if (element.is_section(field.path + "[]"))
      fields.insert(fields.end(), element.fields_.begin(), element.fields_.end());
  }
  std::vector<std::string> sections;
  for (const Field& field : fields) {
    const std::string section = section_of(field.path);
    if (std::ranges::find(sections, section) == sections.end()) sections.push_back(section);
  }
  std::vector<Row> rows = {{"field", "default", "unit", "what it does"}};
  for (const std::string& section : sections) {
    rows.push_back({});
    for (const Field& field : fields) {
      if (section_of(field.path) != section) continue;
      const std::string limits = write_limits(field.target, field.info);
      rows.push_back({field.path, field.default_text.empty() ? "\"\"" : field.default_text,
                      field.info.unit,
                      field.info.help + (limits.empty() ? "" : " [" + limits + "]")});
    }
  }
  return print(rows);
}

}  // namespace strata
