#include "strata/plan/mesh_text.h"

#include <algorithm>

#include "strata/base/units.h"
#include "strata/plan/text_table.h"

namespace strata {
namespace {

bool is_pipeline_alone(const Plan& plan) { return plan.mesh.dp * plan.mesh.tp == 1; }

std::string traffic_table(const Plan& plan) {
  TextTable table("rrrr");
  table.add_row({"sent by rank", "pp", "dp", "tp"});
  const auto cell = [](const AxisTraffic& axis) {
    return format_bytes(static_cast<std::int64_t>(axis.bytes + 0.5));
  };
  for (std::size_t r = 0; r < plan.communication.ranks.size(); ++r) {
    const RankTraffic& rank = plan.communication.ranks[r];
    table.add_row({std::to_string(r), cell(rank.pp), cell(rank.dp), cell(rank.tp)});
  }
  return table.text();
}

std::string three(double pp, double dp, double tp) {
  return "pp " + format_seconds(pp) + ", dp " + format_seconds(dp) + ", tp " + format_seconds(tp);
}

std::string time_lines(const Plan& plan) {
  double pp = 0, dp = 0, tp = 0;
  for (const RankTraffic& rank : plan.communication.ranks) {
    pp = std::max(pp, rank.pp.seconds);
    dp = std::max(dp, rank.dp.seconds);
    tp = std::max(tp, rank.tp.seconds);
  }
  const Communication& all = plan.communication;
  return "moving     " + three(pp, dp, tp) + " on the busiest rank\n" + "exposed    " +
         three(all.exposed_pp_seconds, all.exposed_dp_seconds, all.exposed_tp_seconds) +
         " of the step\n";
}

}  // namespace

std::string ranks_text(const Plan& plan) {
  const int ranks = plan.decisions().mesh.pp * plan.mesh.dp * plan.mesh.tp;
  std::string text = std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
  if (is_pipeline_alone(plan)) return text;
  text += " (pp " + std::to_string(plan.decisions().mesh.pp) + " × dp " +
          std::to_string(plan.mesh.dp) + " × tp " + std::to_string(plan.mesh.tp);
  if (plan.mesh.zero.stage > 0) text += ", zero " + std::to_string(plan.mesh.zero.stage);
  return text + ")";
}

std::string mesh_text(const Plan& plan) {
  if (is_pipeline_alone(plan)) return "";
  std::string text = traffic_table(plan) + "\n";
  if (plan.mesh.dp > 1) {
    text += std::string("reduce     ") +
            (plan.decisions().zero.reduce == ReduceMode::kEach ? "after each micro-batch"
                                                               : "once a step") +
            " (" + plan.reduce_reason + ")\n";
  }
  return text + time_lines(plan);
}

}  // namespace strata
