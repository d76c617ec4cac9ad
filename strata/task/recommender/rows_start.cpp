#include "strata/task/recommender/rows_start.h"

#include <nlohmann/json.hpp>

#include "strata/rowserver/wire/remote_servers.h"
#include "strata/task/recommender/abandoned_runs.h"

namespace strata {

std::string decide_rows_start(const RecommenderFields& fields, const Recipe& recipe,
                              const RowsStart& start) {
  const EmbeddingOptions& embedding = fields.embedding;
  if (embedding.is_local()) return "{}";
  const RunName run = draw_run_name();
  const std::vector<std::uint64_t> follows = runs_to_follow({.addresses = embedding.servers,
                                                             .access = access_from_environment(),
                                                             .notice = start.notice,
                                                             .stop = start.stop});
  // A run that resumes from a checkpoint continues that run instead of following another one.
  const std::string& folder = recipe.train.checkpoint_folder;
  std::vector<std::uint64_t> abandoned;
  if (start.version == 0 && !folder.empty()) abandoned = note_run(folder, run);
  const ProcessIdentity holder = this_process();
  return nlohmann::json{{"run", run},
                        {"follows", follows},
                        {"abandoned", abandoned},
                        {"host", holder.host},
                        {"process", holder.process},
                        {"since", holder.since},
                        {"machine", holder.machine},
                        {"started", holder.started}}
      .dump();
}

void take_decision(RowsStart& start, const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  if (json.empty()) return;  // local rows
  start.run = json.at("run");
  start.follows = json.at("follows").get<std::vector<std::uint64_t>>();
  start.abandoned = json.at("abandoned").get<std::vector<std::uint64_t>>();
  start.holder = {.host = json.at("host"),
                  .process = json.at("process"),
                  .since = json.at("since"),
                  .machine = json.at("machine"),
                  .started = json.at("started")};
}

}  // namespace strata
