#include "strata/plan/ledger/zero_bytes.h"

#include <cmath>
#include <cstdlib>

#include "strata/base/errors.h"
#include "strata/base/text_table.h"
#include "strata/base/units.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

constexpr int kStages = 4;

void check(double parameters, int zero, int shard_ranks) {
  const auto refuse = [](const char* where, const char* expected, const std::string& got) {
    throw UserError({.operation = "plan.zero",
                     .where = where,
                     .what = "no such ZeRO layout",
                     .expected = expected,
                     .got = got,
                     .fix = "give a number within these limits"});
  };
  if (!(parameters >= 1)) refuse("parameters", "at least 1", format_double_exactly(parameters));
  if (zero < 0 || zero >= kStages) refuse("stage", "0 to 3", std::to_string(zero));
  if (shard_ranks < 1) refuse("shard ranks", "at least 1", std::to_string(shard_ranks));
}

// Powers of 1000, as the papers print.
std::string gigabytes(double bytes) {
  const double gb = bytes / 1e9;
  return format_double(gb, gb < 0.01 ? 5 : gb < 1 ? 3 : 1);
}

}  // namespace

const std::vector<ParameterBytes>& precision_conventions() {
  static const std::vector<ParameterBytes> kConventions = {
      {"fp32", "everything in 32 bits, Adam", 4, 4, 8},
      {"mixed", "16-bit weights; gradients, master weights and Adam in 32", 2, 4, 12},
      {"split", "bf16 weights, the 16 bits that they lack; gradients and Adam in 32", 2, 4, 10},
      {"zero-paper", "16-bit weights and gradients; master weights and Adam in 32", 2, 2, 12},
      {"megatron-fp16", "as zero-paper, and a 32-bit copy of the gradients", 2, 2, 16}};
  return kConventions;
}

const ParameterBytes& precision_convention(const std::string& name) {
  std::string names;
  for (const ParameterBytes& convention : precision_conventions()) {
    if (convention.name == name) return convention;
    names += (names.empty() ? "" : " | ") + convention.name;
  }
  throw UserError({.operation = "plan.zero",
                   .where = "precision",
                   .what = "no convention has this name",
                   .expected = names,
                   .got = quote(name),
                   .fix = "choose one of the names above"});
}

CostTable with_parameter_bytes(CostTable costs, const ParameterBytes& bytes) {
  constexpr double kGradientBytes = 4;  // as in Strata
  const auto scaled = [](std::int64_t count, double factor) {
    return static_cast<std::int64_t>(std::llround(static_cast<double>(count) * factor));
  };
  const double elements = 1.0 / costs.weight_element_bytes;  // elements per byte of weights
  for (LayerCost& layer : costs.layers) {
    layer.state_bytes = scaled(layer.weight_bytes, elements * bytes.states);
    layer.gradient_bytes = scaled(layer.gradient_bytes, bytes.gradient / kGradientBytes);
    layer.weight_bytes = scaled(layer.weight_bytes, elements * bytes.weight);
    layer.matrix_bytes = scaled(layer.matrix_bytes, elements * bytes.weight);
    layer.replica_bytes = scaled(layer.replica_bytes, elements * bytes.weight);
  }
  costs.weight_element_bytes = static_cast<int>(bytes.weight);
  return costs;
}

ModelStateBytes zero_bytes(double parameters, const ParameterBytes& bytes, int zero,
                           int shard_ranks) {
  check(parameters, zero, shard_ranks);
  const auto fraction = [&](int from_stage) {
    return zero >= from_stage ? 1.0 / shard_ranks : 1.0;
  };
  return {.weights = parameters * bytes.weight * fraction(3),
          .gradients = parameters * bytes.gradient * fraction(2),
          .states = parameters * bytes.states * fraction(1)};
}

double zero_volume(int zero, int shard_ranks) {
  check(1, zero, shard_ranks);
  // Stages 0 to 2 scatter gradients and gather them or the new weights; stage 3 gathers weights
  // before forward and again before backward.
  return (zero == 3 ? 3.0 : 2.0) * (shard_ranks - 1) / shard_ranks;
}

std::string zero_table(double parameters, const ParameterBytes& bytes, int shard_ranks) {
  check(parameters, 0, shard_ranks);
  std::string text = format_count(parameters) + " parameters · " + std::to_string(shard_ranks) +
                     (shard_ranks == 1 ? " rank · " : " ranks · ") + bytes.name + " (" +
                     format_double_exactly(bytes.total()) + " bytes a parameter: " + bytes.meaning +
                     ")\n\n";
  TextTable table("rrrrrr");
  table.add_row({"GB on a rank", "weights", "gradients", "states", "all", "sent a step"});
  for (int zero = 0; zero < kStages; ++zero) {
    const ModelStateBytes rank = zero_bytes(parameters, bytes, zero, shard_ranks);
    const double sent = zero_volume(zero, shard_ranks) * parameters * bytes.weight;
    table.add_row({"ZeRO " + std::to_string(zero), gigabytes(rank.weights),
                   gigabytes(rank.gradients), gigabytes(rank.states), gigabytes(rank.total()),
                   gigabytes(sent)});
  }
  return text + table.text() +
         "\nGB are 10^9 bytes. Activations and buffers come on top: give a recipe for those.\n"
         "Sent: in the weights' type, with one micro-batch a step.\n";
}

double parse_count(const std::string& text, const std::string& what) {
  char* end = nullptr;
  double count = std::strtod(text.c_str(), &end);
  const std::string suffix(end);
  constexpr struct {
    const char* name;
    double factor;
  } kSuffixes[] = {{"", 1}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}};
  for (const auto& [name, factor] : kSuffixes) {
    if (end != text.c_str() && suffix == name && std::isfinite(count) && count * factor >= 1) {
      return count * factor;
    }
  }
  throw UserError({.operation = "plan.count",
                   .where = what,
                   .what = "this is no count of " + what,
                   .expected = "a number such as 7.5e9, 7.5B or 350M",
                   .got = quote(text),
                   .fix = "write it like one of these"});
}

}  // namespace strata
