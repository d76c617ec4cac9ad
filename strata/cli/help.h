/// Writes what `strata VERB --help` prints: names, placeholders of values, and a sentence with the
/// default, wrapped to a terminal's width.
///
/// A placeholder is the option's type_name(): COUNT, FILE, NAME. The sentence alone states choices
/// and options that belong together.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace strata {

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_subcommand(const CLI::App* verb) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace strata
