/// Decides, for all processes of a recommender's run, how the run begins on the servers of its rows.
///
/// Process 0 draws the run's name, asks each server which run it is to follow, and notes the run in the checkpoint
/// folder. Servers take the rows from no run that goes on.
///
/// Threads  one.
/// Errors   UserError: a server whose run goes on, a checkpoint folder that another run has; SystemError: a server
///          that stays away.
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

/// Where a run begins.
struct RowsStart {
  int processes = 1;
  RunName run = 1;
  std::vector<std::uint64_t> follows = {};  ///< by server, the number of the run before (Hello)
  ProcessIdentity holder = {};              ///< process 0
  std::int64_t version = 0;                 ///< steps done
  std::string resume = "";  ///< the checkpoint, or its folder, that they were read from
  std::vector<std::uint64_t> abandoned = {};            ///< earlier runs (abandoned_runs.h)
  std::function<void(const std::string&)> notice = {};  ///< which server is waited for; any thread
  const std::atomic<bool>* stop = nullptr;              ///< as in TrainingRequest
};

/// In process 0; the text is for take_decision() in all of them.
std::string decide_rows_start(const RecommenderFields& fields, const Recipe& recipe,
                              const RowsStart& start);
void take_decision(RowsStart& start, const std::string& text);

}  // namespace strata
