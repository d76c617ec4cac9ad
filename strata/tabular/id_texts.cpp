#include "strata/tabular/id_texts.h"

#include <unordered_set>

#include "strata/base/user_text.h"

namespace strata {
namespace {

constexpr std::size_t kLongestText = 256;

// One pass over the texts of hashed features.
class HashedTexts {
 public:
  HashedTexts(const SampleReader& reader, const Preprocessing& preprocessing,
              std::vector<IdTexts>& found)
      : reader_(reader), preprocessing_(preprocessing), found_(found) {}

  void want(std::size_t feature, const std::vector<std::uint64_t>& ids) {
    if (ids.empty()) return;
    features_.push_back({feature, {ids.begin(), ids.end()}});
  }

  void run() {
    const SampleFile& file = reader_.file();
    SampleText text;
    for (std::int64_t sample = 0; sample < file.samples() && !features_.empty(); ++sample) {
      file.read(sample, text);
      std::erase_if(features_, [&](Wanted& wanted) {
        look(wanted, text);
        return wanted.ids.empty();
      });
    }
  }

 private:
  struct Wanted {
    std::size_t feature;
    std::unordered_set<std::uint64_t> ids;
  };

  void look(Wanted& wanted, const SampleText& text) {
    const int column = reader_.categorical_column(wanted.feature);
    const std::string_view whole = text.fields[static_cast<std::size_t>(column)];
    for (const std::string_view part : preprocessing_.texts_of(wanted.feature, whole)) {
      const std::optional<std::uint64_t> id = preprocessing_.id_of(wanted.feature, part);
      if (id && wanted.ids.erase(*id) > 0)
        found_[wanted.feature].emplace(*id, beginning(part, kLongestText));
    }
  }

  const SampleReader& reader_;
  const Preprocessing& preprocessing_;
  std::vector<IdTexts>& found_;
  std::vector<Wanted> features_;
};

}  // namespace

std::vector<IdTexts> texts_of_ids(const SampleReader& reader, const Preprocessing& preprocessing,
                                  const std::vector<std::vector<std::uint64_t>>& wanted) {
  std::vector<IdTexts> found(wanted.size());
  HashedTexts hashed(reader, preprocessing, found);
  for (std::size_t feature = 0; feature < wanted.size(); ++feature) {
    if (preprocessing.options().categorical[feature].ids == IdSource::kHash)
      hashed.want(feature, wanted[feature]);
    for (const std::uint64_t id : wanted[feature])
      if (const auto text = preprocessing.vocabulary_text(feature, id))
        found[feature].emplace(id, *text);
  }
  hashed.run();
  return found;
}

}  // namespace strata
