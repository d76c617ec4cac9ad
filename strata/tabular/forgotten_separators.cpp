#include "strata/tabular/forgotten_separators.h"

#include <algorithm>
#include <array>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/tabular/column_text.h"

namespace strata {
namespace {

constexpr std::int64_t kSamples = 1000;
// A list may have blanks after its separators, so the blank comes last.
constexpr std::string_view kSeparators = "|;, ";

// The separators inside the texts of one feature.
struct ListTexts {
  std::size_t feature = 0;
  int column = 0;
  std::int64_t texts = 0;  // texts that are not empty
  std::array<std::int64_t, kSeparators.size()> with{};
  std::string example{};

  void add(std::string_view text) {
    text = trim_blanks(text);
    if (text.empty()) return;
    ++texts;
    for (std::size_t i = 0; i < kSeparators.size(); ++i) {
      if (text.find(kSeparators[i]) == std::string_view::npos) continue;
      ++with[i];
      if (example.empty()) example = quote(text);
    }
  }

  // The separator that most texts contain; 0: none.
  char separator() const {
    const auto most = std::ranges::max_element(with);
    return 2 * *most > texts ? kSeparators[static_cast<std::size_t>(most - with.begin())] : '\0';
  }
};

bool makes_ids_of_any_text(const CategoricalOptions& feature) {
  return feature.separator.empty() &&
         (feature.ids == IdSource::kHash || feature.ids == IdSource::kVocabulary);
}

bool asks_for_several(const CategoricalOptions& feature) {
  return feature.pool != Pooling::kSum || feature.last > 0;
}

std::string fix_of(const ListTexts& texts) {
  return "set separator: '" + std::string(1, texts.separator()) + "'";
}

[[noreturn]] void refuse(const CategoricalOptions& feature, const ListTexts& texts) {
  const bool by_pool = feature.pool != Pooling::kSum;
  throw UserError({.operation = "tabular.open",
                   .where = "data.categorical, feature " + quote(feature.name),
                   .what = "without a separator each list of ids would be one id, and " +
                           (by_pool ? "pool: " + std::string(name_of(feature.pool))
                                    : "last: " + std::to_string(feature.last)) +
                           " needs several ids",
                   .expected = "a separator",
                   .got = "texts such as " + texts.example,
                   .fix = fix_of(texts)});
}

}  // namespace

std::vector<std::string> forgotten_separators(const TabularOptions& options, const SampleFile& file,
                                              std::int64_t count) {
  std::vector<ListTexts> features;
  for (std::size_t i = 0; i < options.categorical.size(); ++i)
    if (makes_ids_of_any_text(options.categorical[i]))
      features.push_back({.feature = i, .column = file.column(options.categorical[i].source())});
  SampleText text;
  for (std::int64_t sample = 0; sample < std::min(count, kSamples) && !features.empty(); ++sample) {
    file.read(sample, text);
    for (ListTexts& of : features) of.add(text.fields[static_cast<std::size_t>(of.column)]);
  }
  std::vector<std::string> notices;
  for (const ListTexts& texts : features) {
    if (texts.separator() == '\0') continue;
    const CategoricalOptions& feature = options.categorical[texts.feature];
    if (asks_for_several(feature)) refuse(feature, texts);
    notices.push_back("feature " + quote(feature.name) +
                      " makes one id of a whole text, and most look "
                      "like lists, such as " +
                      texts.example + "; if they are, " + fix_of(texts));
  }
  return notices;
}

}  // namespace strata
