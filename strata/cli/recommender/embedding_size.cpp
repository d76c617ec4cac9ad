// Computes the bytes, servers and network of an embedding table that no recipe describes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/enum_names.h"
#include "strata/base/options.h"
#include "strata/base/text_table.h"
#include "strata/base/units.h"
#include "strata/cli/recommender/verbs.h"
#include "strata/plan/ledger/zero_bytes.h"
#include "strata/rowserver/capacity.h"
#include "strata/rowserver/codec/wire_values.h"
#include "strata/rowserver/feature.h"
#include "strata/rowserver/rows/row_layout.h"

namespace strata {
namespace {

// As the user writes them.
struct EmbeddingSizeArguments {
  std::string rows;
  int width = 16;
  RowPrecision precision = RowPrecision::kFp32;
  RowOptimizerKind optimizer = RowOptimizerKind::kRowWiseAdagrad;
  std::string server_memory = "12TB";
  double fill = 0.85;   // share of a server's memory for embeddings
  std::string samples;  // trained per second; empty: the network is not computed
  double ids = 26;      // per sample
  double distinct = 0.5;
  int batch = 1024;
  WirePrecision wire = WirePrecision::kScaledFp16;
  std::string disk = "2GB";  // bytes per second of a server

  void add_to(CLI::App& verb);
};

// Powers of 1000, as vendors of memory and networks count.
std::string decimal_bytes(double bytes) { return format_count(bytes) + "B"; }

// Appends the names of the choices to the help.
template <typename E>
CLI::Option* add_named(CLI::App& verb, const std::string& flag, E& target,
                       const std::string& help) {
  const std::string names = list_names<E>();
  return verb
      .add_option_function<std::string>(
          flag,
          [&target, flag, names](const std::string& name) {
            const std::optional<E> value = value_named<E>(name);
            if (!value)
              throw CLI::ValidationError(flag, "expected one of " + names + ", got " + name);
            target = *value;
          },
          help + ": " + names)
      ->type_name("NAME")
      ->default_str(name_of(target));
}

void EmbeddingSizeArguments::add_to(CLI::App& verb) {
  verb.add_option("count", rows, "embeddings of the table, such as 6.25T")->required();
  const auto add = [&](const char* name, const char* what, auto& target, const std::string& help) {
    verb.add_option(name, target, help)->type_name(what)->capture_default_str();
  };
  add("--width", "COUNT", width, "elements of an embedding");
  add_named(verb, "--precision", precision, "of the elements");
  add_named(verb, "--optimizer", optimizer, "whose states are kept with the elements");
  add("--server-memory", "BYTES", server_memory, "of a server");
  add("--fill", "SHARE", fill, "of that memory, for embeddings");
  add("--samples", "COUNT", samples, "trained a second, such as 1.91M: adds the network");
  add("--ids", "COUNT", ids, "of a sample");
  add("--distinct", "SHARE", distinct, "of a batch's ids, those that differ from one another");
  add("--batch", "COUNT", batch, "samples of a rank's step");
  add_named(verb, "--wire", wire, "precision of embeddings and gradients on the network");
  add("--disk-rate", "BYTES", disk, "a second, at which a server writes snapshots");
}

std::string embedding_size_text(const EmbeddingSizeArguments& arguments) {
  const FeatureSpec row{.name = "table",
                        .width = arguments.width,
                        .optimizer = {.kind = arguments.optimizer},
                        .precision = arguments.precision};
  const double rows = parse_count(arguments.rows, "rows");
  const auto memory = static_cast<double>(parse_bytes(arguments.server_memory).count);
  const RowCapacity capacity = row_capacity(row, rows, memory, arguments.fill);
  const RowLayout layout(row);
  std::string text = format_count(rows) + " rows of " + layout_text(row) + " · " +
                     format_count(rows * arguments.width) + " parameters\n\n";
  text += "a row      " + std::to_string(layout.value_bytes) + " bytes of values, " +
          std::to_string(4 * layout.num_states) + " of states, " +
          std::to_string(kRowOverheadBytes) +
          " of header and index: " + std::to_string(capacity.row_bytes) + "\n";
  text += "all rows   " + decimal_bytes(capacity.bytes) + "\n";
  text += "servers    " + std::to_string(capacity.servers) + " of " + decimal_bytes(memory) + ", " +
          format_double(100 * arguments.fill, 0) +
          " % full: " + decimal_bytes(capacity.server_bytes) + ", " +
          format_count(capacity.server_rows) + " rows each\n";
  if (capacity.server_shards > 1)
    text += "shards     " + std::to_string(capacity.server_shards) +
            " processes a server: a shard has at most 2^31 rows of a table\n";
  text += "snapshot   " +
          format_seconds(snapshot_seconds(capacity.server_bytes,
                                          static_cast<double>(parse_bytes(arguments.disk).count))) +
          " at " + arguments.disk + " a second and server\n";
  if (arguments.samples.empty()) return text;

  const double rate = parse_count(arguments.samples, "samples");
  const WireBytes sample = sample_wire_bytes(row, capacity.shards(),
                                             {.batch = static_cast<double>(arguments.batch),
                                              .ids = arguments.ids,
                                              .distinct = arguments.distinct,
                                              .wire = {arguments.wire, arguments.wire}});
  const WireBytes server = sample * (rate / static_cast<double>(capacity.servers));
  return text + "network    " + format_double(sample.total(), 0) + " bytes a sample, " +
         decimal_bytes(sample.total() * rate) + "/s in all; a server gets " +
         decimal_bytes(server.received) + "/s and sends " + decimal_bytes(server.sent) + "/s\n";
}

}  // namespace

void add_embedding_size(CLI::App& size) {
  CLI::App* verb = size.add_subcommand("embeddings", "servers that a table of embeddings needs");
  auto arguments = std::make_shared<EmbeddingSizeArguments>();
  arguments->add_to(*verb);
  verb->callback([arguments] { std::cout << embedding_size_text(*arguments); });
}

}  // namespace strata
