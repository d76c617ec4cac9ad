/// Declares what makes the kinds of tasks that programs may serve, and the list of a program.
#pragma once

#include <memory>
#include <vector>

namespace strata {

class ServingKind;
using MakeServingKind = std::unique_ptr<ServingKind> (*)();

MakeServingKind text_serving();
/// Null: the program is built without the task (cli/no_recommender).
MakeServingKind recommender_serving();

/// The kinds of this program (cli/server/kinds).
std::vector<MakeServingKind> serving_kinds();

}  // namespace strata
