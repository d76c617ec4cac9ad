/// Lists the verbs of the program; each lives in a file of its own.
#pragma once

namespace CLI {
class App;
}

namespace strata {

void add_plan_verb(CLI::App& app);
void add_train_verb(CLI::App& app);
void add_generate_verb(CLI::App& app);
void add_verify_verb(CLI::App& app);
void add_launch_verb(CLI::App& app);
void add_options_verb(CLI::App& app);
void add_doctor_verb(CLI::App& app);

}  // namespace strata
