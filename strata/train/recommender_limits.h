/// Refuses what no run of a recommender can do, whatever verb asks for it: what its recipe says where that is
/// read, what its plan decides where that is made.
///
/// Errors  UserError with the place in the recipe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace strata {

struct Recipe;
struct StepDecisions;

/// What the recipe alone decides; `where` says where a field was given. Every verb that reads a recipe asks.
void check_recommender(const Recipe& recipe,
                       const std::function<std::string(const std::string&)>& where);

/// What its plan decides, and the number of processes that it runs in; nothing for a model of text. Every verb
/// that plans asks.
void check_planned_recommender(const Recipe& recipe, const StepDecisions& decisions, int processes);

/// That a run of `samples` an epoch has a step to make.
void require_steps(const Recipe& recipe, std::int64_t samples,
                   const std::function<std::string(const std::string&)>& where);

}  // namespace strata
