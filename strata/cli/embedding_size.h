/// Computes the bytes, servers and network of an embedding table that no recipe describes.
///
/// Errors  UserError: what rowserver/capacity.h refuses; counts and sizes that cannot be parsed.
#pragma once

#include <string>

#include "strata/rowserver/codec/wire_values.h"
#include "strata/rowserver/feature.h"

namespace CLI {
class App;
}  // namespace CLI

namespace strata {

/// Arguments of `strata size embeddings`, as the user writes them.
struct EmbeddingSizeArguments {
  std::string rows;
  int width = 16;
  RowPrecision precision = RowPrecision::kFp32;
  RowOptimizerKind optimizer = RowOptimizerKind::kRowWiseAdagrad;
  std::string server_memory = "12TB";
  double fill = 0.85;   ///< share of a server's memory for embeddings
  std::string samples;  ///< trained per second; empty: the network is not computed
  double ids = 26;      ///< per sample
  double distinct = 0.5;
  int batch = 1024;
  WirePrecision wire = WirePrecision::kScaledFp16;
  std::string disk = "2GB";  ///< bytes per second of a server

  void add_to(CLI::App& verb);
};

std::string embedding_size_text(const EmbeddingSizeArguments& arguments);

}  // namespace strata
