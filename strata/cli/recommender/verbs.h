/// Lists the verbs of a program that has the task recommender.
#pragma once

namespace CLI {
class App;
}

namespace strata {

void add_convert_verb(CLI::App& app);
void add_embed_server_verb(CLI::App& app);
void add_row_verb(CLI::App& app);
/// `strata size embeddings`.
void add_embedding_size(CLI::App& size);

}  // namespace strata
