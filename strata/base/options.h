/// Describes every option once, in the component that owns it, and reads it from YAML or `--set`.
///
/// A component has a plain struct with defaults and, beside it,
///     void describe(OptionSet& set, const std::string& prefix, TrainOptions& options);
/// which adds each field with its unit and one sentence. From that description come the recipe's
/// parser (line and column of every refusal, nearest valid name), `--set a.b=c`, `strata options`
/// and the effective recipe that a checkpoint stores.
///
/// Errors  UserError: unknown field (with the nearest name), wrong type, value out of its choices
///         or range, a field given twice in one recipe, malformed YAML. InternalError: a path
///         described twice or as field and section, a default outside its own choices or range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "strata/base/units.h"

namespace strata {

/// What is said of a field beside its name and default.
struct FieldInfo {
  std::string help;                       ///< one sentence, no line break
  std::string unit = "";                  ///< "steps", "tokens", "ratio"; empty for names and flags
  std::vector<std::string> choices = {};  ///< for strings: the legal values; empty: any
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
};

/// Enumerators with what name_of() calls them, as OptionSet::add wants them.
template <typename E>
std::vector<std::pair<std::string, E>> named(std::initializer_list<E> values) {
  std::vector<std::pair<std::string, E>> all;
  for (const E value : values) all.emplace_back(name_of(value), value);
  return all;
}

/// The section that a field stands in: "mesh" of "mesh.pp"; "" at the top.
std::string section_of(const std::string& path);

/// A field that is one of a few named values, such as an enum.
struct NamedValues {
  std::vector<std::string> names;
  std::function<std::size_t()> chosen;  ///< index of the present value
  std::function<void(std::size_t)> choose;
};

class OptionSet {
 public:
  using Target = std::variant<bool*, std::int64_t*, double*, std::string*, Bytes*, NamedValues>;

  /// Adds the field at `path` ("train.steps"); its present value is the default. The target must
  /// outlive the set.
  void add(const std::string& path, Target target, FieldInfo info);

  /// The same for an enum: `values` are its choices, by name.
  template <typename E>
    requires std::is_enum_v<E>
  void add(const std::string& path, E* target, const std::vector<std::pair<std::string, E>>& values,
           FieldInfo info) {
    NamedValues named{.chosen =
                          [=] {
                            std::size_t i = 0;
                            while (i < values.size() && values[i].second != *target) ++i;
                            return i;
                          },
                      .choose = [=](std::size_t i) { *target = values[i].second; }};
    for (const auto& value : values) named.names.push_back(value.first);
    info.choices = named.names;
    add(path, std::move(named), std::move(info));
  }

  /// Reads a recipe; `file` names it in errors. A later recipe overrides an earlier one.
  void load_yaml(const std::string& text, const std::string& file);

  /// Overrides one field: "train.steps=10".
  void set(const std::string& assignment);

  bool is_given(const std::string& path) const;      ///< set by a recipe or --set, not defaulted
  std::string where(const std::string& path) const;  ///< "recipe.yaml:3:9", "--set", "default"
  std::string to_yaml() const;   ///< every field with its effective value; load_yaml reads it back
  std::string to_table() const;  ///< one line a field: path, default, unit, sentence

 private:
  struct Field {
    std::string path;
    Target target;
    FieldInfo info;
    std::string default_text;
    std::string where = "default";
  };
  class YamlReader;

  // Values as text (option_value.cpp). write_value: in the form that read_value takes back unchanged.
  // read_value: stores the text only if type, choices and range allow it. write_limits: what they
  // allow, "gpipe | 1f1b", "0 to 1", "at least 1"; empty if everything.
  static std::string write_value(const Target& target);
  static void read_value(const Target& target, const FieldInfo& info, const std::string& path,
                         const std::string& text, const std::string& where);
  static std::string write_limits(const Target& target, const FieldInfo& info);

  const Field* lookup(const std::string& path) const;
  const Field& described(const std::string& path) const;
  bool is_section(const std::string& path) const;
  std::vector<std::string> sections() const;
  std::string members(const std::string& section) const;
  void assign(const std::string& path, const std::string& text, const std::string& where);
  [[noreturn]] void refuse_unknown(const std::string& path, bool section,
                                   const std::string& where) const;
  [[noreturn]] void refuse_section(const std::string& path, const std::string& got,
                                   const std::string& where) const;

  std::vector<Field> fields_;
};

}  // namespace strata
