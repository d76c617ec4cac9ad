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
  int max_columns = 0;  ///< 0: all; else only so many are drawn, around the mark if there is one
};

/// Compute actions only, forwards and backwards of a stage and micro-batch one unit each, placed as
/// early as the order and the dependencies between stages allow; units that wait for ever follow
/// without a gap. Virtual stages are written F3.1 (micro-batch 3, second stage of its rank).
std::string draw_grid(const Schedule& schedule, const GridOptions& options = {});

struct ListingOptions {
  int marked_position = -1;
  int around = -1;  ///< -1: all; else only so many actions before and after the mark
};

/// One line an action, for errors and `plan --program`.
std::string list_actions(const Program& program, const ListingOptions& options = {});

}  // namespace strata
