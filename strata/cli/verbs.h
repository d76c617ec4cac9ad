/// Lists the verbs of the program, each in a file of its own, and what they share.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace strata {

void add_plan_verb(CLI::App& app);
void add_size_verb(CLI::App& app);
void add_train_verb(CLI::App& app);
void add_generate_verb(CLI::App& app);
void add_verify_verb(CLI::App& app);
void add_launch_verb(CLI::App& app);
void add_doctor_verb(CLI::App& app);
void add_convert_verb(CLI::App& app);
void add_embed_server_verb(CLI::App& app);
void add_evaluate_verb(CLI::App& app);
void add_row_verb(CLI::App& app);

/// Refuses a name that is no verb's.
void require_verb(const CLI::App& app, const std::string& name);

/// Flushes the standard output and refuses to go on if anything printed so far was lost: a full
/// disk shows no earlier. SystemError where it cannot be written.
void require_output();

}  // namespace strata
