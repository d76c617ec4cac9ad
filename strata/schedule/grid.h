/// Draws a schedule as text, one row a rank, one column a unit of time: golden files and `plan`.
///
///     rank 0: F0 F1 F2 .  .  .  .  B0 B1 B2
///     rank 1: .  F0 F1 F2 .  .  B0 B1 B2 .
#pragma once

#include <string>

#include "strata/schedule/action.h"

namespace strata {

struct GridOptions {
  int marked_rank = -1;  ///< with marked_position: the action to mark "<-- ERROR HERE"
  int marked_position = -1;
  /// 0: all columns; else at most this many, around the mark if there is one
  int max_columns = 0;
};

/// Draws compute actions only. The forward and the backward of a stage and micro-batch are one unit
/// each, placed as early as the order and the dependencies between stages allow. Units whose inputs
/// never arrive follow without a gap. Virtual stages are written F3.1 (micro-batch 3, second stage
/// of its rank).
std::string draw_grid(const Schedule& schedule, const GridOptions& options = {});

struct ListingOptions {
  int marked_position = -1;
  int around = -1;  ///< -1: all actions; else this many before and after the mark
};

/// Lists one action per line, for errors and `plan --program`.
std::string list_actions(const Program& program, const ListingOptions& options = {});

}  // namespace strata
