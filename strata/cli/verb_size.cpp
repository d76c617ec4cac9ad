// Computes sizes that no recipe describes; plans and measures nothing.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "strata/base/units.h"
#include "strata/cli/verbs.h"
#include "strata/plan/ledger/zero_bytes.h"

namespace strata {
namespace {

struct ParameterArguments {
  std::string count;
  int shard_ranks = 1;
  std::string precision = "zero-paper";
};

void add_parameters(CLI::App& size) {
  CLI::App* verb = size.add_subcommand("parameters", "bytes of a model's states under ZeRO 0 to 3");
  auto arguments = std::make_shared<ParameterArguments>();
  verb->add_option("count", arguments->count, "parameters of the model, such as 7.5B")->required();
  verb->add_option("--shard-ranks", arguments->shard_ranks, "replicas that hold the shards")
      ->type_name("COUNT")
      ->capture_default_str();
  verb->add_option("--precision", arguments->precision,
                   "fp32, mixed, split, zero-paper or megatron-fp16")
      ->type_name("NAME")
      ->capture_default_str();
  verb->callback([arguments] {
    std::cout << zero_table(parse_count(arguments->count),
                            precision_convention(arguments->precision), arguments->shard_ranks);
  });
}

}  // namespace

void add_size_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("size", "compute bytes from counts, without a recipe");
  verb->require_subcommand(1);
  add_parameters(*verb);
}

}  // namespace strata
