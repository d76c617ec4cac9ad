/// Names the values of an enum, each once, and lists and finds the values by these names.
///
/// The table is in the source of `name_of`, which is declared next to the enum:
///     const char* name_of(Tier tier) {
///       using enum Tier;
///       static constexpr EnumNames<Tier> kNames{
///           {kDevice, "device"}, {kHost, "host"}, {kDisk, "disk"}};
///       return kNames[tier];
///     }
/// Lists, parsers and options read the values from the enum itself and the names from `name_of`.
///
/// Errors  A table does not compile if it lacks a value, has one in another place than the enum
///         has, an empty name, or one name twice. std::out_of_range: a value that the enum does not
///         have.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata {

/// Whether the enum declares this value: compilers write others as a cast, "(strata::Tier)3".
template <auto kValue>
consteval bool is_enumerator() {
  constexpr std::string_view kText = __PRETTY_FUNCTION__;
  constexpr std::size_t kAfterCast = kText.rfind(')') + 1;
  return kAfterCast == 0 || kText[kAfterCast] < '0' || kText[kAfterCast] > '9';
}

/// The number of values of an enum whose values count up from 0.
template <typename E, std::size_t kFrom = 0>
consteval std::size_t count_enumerators() {
  if constexpr (is_enumerator<static_cast<E>(kFrom)>()) return count_enumerators<E, kFrom + 1>();
  return kFrom;
}

template <typename E>
class EnumNames {
 public:
  using List = std::initializer_list<std::pair<E, const char*>>;

  consteval EnumNames(List list) {
    if (const char* fault = fault_of(list); *fault != 0) throw fault;
    for (const auto& [value, name] : list) names_[static_cast<std::size_t>(value)] = name;
  }

  constexpr const char* operator[](E value) const {
    return names_.at(static_cast<std::size_t>(value));
  }

  /// Why this list is no table; "" if it is one.
  static constexpr const char* fault_of(List list) {
    if (list.size() != kSize) return "the enum has more values, or fewer";
    for (std::size_t i = 0; i < kSize; ++i) {
      const auto& [value, name] = list.begin()[i];
      if (value != static_cast<E>(i)) return "not the order of the enum";
      if (*name == 0) return "an empty name";
      for (std::size_t j = 0; j < i; ++j)
        if (std::string_view(name) == list.begin()[j].second) return "one name of two values";
    }
    return "";
  }

 private:
  static constexpr std::size_t kSize = count_enumerators<E>();
  std::array<const char*, kSize> names_{};
};

/// All values with their names, in the order of the enum, as OptionSet::add wants them.
template <typename E>
std::vector<std::pair<std::string, E>> all_named() {
  std::vector<std::pair<std::string, E>> all;
  for (std::size_t i = 0; i < count_enumerators<E>(); ++i)
    all.emplace_back(name_of(static_cast<E>(i)), static_cast<E>(i));
  return all;
}

/// The value with this name; empty if none has it.
template <typename E>
std::optional<E> value_named(std::string_view name) {
  for (std::size_t i = 0; i < count_enumerators<E>(); ++i)
    if (name == name_of(static_cast<E>(i))) return static_cast<E>(i);
  return std::nullopt;
}

template <typename E>
std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const auto& [name, value] : all_named<E>()) names.push_back(name);
  return names;
}

/// "gpt, llama" for an error or a help text; `last` stands before the last name.
template <typename E>
std::string list_names(const std::string& last = ", ") {
  const std::vector<std::string> names = all_names<E>();
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i)
    list += (i == 0 ? "" : i + 1 < names.size() ? ", " : last) + names[i];
  return list;
}

}  // namespace strata
