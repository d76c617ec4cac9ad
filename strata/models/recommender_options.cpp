#include "strata/models/recommender_options.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "strata/base/enum_names.h"
#include "strata/base/error_source.h"
#include "strata/base/units.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

constexpr double kMostHidden = 1 << 24, kMostCrosses = 1 << 10;

constexpr ErrorSource kRecommenderErrors{"models.recommender"};

std::string text_of(const std::vector<std::int64_t>& widths) {
  std::string text;
  for (const std::int64_t width : widths)
    text += (text.empty() ? "" : ", ") + std::to_string(width);
  return excerpt("[" + text + "]");
}

// Refuses a field that the kind does not use.
void only_for(bool is_set, const RecommenderOptions& options, const std::string& field,
              const std::string& expected) {
  if (is_set)
    throw kRecommenderErrors.user(
        "model." + field, std::string("a field that a ") + name_of(options.kind) + " doesn't have",
        expected, "a value", "leave it out, or choose another model.kind");
}

// A list of them: `[64, 16]`.
void add_widths(OptionSet& set, const std::string& path, std::vector<std::int64_t>* target,
                const std::string& help) {
  const FieldInfo of_element{
      .help = help, .unit = "elements", .minimum = 1, .maximum = kMostHidden};
  const auto fresh = std::make_shared<std::int64_t>(1);
  set.add(path,
          OptionList{
              .size = [=] { return target->size(); },
              .resize = [=](std::size_t count) { target->resize(count, *fresh); },
              .describe = [=](OptionSet& elements, const std::string& element,
                              std::size_t i) { elements.add(element, &(*target)[i], of_element); },
              .describe_new =
                  [=](OptionSet& elements, const std::string& element) {
                    elements.add(element, fresh.get(), of_element);
                  },
              .shorthand = ""},
          {.help = help, .unit = "elements"});
}

void choose(RecommenderOptions& options, Interaction first, Interaction second) {
  if (options.interaction == Interaction::kDefault) options.interaction = first;
  if (options.interaction != first && options.interaction != second)
    throw kRecommenderErrors.user(
        "model.interaction",
        std::string("an interaction that a ") + name_of(options.kind) + " doesn't have",
        std::string(name_of(first)) + " or " + name_of(second), name_of(options.interaction),
        std::string("set model.interaction to ") + name_of(first));
}

void complete_dlrm(RecommenderOptions& options, const RecommenderInputs& inputs) {
  choose(options, Interaction::kDot, Interaction::kCat);
  const std::int64_t width = *std::min_element(inputs.row_widths.begin(), inputs.row_widths.end());
  if (inputs.numeric == 0 && !options.bottom.empty())
    throw kRecommenderErrors.user("model.bottom", "layers of numbers without numeric features",
                                  "[]", text_of(options.bottom), "set model.bottom to []");
  if (inputs.numeric > 0 && options.bottom.empty()) options.bottom = {width};
  if (options.interaction != Interaction::kDot) return;
  const bool own = inputs.numeric > 0 && options.bottom.back() != width;
  const bool others = std::ranges::any_of(inputs.row_widths,
                                          [&](std::int64_t other) { return other % width != 0; });
  if (own || others)
    throw kRecommenderErrors.user(
        "model.interaction", "products of vectors of different widths",
        "features whose width is that of the last layer of model.bottom",
        "features " + text_of(inputs.row_widths) + ", bottom " + text_of(options.bottom),
        "give all features the width " + std::to_string(width) +
            " and end model.bottom with it, or set model.interaction to cat");
  if (inputs.numeric == 0 && inputs.rows() == width)
    throw kRecommenderErrors.user("model.interaction", "a single vector has no pair",
                                  "two features", text_of(inputs.row_widths),
                                  "set model.interaction to cat");
  const double vectors = static_cast<double>(inputs.rows() / width) + (inputs.numeric > 0 ? 1 : 0);
  if (const double products = vectors * (vectors - 1) / 2; products > kMostHidden)
    throw kRecommenderErrors.user("model.interaction", "more products of pairs than a layer reads",
                                  "at most " + format_count(kMostHidden), format_count(products),
                                  "set model.interaction to cat");
}

void complete_deep_wide(RecommenderOptions& options, const RecommenderInputs& inputs) {
  only_for(options.interaction != Interaction::kDefault, options, "interaction", "default");
  const bool numbers = inputs.numeric > 0;
  if (options.bottom.empty())
    options.bottom = numbers ? std::vector<std::int64_t>{16, 128} : std::vector<std::int64_t>{128};
  if (options.bottom.size() != (numbers ? 2u : 1u))
    throw kRecommenderErrors.user(
        "model.bottom", "not one layer for each kind of input",
        numbers ? "two widths: of the numbers' and of the rows' layer"
                : "one width: there are no numeric features",
        text_of(options.bottom),
        numbers ? "set model.bottom to [16, 128]" : "set model.bottom to [128]");
}

}  // namespace

const char* name_of(RecommenderKind kind) {
  using enum RecommenderKind;
  static constexpr EnumNames<RecommenderKind> kNames{
      {kDlrm, "dlrm"}, {kDcn, "dcn"}, {kDeepWide, "deep_wide"}};
  return kNames[kind];
}

