// A resumed run repeats the options of the run before: `--set`, `--metrics` and others. `--from`
// stays, because it says which model the weights belong to.
#include "strata/cli/arguments.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/run/recipe_file.h"
#include "strata/run/training_start.h"

namespace strata {
namespace {

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_-+=./:,@%", c) != nullptr;
}

}  // namespace

ServerAddress tcp_address(const std::string& text, const std::string& option,
                          const std::string& example) {
  const ServerAddress address = parse_server_address(text, FreePort::kYes);
  if (!address.is_socket()) return address;
  throw UserError({.operation = "cli.arguments",
                   .where = option,
                   .what = "the server answers over TCP only",
                   .expected = "HOST:PORT",
                   .got = text,
                   .fix = "pass " + option + ' ' + example});
}

CLI::Validator at_least(double least) {
  return {[least](std::string& text) {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= least) return std::string();
            return "expected a number of at least " + format_double(least, 0) + ", got " + text;
          },
          ""};
}

CLI::Validator between(double least, double most) {
  return {[=](std::string& text) {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most)
              return std::string();
            return "expected a number from " + format_double(least, 0) + " to " +
                   format_double(most, 0) + ", got " + text;
          },
          ""};
}

CLI::Validator seed_number() {
  return {[](std::string& text) {
            std::uint64_t seed = 0;
            const char* const end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, seed);
            if (error == std::errc() && rest == end) return std::string();
            return "expected a whole number from 0 to " +
                   std::to_string(std::numeric_limits<std::uint64_t>::max()) + ", got " + text;
          },
          ""};
}

void RecipeArguments::add_to(CLI::App& verb) {
  verb.add_option("recipe", path, "YAML file that describes the run");
  verb.add_option("--set", overrides, "override a field: --set train.steps=10")
      ->allow_extra_args(false)
      ->type_name("FIELD=VALUE");
  verb.add_option("--model", model,
                  "model of torch.export: task=graph, model.file=FILE; the recipe may be left out")
      ->check(refuse_empty_path)
      ->type_name("FILE");
  verb.parse_complete_callback([this] {
    if (path.empty() && model.empty()) throw CLI::RequiredError("recipe");
  });
}

std::vector<std::string> RecipeArguments::words() const {
  std::vector<std::string> words;
  if (!path.empty()) words.push_back(path);
  if (!model.empty()) words.insert(words.end(), {"--model", model});
  for (const std::string& override : overrides) words.insert(words.end(), {"--set", override});
  return words;
}

std::string RecipeArguments::text() const {
  std::string text;
  for (const std::string& word : words())
    text += (text.empty() ? "" : " ") + (word == path ? path : shell_text({word}));
  return text;
}

Recipe RecipeArguments::load(const RecipeDefaults& defaults) const {
  std::vector<std::string> assignments = overrides;
  if (!model.empty())
    assignments.insert(assignments.begin(), {"task=graph", "model.file=" + model});
  return path.empty() ? parse_recipe("{}", "the empty recipe of --model", assignments, defaults)
                      : load_recipe(path, assignments, defaults);
}

void TrainArguments::add_to(CLI::App& verb) {
  recipe.add_to(verb);
  const auto path = [&](const char* name, const char* what, std::string& value, const char* help) {
    verb.add_option(name, value, help)->check(refuse_empty_path)->type_name(what);
  };
  path("--resume", "CHECKPOINT", resume,
       "resume from this checkpoint, on any mesh, or from the folder of memory.disk.path");
  path("--from", "MODEL", from,
       "take model and first weights from this Hugging Face folder, GGUF file or checkpoint; with "
       "--resume "
       "the model alone");
  path("--metrics", "FILE", metrics, "write a JSON object a step to this file");
  path("--trace", "FILE", trace, "write a Chrome trace of the last steps");
  path("--report", "FILE", report, "write a self-contained HTML report");
  verb.add_option("--target", target,
                  "end the run at a validation of this quality, and exit with 5 if none has it: "
                  "train.target")
      ->type_name("NAME<=VALUE");
  path("--run-json", "FILE", run_json, "write how long the run took and how well it learnt");
  path("--mllog", "FILE", mllog, "write the run's clock as MLCommons' checker reads it");
  verb.add_option("--benchmark", benchmark, "name of the benchmark in that log")->type_name("NAME");
  verb.add_flag("--importance", importance,
                "of a recommender: measure what each feature carries, on the validation samples");
}

Recipe TrainArguments::load() const {
  RecipeArguments with_target = recipe;
  if (!target.empty()) with_target.overrides.push_back("train.target=" + target);
  return with_target.load(training_defaults(resume, from));
}

std::vector<std::string> TrainArguments::resume_command(const std::string& checkpoint) const {
  std::vector<std::string> words = recipe.words();
  words.insert(words.begin(), "train");
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--from", from);
  add("--resume", checkpoint);
  add("--metrics", metrics);
  add("--trace", trace);
  add("--report", report);
  add("--target", target);
  add("--run-json", run_json);
  add("--mllog", mllog);
  if (benchmark != TrainArguments().benchmark) add("--benchmark", benchmark);
  if (importance) words.emplace_back("--importance");
  return words;
}

TrainArguments parse_train_command(const std::vector<std::string>& command) {
  TrainArguments arguments;
  CLI::App verb;
  arguments.add_to(verb);
  // CLI11 parses from the back
  std::vector<std::string> words(command.rbegin(), command.rend() - 1);
  try {
    verb.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    throw UserError({.operation = "cli.arguments",
                     .where = "train",
                     .what = error.what(),
                     .fix = "see strata train --help"});
  }
  return arguments;
}

std::string shell_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

std::string command_text(const std::vector<std::string>& verb) {
  const char* launcher = std::getenv(kLauncherVariable);
  return shell_text({program_invocation_name}) + (launcher ? std::string(" ") + launcher : "") +
         ' ' + shell_text(verb);
}

}  // namespace strata
