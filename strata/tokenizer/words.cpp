// A step passes each word to the next step immediately, because the bytes of a rewritten word are
// valid only during that call. White space that an added token includes is searched by characters
// instead of bytes.
#include "strata/tokenizer/words.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "strata/base/enum_names.h"
#include "strata/base/utf8.h"

namespace strata {
namespace {

// Source: `ByteLevel` of the `tokenizers` library, there since GPT-2.
constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Whether a part is joined to the previous part.
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

struct SplitStep {
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

const char* name_of(Behavior behavior) {
  using enum Behavior;
  static constexpr EnumNames<Behavior> kNames{{kRemoved, "Removed"},
                                              {kIsolated, "Isolated"},
                                              {kMergedWithPrevious, "MergedWithPrevious"},
                                              {kMergedWithNext, "MergedWithNext"},
                                              {kContiguous, "Contiguous"}};
  return kNames[behavior];
}

Behavior read_behavior(const JsonPart& behavior) {
  const std::optional<Behavior> value = value_named<Behavior>(behavior.text());
  if (!value) behavior.refuse("a behaviour of Split", behavior.text());
  return *value;
}

Pattern regex(const std::string& text) { return {text, Pattern::Kind::kRegex, text}; }

// Spaces become a visible character, with one before the text.
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
    if (byte_level_) step.refuse("no step after ByteLevel", type);
    if (type == "ByteLevel") {
      byte_level_ = true;
      if (step.flag("add_prefix_space", true)) steps_.emplace_back(prepend_space);
      if (step.flag("use_regex", true)) steps_.emplace_back(SplitStep{regex(kGpt2Words)});
    } else if (type == "Split") {
      steps_.emplace_back(SplitStep{pattern_of(step.member("pattern")),
                                    read_behavior(step.member("behavior")),
                                    step.flag("invert", false)});
    } else if (type == "Digits") {
      steps_.emplace_back(
          SplitStep{regex(step.flag("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)")});
    } else if (type == "Metaspace") {
      const std::string replacement = step.text("replacement", "▁");
      const bool always = step.flag("add_prefix_space", true);
      steps_.emplace_back(
          Metaspace{.replacement = replacement,
                    .scheme = step.text("prepend_scheme", always ? "always" : "never")});
      if (step.flag("split", true)) {
        steps_.emplace_back(SplitStep{{replacement, Pattern::Kind::kLiteral, "Metaspace"},
                                      Behavior::kMergedWithNext});
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

namespace {

TextStep unicode_form(utf8proc_option_t options) {
  return [options](std::string_view text) {
    std::string result;
    for_each_run(text, [&](std::string_view run, bool utf8) {
      utf8proc_uint8_t* form = nullptr;
      utf8proc_ssize_t size = -1;
      if (utf8) {
        size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(run.data()),
                            static_cast<utf8proc_ssize_t>(run.size()), &form, options);
      }
      const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(form, std::free);
      if (size >= 0) run = {reinterpret_cast<const char*>(form), static_cast<std::size_t>(size)};
      result += run;
    });
    return result;
  };
}

TextStep read_step(const JsonPart& step) {
  const std::string type = type_of(step);
  if (type == "Prepend") {
    return [front = step.member("prepend").text()](std::string_view text) {
      return text.empty() ? std::string() : front + std::string(text);
    };
  }
  if (type == "Replace") {
    return [pattern = pattern_of(step.member("pattern")), content = step.member("content").text()](
               std::string_view text) { return pattern.replace(text, content); };
  }
  if (type == "NFC")
    return unicode_form(static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (type == "NFKC") {
    return unicode_form(
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT));
  }
  step.refuse("Sequence, Prepend, Replace, NFC or NFKC", type);
}

}  // namespace

std::vector<TextStep> read_normalizer(const JsonPart& normalizer) {
  std::vector<TextStep> steps;
  for (const JsonPart& step : steps_of(normalizer, "normalizers")) steps.push_back(read_step(step));
  return steps;
}

namespace {

std::size_t white_space_in_front(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const std::size_t next = character_bytes(text.substr(bytes));
    if (next == 0 || !is_white_space(first_character(text.substr(bytes)))) break;
    bytes += next;
  }
  return bytes;
}

std::size_t trailing_white_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (text[begin] & 0xC0) == 0x80) --begin;
    const std::string_view last = text.substr(begin, end - begin);
    if (character_bytes(last) != last.size() || !is_white_space(first_character(last))) break;
    end = begin;
  }
  return text.size() - end;
}

}  // namespace

void AddedTokens::add(AddedToken token) {
  if (token.content.empty()) return;
  std::vector<AddedToken>& tokens = by_first_byte_[static_cast<unsigned char>(token.content[0])];
  const auto shorter = std::find_if(tokens.begin(), tokens.end(), [&](const AddedToken& other) {
    return other.content.size() < token.content.size();
  });
  tokens.insert(shorter, std::move(token));
}

const AddedToken* AddedTokens::at_front(std::string_view text) const {
  for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[0])])
    if (text.starts_with(token.content)) return &token;
  return nullptr;
}

void AddedTokens::split(std::string_view text,
                        const std::function<void(const AddedSplit&)>& part) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = at_front(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::string_view before = text.substr(done, at - done);
    if (token->takes_left) before.remove_suffix(trailing_white_space(before));
    if (!before.empty()) part({before});
    at += token->content.size();
    if (token->takes_right) at += white_space_in_front(text.substr(at));
    part({.token = token});
    done = at;
  }
  if (done < text.size()) part({text.substr(done)});
}

}  // namespace strata
