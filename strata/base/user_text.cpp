// The distance is the restricted Damerau-Levenshtein distance: a swap of neighbours, a common
// typing error, counts once. No name is suggested that needs more than a third of the letters
// changed.
#include "strata/base/user_text.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/utf8.h"

namespace strata {
namespace {

bool starts_character(char c) { return (c & 0xC0) != 0x80; }

std::string escaped(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string line;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (byte == '\n') {
      line += "\\n";
    } else if (bytes == 0 || byte < 0x20 || byte == 0x7F) {
      line += std::string("\\x") + kDigits[byte >> 4] + kDigits[byte & 0xF];
    } else {
      line += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return line;
}

}  // namespace

std::string_view beginning(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && !starts_character(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

std::string quote(std::string_view text) {
  constexpr std::size_t kKept = kLongestQuotation - 26;  // leaves room for the length that follows
  const std::string line = escaped(beginning(text, kLongestQuotation));
  if (text.size() <= kLongestQuotation && line.size() + 2 <= kLongestQuotation)
    return "'" + line + "'";
  return "'" + std::string(beginning(line, kKept)) + "...' (" + std::to_string(text.size()) +
         " bytes)";
}

std::string excerpt(std::string_view text) {
  std::string line(beginning(text, kLongestQuotation));
  if (line.size() < text.size()) line += "...";
  std::ranges::replace_if(line, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return line;
}

namespace {

// A longer name is not a typing error, and comparing it would take long.
constexpr std::size_t kLongestName = 100;

std::size_t slip_limit(std::string_view name) { return (name.size() + 1) / 3; }

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// Names that other programs use for Strata's options: letters are not similar, so they are listed.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"gpu", "cuda"},           {"lr", "learning_rate"}, {"batch_size", "mini_batch"},
    {"hidden_size", "width"},  {"n_layer", "layers"},   {"n_head", "heads"},
    {"seq_length", "context"}, {"max_steps", "steps"},  {"wd", "weight_decay"},
    {"float32", "fp32"},       {"bfloat16", "bf16"},    {"float16", "fp16"}};

std::string_view our_word(std::string_view name) {
  for (const auto& [theirs, ours] : kElsewhere)
    if (name == theirs) return ours;
  return name;
}

template <typename Distance>
std::string nearest(const std::vector<std::string>& candidates, std::size_t limit,
                    Distance distance) {
  std::string best;
  std::size_t bound = limit + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t steps = distance(candidate);
    if (steps >= bound) continue;
    bound = steps;
    best = candidate;
  }
  return best;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> steps(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        steps[i][j] = i + j;
        continue;
      }
      steps[i][j] = std::min({steps[i - 1][j] + 1, steps[i][j - 1] + 1,
                              steps[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        steps[i][j] = std::min(steps[i][j], steps[i - 2][j - 2] + 1);
      }
    }
  }
  return steps[a.size()][b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.size() > kLongestName) return "";
  const std::string ours(our_word(name));
  if (std::ranges::find(candidates, ours) != candidates.end()) return ours;
  return nearest(candidates, slip_limit(name),
                 [&](const std::string& candidate) { return edit_distance(name, candidate); });
}

std::string nearest_path(std::string_view path, const std::vector<std::string>& candidates) {
  if (path.size() > kLongestName) return "";
  constexpr std::size_t kStep = 64;  // the sections only decide between equally near names
  const std::string_view typed = last_part(path);
  const std::string_view section = path.substr(0, path.size() - typed.size());
  const auto is_ours = [&](const std::string& candidate) {
    return last_part(candidate) == our_word(typed);
  };
  const std::string_view name = std::ranges::any_of(candidates, is_ours) ? our_word(typed) : typed;
  const std::size_t limit = std::max(slip_limit(name), std::size_t{1});
  return nearest(candidates, limit * kStep + kStep - 1, [&](const std::string& candidate) {
    const std::string_view other = last_part(candidate);
    const std::size_t apart = edit_distance(
        section, std::string_view(candidate).substr(0, candidate.size() - other.size()));
    const std::size_t steps = edit_distance(name, other) + (apart > 0 ? 1 : 0);
    return steps * kStep + std::min(apart, kStep - 1);
  });
}

void check_choice(const std::string& path, const std::string& text,
                  const std::vector<std::string>& choices, const std::string& where) {
  if (std::ranges::find(choices, text) != choices.end()) return;
  std::string names;
  for (const std::string& choice : choices) names += (names.empty() ? "" : ", ") + choice;
  const std::string nearest = nearest_name(text, choices);
  throw UserError({.operation = "base.options",
                   .where = where,
                   .what = quote(text) + " is not a choice of '" + path + "'",
                   .expected = names,
                   .got = quote(text),
                   .fix = nearest.empty() ? "set '" + path + "' to one of these"
                                          : "did you mean '" + nearest + "'?"});
}

}  // namespace strata
