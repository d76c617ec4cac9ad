/// Declares the verbs of the program, each in its own source, and what they share.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace strata {

void add_plan_verb(CLI::App& app);
void add_size_verb(CLI::App& app);
void add_claim_verb(CLI::App& app);
void add_train_verb(CLI::App& app);
void add_generate_verb(CLI::App& app);
void add_verify_verb(CLI::App& app);
void add_launch_verb(CLI::App& app);
void add_options_verb(CLI::App& app);
void add_doctor_verb(CLI::App& app);
void add_evaluate_verb(CLI::App& app);
void add_compare_verb(CLI::App& app);

/// Adds the verb of the server of models (cli/server, or its stand-in in a program that is built
/// without it).
void add_serve_verb(CLI::App& app);

/// Adds the verbs that only the task recommender needs (cli/recommender, or its stand-in in a
/// program that is built without it). After the others.
void add_recommender_verbs(CLI::App& app);

/// Paths of all fields of all tasks (run/recipe_file.h).
std::vector<std::string> known_fields();

/// The verbs that --help lists: a verb that the program was built without is not listed.
std::vector<CLI::App*> listed_verbs(CLI::App& app);

/// Throws UserError for a name that is no verb.
void require_verb(CLI::App& app, const std::string& name);

/// Flushes standard output. Throws SystemError if any earlier output was lost: a full disk is
/// reported no earlier.
void require_output();

}  // namespace strata
