// The recipe's other sections belong to other components: here they are parsed as text and ignored.
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/cli/arguments.h"
#include "strata/cli/recommender/verbs.h"
#include "strata/tabular/loader.h"
#include "strata/tabular/log_conversion.h"
#include "strata/tabular/sample_check.h"

namespace strata {
namespace {

struct ConvertArguments {
  std::string from, to;
  std::vector<std::string> overrides;
  bool validation = false;
};

constexpr std::int64_t kBayesSamples = 1'000'000;

// No recipe names the log, so the error names no field of a recipe.
void require_log(const std::string& path) {
  std::error_code none;
  const bool folder = std::filesystem::is_directory(path, none);
  if (!folder && std::filesystem::exists(path, none)) return;
  throw UserError({.operation = "cli.convert",
                   .where = path,
                   .what = folder ? "a folder is no log of samples" : "there is no such file",
                   .expected = "a log (csv, tsv, criteo, libsvm, records), or a recipe",
                   .got = folder ? "a folder" : "nothing",
                   .fix = folder ? "name a file; checkpoints are Hugging Face folders as they are"
                                 : "name an existing file"});
}

// The data options of a recipe, or of the log alone, with the values of --set.
TabularOptions data_options(const ConvertArguments& arguments) {
  TabularOptions options;
  OptionSet set;
  describe(set, "data", options);
  const bool recipe = arguments.from.ends_with(".yaml");
  if (recipe) {
    std::array<YamlSection, 5> others;
    const char* const names[] = {"model", "embedding", "train", "mesh", "memory"};
    for (std::size_t i = 0; i < others.size(); ++i)
      set.add(names[i], &others[i], {.help = "Of the recipe."});
    std::string tokenizer;  // only recipes for text have one
    set.add("data.tokenizer", &tokenizer, {.help = "Of a recipe of text."});
    const FileUse use{.operation = "cli.convert", .fix = "name a recipe or a log of samples"};
    set.load_yaml(read_file(arguments.from, use, std::uint64_t{1} << 20), arguments.from);
    if (set.is_set("data.tokenizer"))
      throw UserError({.operation = "cli.convert",
                       .where = set.where("data.tokenizer"),
                       .what = "this recipe trains on text, which needs no conversion",
                       .expected = "a recommender's recipe",
                       .got = "data.tokenizer",
                       .fix = "name a log of samples, or a recipe such as recipes/clicks.yaml"});
    for (const std::string& assignment : arguments.overrides) set.set(assignment);
    check(options, "data", [&](const std::string& path) {
      return set.is_set(path) ? set.where(path) : arguments.from;
    });
    return options;
  }
  require_log(arguments.from);
  for (const std::string& assignment : arguments.overrides) set.set(assignment);
  options.train = arguments.from;
  return options;
}

void print_bayes(const SyntheticClicks& clicks, std::int64_t first, std::int64_t count) {
  const std::int64_t some = std::min(count, kBayesSamples);
  const BayesQuality best = clicks.bayes(first, some);
  std::cout << "best AUC   " << format_double(best.auc, 5) << ", log loss "
            << format_double(best.log_loss, 5) << ", normalised entropy "
            << format_double(best.normalized_entropy, 5) << " of the first "
            << format_count(static_cast<double>(some)) << '\n';
}

void run_convert(const ConvertArguments& arguments) {
  TabularOptions options = data_options(arguments);
  options.memory = {};  // samples are read once, in order
  const bool synthetic = options.format == SampleFormat::kSynthetic;
  const bool other_file = arguments.validation && !synthetic;
  if (other_file && options.validation.empty()) {
    throw UserError({.operation = "cli.convert",
                     .where = arguments.from,
                     .what = "data.validation names no file",
                     .expected = "a recipe with a file to validate on",
                     .got = "none",
                     .fix = "leave out --validation, or set data.validation"});
  }
  // With a recipe, refuses what its run would refuse; with a log alone, it is unknown which columns
  // are numbers or labels.
  const std::string& path = other_file ? options.validation : options.train;
  const auto from = arguments.from.ends_with(".yaml")
                        ? open_checked_samples(path, complete(options))
                        : open_samples(path, options);
  std::int64_t first = 0, count = from->samples();
  if (synthetic) {
    first = arguments.validation ? options.synthetic.samples : 0;
    count = arguments.validation ? options.synthetic.validation_samples : options.synthetic.samples;
    if (count == 0)
      throw UserError({.operation = "cli.convert",
                       .where = arguments.from,
                       .what = "data.synthetic.validation_samples is 0",
                       .expected = "samples to validate on",
                       .got = "none",
                       .fix = "leave out --validation, or set data.synthetic.validation_samples"});
  }
  write_samples(*from, first, count, arguments.to);
  std::cout << arguments.to << ": " << format_count(static_cast<double>(count)) << " samples of "
            << from->columns().size() << " columns, "
            << format_bytes(static_cast<std::int64_t>(std::filesystem::file_size(arguments.to)))
            << '\n';
  if (const auto* clicks = dynamic_cast<const SyntheticClicks*>(from.get()))
    print_bayes(*clicks, first, count);
}

}  // namespace

void add_convert_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("convert", "write a log of samples as Strata's records, or as CSV or TSV");
  auto arguments = std::make_shared<ConvertArguments>();
  verb->add_option("from", arguments->from,
                   "a log (csv, tsv, criteo, libsvm, records), or a recipe: its data.train")
      ->required()
      ->check(refuse_empty_path);
  verb->add_option("to", arguments->to, "the file to write: .strata, .csv or .tsv")
      ->required()
      ->check(refuse_empty_path);
  verb->add_option("--set", arguments->overrides,
                   "set a field of the data, such as data.format=criteo or data.header=false")
      ->allow_extra_args(false)
      ->type_name("FIELD=VALUE");
  verb->add_flag("--validation", arguments->validation, "of a recipe: the samples to validate on");
  verb->callback([arguments] { run_convert(*arguments); });
}

}  // namespace strata
