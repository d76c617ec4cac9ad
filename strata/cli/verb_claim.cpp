#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "strata/base/durable_file.h"
#include "strata/claim/claim_text.h"
#include "strata/claim/claims.h"
#include "strata/cli/arguments.h"
#include "strata/cli/verbs.h"

namespace strata {
namespace {

struct ClaimArguments {
  std::string name;  // empty: list the claims
  std::string html, json;
};

void run_claim(const ClaimArguments& arguments) {
  if (arguments.name.empty()) {
    std::cout << claim_list() << "\nstrata claim NAME prints one of them, strata claim all each.\n";
    return;
  }
  if (!arguments.html.empty()) require_writable_file(arguments.html, "--html");
  if (!arguments.json.empty()) require_writable_file(arguments.json, "--json");
  const std::vector<Claim> claims = make_claims(arguments.name);
  for (const Claim& claim : claims) std::cout << text_of(claim) << '\n';
  std::cout << summary_of(claims) << '\n';
  if (!arguments.html.empty()) write_file(arguments.html, claims_page(claims));
  if (!arguments.json.empty()) write_file(arguments.json, claims_json(claims));
  const int status = exit_status(claims);
  if (status == 0) return;
  require_output();
  throw CLI::RuntimeError(status);
}

}  // namespace

void add_claim_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("claim",
                         "rebuild published numbers of other systems, and plan for their "
                         "machines");
  auto arguments = std::make_shared<ClaimArguments>();
  CLI::Option* name = verb->add_option("name", arguments->name,
                                       "a claim, or all; without it the claims are listed");
  const auto add_file = [&](const char* flag, std::string& file, const char* help) {
    verb->add_option(flag, file, help)->type_name("FILE")->check(refuse_empty_path)->needs(name);
  };
  add_file("--html", arguments->html, "write one page with tables and pictures to this file");
  add_file("--json", arguments->json, "write the numbers to this file");
  verb->callback([arguments] { run_claim(*arguments); });
}

}  // namespace strata
