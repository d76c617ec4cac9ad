/// Decides, for all processes of a recommender's run, how the run starts on the servers of its
/// rows.
/// Process 0 draws the run's name, asks each server which run to follow, and records the run in the
/// checkpoint folder. Servers do not take rows from a run that is still alive.
///
/// Threads  one.
/// Errors   UserError: a server whose run is still alive, a checkpoint folder in use by another
///          run; SystemError: a server that does not answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/base/process_identity.h"
#include "strata/rowserver/shard/run_number.h"
#include "strata/task/recipe.h"
#include "strata/task/recommender/recommender_fields.h"

namespace strata {

/// The start of a run.
struct RowsStart {
  int processes = 1;
  RunName run = 1;
  std::vector<std::uint64_t> follows = {};  ///< by server, the number of the previous run (Hello)
  ProcessIdentity holder = {};              ///< process 0
  std::int64_t version = 0;                 ///< steps done
  std::string resume = "";                  ///< the checkpoint, or its folder, that they came from
  std::vector<std::uint64_t> abandoned = {};  ///< earlier runs (abandoned_runs.h)
  /// names the server that is waited for; any thread
  std::function<void(const std::string&)> notice = {};
  const std::atomic<bool>* stop = nullptr;  ///< as in TrainingRequest
};

/// In process 0; pass the text to take_decision() in all processes.
std::string decide_rows_start(const RecommenderFields& fields, const Recipe& recipe,
                              const RowsStart& start);
void take_decision(RowsStart& start, const std::string& text);

}  // namespace strata
