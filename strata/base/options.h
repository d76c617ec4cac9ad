/// Describes every option once, in the component that owns it, and reads it from YAML or `--set`.
///
/// A component has a plain struct with defaults and, in the same header,
///     void describe(OptionSet& set, const std::string& prefix, TrainOptions& options);
/// which adds each field with its unit and one sentence. This description defines the recipe's
/// parser (line and column of every error, nearest valid name), `--set a.b=c`, `strata options` and
/// the effective recipe that a checkpoint stores.
///
/// A field may be a list of texts, or of structs that are described like any other: the fields of
/// its second element are "data.numeric[1].name" and so on, in recipes, errors and --set.
///
/// Recipes in checkpoints name every field that their version had. A component that removes a field
/// retires it, so that these recipes stay readable.
///
/// Errors  UserError: unknown field (with the nearest name), wrong type, value out of its choices
///         or range, a retired field with another value than its default, a field given twice in
///         one recipe, malformed YAML. InternalError: a path described twice or as field and
///         section, a default outside its own choices or range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "strata/base/units.h"

namespace YAML {
class Node;
}

namespace strata {

class OptionSet;

/// Describes a field in addition to its name and default.
struct FieldInfo {
  std::string help;                       ///< one sentence, no line break
  std::string unit = "";                  ///< "steps", "tokens", "ratio"; empty for names and flags
  std::vector<std::string> choices = {};  ///< for strings: the legal values; empty: any
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
};

/// Pairs enumerators with their name_of(), as OptionSet::add requires.
template <typename E>
std::vector<std::pair<std::string, E>> named(std::initializer_list<E> values) {
  std::vector<std::pair<std::string, E>> all;
  for (const E value : values) all.emplace_back(name_of(value), value);
  return all;
}

/// Returns the section of a field: "mesh" of "mesh.pp"; "" at the top.
std::string section_of(const std::string& path);

/// A field that is one of a few named values, such as an enum.
struct NamedValues {
  std::vector<std::string> names;
  std::function<std::size_t()> chosen;  ///< index of the present value
  std::function<void(std::size_t)> choose;
};

/// A field with elements that have fields of their own.
struct OptionList {
  std::function<std::size_t()> size;
  std::function<void(std::size_t)> resize;  ///< new elements have their defaults
  std::function<void(OptionSet&, const std::string&, std::size_t)> describe;  ///< element, its path
  std::function<void(OptionSet&, const std::string&)> describe_new;  ///< one with all defaults
  std::string shorthand;  ///< the field that an element without fields sets; empty: none
};

/// Keeps a section, with its places, that a component of a later level describes and reads with
/// OptionSet::load_section(). Copies share it.
class YamlSection {
 public:
  bool is_set() const { return node_ != nullptr; }
  const std::string& where() const { return where_; }  ///< "recipe.yaml:3:9"
  std::string text() const;                            ///< YAML in one line; "{}" if not given

 private:
  friend class OptionSet;
  std::shared_ptr<const YAML::Node> node_;
  std::string file_, where_;
};

class OptionSet {
 public:
  using Target = std::variant<bool*, int*, std::int64_t*, double*, std::string*, Bytes*,
                              NamedValues, OptionList, YamlSection*>;

  /// Adds the field at `path` ("train.steps"); its present value is the default. The target must
  /// outlive the set.
  void add(const std::string& path, Target target, FieldInfo info);

  /// Adds a field that is an enum: `values` are its choices, by name.
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

  /// Adds a list of structs, each with its own `describe`; `[price, {name: age}]` is short for
  /// `[{name: price}, {name: age}]` if `shorthand` is "name".
  template <typename T>
  void add(const std::string& path, std::vector<T>* target, const std::string& shorthand,
           FieldInfo info) {
    const auto fresh = std::make_shared<T>();
    add(path,
        OptionList{
            .size = [=] { return target->size(); },
            .resize = [=](std::size_t count) { target->resize(count); },
            .describe = [=](OptionSet& set, const std::string& element,
                            std::size_t i) { describe(set, element, (*target)[i]); },
            .describe_new = [=](OptionSet& set,
                                const std::string& element) { describe(set, element, *fresh); },
            .shorthand = shorthand},
        std::move(info));
  }

  /// Adds a list of texts; one text is a list of one. `info.choices` apply to each element.
  void add(const std::string& path, std::vector<std::string>* target, FieldInfo info);

  /// Removes the field at `path` from recipes: `default_text`, its last default as to_yaml() wrote
  /// it, is ignored; any other value is refused with `fix`, which names the replacement.
  void retire(const std::string& path, std::string default_text, std::string fix);

  /// Reads a recipe; `file` names it in errors. A later recipe overrides an earlier one.
  void load_yaml(const std::string& text, const std::string& file);

  /// Reads the fields of a section that another component kept; in this set they belong to
  /// `section`, which is "" for the top. Errors name the place in the recipe.
  void load_section(const YamlSection& kept, const std::string& section);

  /// Overrides one field: "train.steps=10". The value of a list is YAML: "data.numeric=[price,
  /// age]".
  void set(const std::string& assignment);

  /// Adds a sentence to the error about an unknown field or section: `explain` gets its path and
  /// may return "".
  void explain_unknown(std::function<std::string(const std::string& path)> explain) {
    explain_unknown_ = std::move(explain);
  }

  bool is_set(const std::string& path) const;        ///< set by a recipe or --set, not defaulted
  std::string where(const std::string& path) const;  ///< "recipe.yaml:3:9", "--set", "default"
  std::vector<std::string> paths() const;            ///< of all fields, as they were added
  std::string to_yaml() const;  ///< every field with its effective value; load_yaml reads it back
  /// One line per field: path, default, unit, sentence. Leaves out fields that `shared` has with
  /// the same default.
  std::string to_table(const OptionSet* shared = nullptr) const;

 private:
  struct Field {
    std::string path;
    Target target;
    FieldInfo info;
    std::string default_text;
    std::string where = "default";
    std::vector<OptionSet> elements = {};  // of a list: the description of each element
  };
  struct Retired {
    std::string path, default_text, fix;
  };
  class YamlReader;

  // Values as text (option_value.cpp). write_value returns text that read_value accepts unchanged.
  // read_value stores the text only if type, choices and range allow it. write_limits describes
  // these: "gpipe | 1f1b", "0 to 1", "at least 1"; empty if there are none.
  static std::string write_value(const Target& target);
  static void read_value(const Target& target, const FieldInfo& info, const std::string& path,
                         const std::string& text, const std::string& where);
  static std::string write_limits(const Target& target, const FieldInfo& info);

  // Lists and sections as YAML (options_yaml.cpp). tree returns the fields of `section`.
  static YAML::Node write_node(const Target& target);
  static std::string write_yaml(const Target& target);
  YAML::Node tree(const std::string& section) const;
  void assign_yaml(Field& field, const std::string& text, const std::string& where);
  static void describe_elements(Field& field);

  Field* lookup(const std::string& path);
  const Field* lookup(const std::string& path) const;
  bool accept_retired(const std::string& path, const std::string& text,
                      const std::string& where) const;
  bool has_same(const Field& field) const;
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
  std::vector<Retired> retired_;
  std::function<std::string(const std::string& path)> explain_unknown_;
};

}  // namespace strata
