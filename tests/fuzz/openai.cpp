// Sends inputs to the routes of OpenAI's API.
#include "requests.h"

namespace {

constexpr strata::fuzz::Target kTargets[] = {
    {"POST", "/v1/completions"}, {"POST", "/v1/chat/completions"}, {"POST", "/tokenize"},
    {"POST", "/detokenize"},     {"POST", "/v1/embeddings"},
};

}  // namespace

void fuzz_input(std::string_view input) { strata::fuzz::send<strata::TestServer>(kTargets, input); }
