#include "strata/tokenizer/split.h"

#include <map>
#include <string>

namespace strata {
namespace {

// Source: `ByteLevel` of the `tokenizers` library, there since GPT-2.
constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Whether a part stays together with the part in front of it.
bool joins(Behavior behavior, bool previous_matches, bool matches) {
  switch (behavior) {
    case Behavior::kMergedWithPrevious:
      return matches && !previous_matches;
    case Behavior::kMergedWithNext:
      return !matches && previous_matches;
    case Behavior::kContiguous:
      return matches == previous_matches;
    default:
      return false;
  }
}

struct Split {
  Pattern pattern;
  Behavior behavior = Behavior::kIsolated;
  bool invert = false;

  void operator()(const Word& text, const WordSink& sink) const {
    std::string_view pending;
    bool previous = false;
    const auto flush = [&] {
      if (!pending.empty()) sink({pending, text.first && pending.data() == text.text.data()});
    };
    pattern.split(text.text, [&](std::string_view part, bool matches) {
      matches ^= invert;
      if (!pending.empty() && joins(behavior, previous, matches)) {
        pending = {pending.data(), pending.size() + part.size()};
      } else {
        flush();
        const bool removed = behavior == Behavior::kRemoved && matches;
        pending = removed ? std::string_view() : part;
      }
      previous = matches;
    });
    flush();
  }
};

Behavior read_behavior(const JsonPart& behavior) {
  static const std::map<std::string, Behavior> kBehaviors = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  const auto found = kBehaviors.find(behavior.text());
  if (found == kBehaviors.end()) behavior.refuse("a behaviour of Split", behavior.text());
  return found->second;
}

Pattern regex(const std::string& text) { return {text, Pattern::Kind::kRegex, text}; }

// Spaces become a visible character, with one in front of the text.
struct Metaspace {
  Pattern space{" ", Pattern::Kind::kLiteral, "Metaspace"};
  std::string replacement;
  std::string scheme;

  void operator()(const Word& text, const WordSink& sink) const {
    std::string replaced = space.replace(text.text, replacement);
    const bool prepend = scheme == "always" || (scheme == "first" && text.first);
    if (prepend && !replaced.starts_with(replacement)) replaced.insert(0, replacement);
    sink({replaced, text.first});
  }
};

void prepend_space(const Word& text, const WordSink& sink) {
  if (text.text.starts_with(' ')) return sink(text);
  const std::string longer = " " + std::string(text.text);
  sink({longer, text.first});
}

}  // namespace

PreTokenizer::PreTokenizer(const JsonPart& pre_tokenizer) {
  for (const JsonPart& step : steps_of(pre_tokenizer, "pretokenizers")) {
    const std::string type = type_of(step);
    if (byte_level_) step.refuse("no step behind ByteLevel", type);
    if (type == "ByteLevel") {
      byte_level_ = true;
      if (step.flag("add_prefix_space", true)) steps_.emplace_back(prepend_space);
      if (step.flag("use_regex", true)) steps_.emplace_back(Split{regex(kGpt2Words)});
    } else if (type == "Split") {
      steps_.emplace_back(Split{pattern_of(step.member("pattern")),
                                read_behavior(step.member("behavior")),
                                step.flag("invert", false)});
    } else if (type == "Digits") {
      steps_.emplace_back(
          Split{regex(step.flag("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)")});
    } else if (type == "Metaspace") {
      const std::string replacement = step.text("replacement", "▁");
      const bool always = step.flag("add_prefix_space", true);
      steps_.emplace_back(
          Metaspace{.replacement = replacement,
                    .scheme = step.text("prepend_scheme", always ? "always" : "never")});
      if (step.flag("split", true)) {
        steps_.emplace_back(
            Split{{replacement, Pattern::Kind::kLiteral, "Metaspace"}, Behavior::kMergedWithNext});
      }
    } else {
      step.refuse("Sequence, ByteLevel, Split, Digits or Metaspace", type);
    }
  }
}

void PreTokenizer::run(std::size_t step, const Word& text, const WordSink& sink) const {
  if (text.text.empty()) return;
  if (step == steps_.size()) return sink(text);
  steps_[step](text, [&](const Word& word) { run(step + 1, word, sink); });
}

}  // namespace strata
