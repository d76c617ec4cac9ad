/// Reads and writes the order of a step as CSV, in the format of PyTorch's pipelining
/// (torch.distributed.pipelining): one line a rank, one cell an action or nothing.
///
///     0F0,0F1,,0I0,0W0      stage 0: forwards of micro-batches 0 and 1, the halves of a backward
///     1F0,1B0,1F1,1B1       B: a whole backward
///
/// A pair that PyTorch would overlap, "(0F1;1B0)OVERLAP_F_B", becomes its two actions. Messages and
/// transfers of weights (SEND_F, UNSHARD, ...) are left out: the passes add their own.
#pragma once

#include <string>
#include <string_view>

#include "strata/schedule/action.h"

namespace strata {

/// `where`: the name of the text in errors, usually a file's.
/// Errors  UserError with line and cell: what is no action, a stage on two lines, stages or
///         micro-batches that are not numbered from 0 without gaps. The validator checks the rest.
Schedule read_order(std::string_view csv, const std::string& where);

/// Checks an order as a step of a model with one layer a stage.
/// Errors  those of validate(): the wrong action, marked.
void require_legal(const Schedule& order);

/// Writes the compute actions of whole stages.
std::string order_csv(const Schedule& schedule);

}  // namespace strata
