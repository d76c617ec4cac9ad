/// Prints what rows of embeddings need: of a table that is only thought of, and of a recipe's.
///
/// Errors  UserError: what embed/capacity.h refuses, counts and sizes that cannot be read.
#pragma once

#include <string>

#include "strata/embed/codec/wire_values.h"
#include "strata/embed/feature.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace strata {

/// `strata plan --rows`: numbers as they are written.
struct RowsArguments {
  std::string rows;  ///< empty: not asked for
  int width = 16;
  RowPrecision precision = RowPrecision::kFp32;
  RowOptimizerKind optimizer = RowOptimizerKind::kRowWiseAdagrad;
  std::string server_memory = "12TB";
  double fill = 0.85;
  std::string samples;  ///< a second; empty: nothing about the network
  double ids = 26;      ///< of a sample
  double distinct = 0.5;
  int batch = 1024;
  WirePrecision wire = WirePrecision::kScaledFp16;
  std::string disk = "2GB";  ///< bytes a second of a server

  /// Returns --rows.
  CLI::Option* add_to(CLI::App& verb);
};

std::string rows_text(const RowsArguments& arguments);

}  // namespace strata
