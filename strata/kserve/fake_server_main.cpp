/// Serves a fake model "fake" of bytes over HTTP and gRPC, for tests with real clients:
/// kserve_fake_server [OPTION=VALUE...]
///
/// Prints the addresses of HTTP and of gRPC, each on its own line, and serves until its input ends;
/// then it drains.
///   answer=TEXT      what the model answers; else it repeats the prompt
///   token_ms=NUMBER  time of a token
///   requests=NUMBER  sequences at once
///   keys=PATH        file of keys
#include <iostream>
#include <map>

#include "strata/kserve/rest/routes.h"
#include "strata/kserve/rpc/inference_server.h"
#include "strata/kserve/server_routes.h"
#include "strata/openai/fake_service_test.h"
#include "strata/openai/routes.h"

namespace strata {
namespace {

using Arguments = std::map<std::string, std::string>;

int serve(const Arguments& arguments) {
  const auto tokenizer = make_tokenizer("bytes");
  const auto service = std::make_shared<FakeService>(FakeService::Options{
      .context = 4096,
      .most_requests = std::stoull(arguments.at("requests")),
      .token_time = std::chrono::milliseconds(std::stoi(arguments.at("token_ms"))),
      .script = tokenizer->encode(arguments.at("answer"))});
  OpenAiModel model = open_model("fake", "bytes", service);
  model.ends = {3};  // ASCII's end of text
  std::shared_ptr<const Keys> keys;
  if (!arguments.at("keys").empty())
    keys = std::make_shared<const Keys>(Keys::read(arguments.at("keys")));
  const auto models = repository_of(model);
  const HttpServer http(kserve_listen(openai_listen({}, keys), keys),
                        server_routes(model, models, keys, "fake"));
  InferenceServer rpc({}, models, keys, "fake");
  std::cout << http.address() << '\n' << rpc.address() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  rpc.drain(std::chrono::system_clock::now() + std::chrono::seconds(20));
  return 0;
}

}  // namespace
}  // namespace strata

int main(int count, char** texts) {
  strata::Arguments arguments = {
      {"answer", ""}, {"token_ms", "0"}, {"requests", "64"}, {"keys", ""}};
  for (int i = 1; i < count; ++i) {
    const std::string text = texts[i];
    arguments[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  return strata::serve(arguments);
}