const char* name_of(Interaction interaction) {
  using enum Interaction;
  static constexpr EnumNames<Interaction> kNames{{kDefault, "default"},
                                                 {kDot, "dot"},
                                                 {kCat, "cat"},
                                                 {kStacked, "stacked"},
                                                 {kParallel, "parallel"}};
  return kNames[interaction];
}

const char* name_of(BatchNormPlace place) {
  using enum BatchNormPlace;
  static constexpr EnumNames<BatchNormPlace> kNames{
      {kNone, "none"}, {kBottom, "bottom"}, {kAll, "all"}};
  return kNames[place];
}

const char* name_of(HiddenActivation activation) {
  using enum HiddenActivation;
  static constexpr EnumNames<HiddenActivation> kNames{{kNone, "none"}, {kRelu, "relu"}};
  return kNames[activation];
}

std::int64_t RecommenderInputs::rows() const {
  return std::accumulate(row_widths.begin(), row_widths.end(), std::int64_t{0});
}

void describe(OptionSet& set, const std::string& prefix, RecommenderOptions& options) {
  set.add(prefix + ".kind", &options.kind, all_named<RecommenderKind>(),
          {.help = "Net after the embeddings; dcn is DCN-v2."});
  add_widths(set, prefix + ".bottom", &options.bottom,
             "Widths: of dlrm's layers of numbers, of what deep_wide brings numbers and rows to.");
  add_widths(set, prefix + ".top", &options.top, "Widths of the hidden layers before the score.");
  set.add(prefix + ".interaction", &options.interaction, all_named<Interaction>(),
          {.help = "How features meet; dlrm: dot or cat, dcn: stacked or parallel, default: the "
                   "first of them."});
  set.add(prefix + ".cross_layers", &options.cross_layers,
          {.help = "dcn: crosses with the input.",
           .unit = "layers",
           .minimum = 1,
           .maximum = kMostCrosses});
  set.add(prefix + ".rank", &options.rank,
          {.help = "dcn: rank of the crosses' matrices; 0: full.",
           .unit = "elements",
           .minimum = 0,
           .maximum = kMostHidden});
  set.add(prefix + ".dropout", &options.dropout,
          {.help = "Share of activations dropped after each hidden layer.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 0.99});
  set.add(prefix + ".batch_norm", &options.batch_norm, all_named<BatchNormPlace>(),
          {.help = "Which hidden layers normalise their products over the micro-batch."});
  set.add(prefix + ".activation", &options.activation,
          named({HiddenActivation::kRelu, HiddenActivation::kNone}), {.help = "Of hidden layers."});
  set.add(prefix + ".wide", &options.wide,
          {.help = "deep_wide: adds a linear map of all inputs to the score."});
}

namespace {

void check_inputs(const RecommenderInputs& inputs) {
  if (inputs.row_widths.empty())
    throw kRecommenderErrors.user("model.kind", "a recommender without categorical features",
                                  "at least one", "none", "give data.categorical");
  if (std::ranges::any_of(inputs.row_widths, [](std::int64_t width) { return width < 1; }))
    throw kRecommenderErrors.user(
        "model.kind", "a feature whose rows have no elements", "widths of at least 1",
        text_of(inputs.row_widths),
        "give the feature a width, and `last` where its pool is sequence");
  double all = static_cast<double>(inputs.numeric);
  for (const std::int64_t width : inputs.row_widths) all += static_cast<double>(width);
  if (all > kMostHidden)
    throw kRecommenderErrors.user(
        "model.kind", "a sample has more numbers and elements of rows than a layer reads",
        "at most " + format_count(kMostHidden), format_count(all),
        "lower data.categorical's `width`, or `last` where the pool is sequence");
}

}  // namespace

RecommenderOptions completed(RecommenderOptions options, const RecommenderInputs& inputs) {
  check_inputs(inputs);
  for (const auto& [field, widths] :
       {std::pair("bottom", &options.bottom), std::pair("top", &options.top)})
    if (std::ranges::any_of(*widths, [](std::int64_t width) { return width < 1; }))
      throw kRecommenderErrors.user(std::string("model.") + field, "a layer without elements",
                                    "widths of at least 1", text_of(*widths), "raise or remove it");
  const RecommenderOptions defaults;
  const bool dcn = options.kind == RecommenderKind::kDcn;
  only_for(!dcn && options.cross_layers != defaults.cross_layers, options, "cross_layers",
           std::to_string(defaults.cross_layers));
  only_for(!dcn && options.rank != 0, options, "rank", "0");
  only_for(options.kind != RecommenderKind::kDeepWide && !options.wide, options, "wide", "true");
  switch (options.kind) {
    case RecommenderKind::kDlrm:
      complete_dlrm(options, inputs);
      break;
    case RecommenderKind::kDcn:
      only_for(!options.bottom.empty(), options, "bottom", "[]");
      choose(options, Interaction::kStacked, Interaction::kParallel);
      break;
    case RecommenderKind::kDeepWide:
      complete_deep_wide(options, inputs);
      break;
  }
  return options;
}

}  // namespace strata
