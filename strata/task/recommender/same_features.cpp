// Compares parsed values, and reports the differing fields of the two effective recipes as they are
// written.
#include "strata/task/recommender/same_features.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/option_changes.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

// The member of a list element: "width" for "data.categorical[3].width".
std::string_view member_of(std::string_view path) {
  const std::size_t end = path.find("].");
  return end == std::string_view::npos ? "" : path.substr(end + 2);
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view each) {
    return name == each || (name.starts_with(each) && name[each.size()] == '.');
  });
}

// Whether rows, the width of the net's inputs or the preprocessing depend on the field.
bool makes_features(const std::string& path) {
  if (path == "train.seed" || path == "data.numeric" || path == "data.categorical") return true;
  if (path.starts_with("data.numeric["))
    return is_one_of(member_of(path), {"name", "transform", "buckets"});
  if (path.starts_with("data.categorical["))
    return is_one_of(member_of(path),
                     {"name", "width", "pool", "last", "ids", "buckets", "embedding"});
  return is_one_of(path, {"embedding.init", "embedding.optimizer", "embedding.precision",
                          "embedding.admission", "embedding.eviction"});
}

// For lists of different lengths: the names of their elements.
std::string names_text(const std::string& path, const TabularOptions& data) {
  std::string names;
  const auto add = [&](const auto& features) {
    for (const auto& feature : features) names += (names.empty() ? "" : ", ") + feature.name;
  };
  path == "data.numeric" ? add(data.numeric) : add(data.categorical);
  return path + " of " + (names.empty() ? "nothing" : excerpt(names));
}

std::string text_of(const std::string& path, const std::string& value,
                    const RecommenderFields& fields) {
  if (path == "data.numeric" || path == "data.categorical") return names_text(path, fields.data);
  return path + "=" + excerpt(value);
}

bool have_same_features(const TrainedFeatures& one, const TrainedFeatures& other) {
  const auto fingerprint = [](const TrainedFeatures& trained) {
    return fingerprint_of(worker_options(trained.fields).tables,
                          static_cast<std::uint64_t>(trained.recipe.train.seed));
  };
  const auto transforms = [](const TrainedFeatures& trained) {
    const TabularOptions data = complete(trained.fields.data);
    std::string all;
    for (const NumericOptions& of : data.numeric)
      all += of.name + '\n' + name_of(of.transform) + '\n' + std::to_string(of.buckets) + '\n';
    for (const CategoricalOptions& of : data.categorical)
      all += of.name + '\n' + name_of(of.ids) + '\n' + std::to_string(of.buckets) + '\n';
    return all;
  };
  return fingerprint(one) == fingerprint(other) && transforms(one) == transforms(other) &&
         inputs_of(one.fields) == inputs_of(other.fields);
}

}  // namespace

void require_same_features(const TrainedFeatures& now, const TrainedFeatures& before,
                           const std::string& path) {
  if (have_same_features(before, now)) return;
  std::vector<OptionChange> changes = changed_options(before.recipe.text, now.recipe.text);
  std::erase_if(changes, [](const OptionChange& change) { return !makes_features(change.path); });
  if (changes.empty()) return;
  std::string expected, got;
  for (const OptionChange& change : changes) {
    expected += (expected.empty() ? "" : ", ") + text_of(change.path, change.before, before.fields);
    got += (got.empty() ? "" : ", ") + text_of(change.path, change.now, now.fields);
  }
  const bool one = changes.size() == 1 && changes.front().path.find('[') == std::string::npos &&
                   !changes.front().path.starts_with("data.");
  throw UserError({.operation = "task.resume",
                   .where = path,
                   .what = "its rows and features were trained with another " +
                           (changes.size() == 1 ? changes.front().path : "recipe"),
                   .expected = expected,
                   .got = got,
                   .fix = one ? "set " + expected : "set what is expected, as it was"});
}

}  // namespace strata
