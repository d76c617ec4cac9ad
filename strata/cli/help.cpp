#include "strata/cli/help.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace strata {
namespace {

constexpr std::size_t kColumn = 30;  // where descriptions begin
constexpr std::size_t kWidth = 100;

// A name that is too long for its column has its own line.
std::string entry(const std::string& name, const std::string& sentence) {
  std::string text = "  " + name;
  std::size_t column = text.size();
  const auto begin_line = [&] {
    text += '\n' + std::string(kColumn, ' ');
    column = kColumn;
  };
  if (column + 2 > kColumn) {
    begin_line();
  } else {
    text.append(kColumn - column, ' ');
    column = kColumn;
  }
  std::istringstream words(sentence);
  for (std::string word; words >> word;) {
    if (column > kColumn && column + 1 + word.size() > kWidth) begin_line();
    if (column > kColumn) text += ' ', ++column;
    text += word;
    column += word.size();
  }
  return text + '\n';
}

}  // namespace

HelpFormatter::HelpFormatter() {
  label("SUBCOMMAND", "VERB");
  label("Positionals", "Arguments");
}

// A verb that starts another verb takes the other's words after its own options.
std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  std::string usage = CLI::Formatter::make_usage(app, std::move(name));
  if (app->get_prefix_command()) usage.insert(usage.size() - 1, " VERB ...");
  return usage;
}

std::string HelpFormatter::make_subcommand(const CLI::App* verb) const {
  return entry(verb->get_name(), verb->get_description());
}

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool is_positional) const {
  std::string name = CLI::Formatter::make_option_name(option, is_positional);
  if (is_positional)
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string name = make_option_name(option, is_positional);
  if (!is_positional && option->get_type_size() != 0) name += " " + option->get_type_name();
  if (option->get_allow_extra_args()) name += " ...";
  const std::string& standard = option->get_default_str();
  return entry(
      name, option->get_description() + (standard.empty() ? "" : " [default: " + standard + "]"));
}

}  // namespace strata
