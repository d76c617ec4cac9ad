/// Serves the fake service over HTTP, for tests with real clients: openai_fake_server
/// [OPTION=VALUE...]
///
/// Prints its address and serves until its input ends.
///   tokenizer=PATH   "bytes" or a tokenizer's folder
///   chat=yes|no      whether a tokenizer without a chat template gets one: a message a line
///   answer=TEXT      what the model answers; else it repeats the prompt
///   token_ms=NUMBER  time of a token
///   requests=NUMBER  sequences at once
///   keys=PATH        file of keys
///   probe=PATH       scripts of a test: the chat page has what precedes <!--page--> at its begin
///   and
///                    what follows at its end
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "strata/http/http_server.h"
#include "strata/openai/fake_service_test.h"
#include "strata/openai/routes.h"

namespace strata {
namespace {

using Arguments = std::map<std::string, std::string>;

Arguments arguments_of(int count, char** texts) {
  Arguments arguments = {{"tokenizer", "bytes"}, {"answer", ""}, {"token_ms", "0"},
                         {"requests", "64"},     {"keys", ""},   {"probe", ""},
                         {"chat", "yes"}};
  for (int i = 1; i < count; ++i) {
    const std::string text = texts[i];
    arguments[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  return arguments;
}

std::string file_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The page with a test's own scripts: those after its <head> and those before its </body>.
HttpAnswer probed_page(const std::string& path) {
  const std::string probe = file_text(path);
  std::string page(kChatPage);
  const std::string cut = "<!--page-->";
  page.insert(page.find("</body>"), probe.substr(probe.find(cut) + cut.size()));
  page.insert(page.find("<head>") + 6, probe.substr(0, probe.find(cut)));
  return {.status = 200, .body = page, .type = "text/html; charset=utf-8"};
}

int serve(const Arguments& arguments) {
  const auto tokenizer = make_tokenizer(arguments.at("tokenizer"));
  const auto service = std::make_shared<FakeService>(FakeService::Options{
      .context = 4096,
      .vocabulary = tokenizer->vocabulary(),
      .most_requests = std::stoull(arguments.at("requests")),
      .token_time = std::chrono::milliseconds(std::stoi(arguments.at("token_ms"))),
      .script = tokenizer->encode(arguments.at("answer"))});
  OpenAiModel model = open_model("fake", arguments.at("tokenizer"), service);
  if (!model.chat && arguments.at("chat") == "yes")
    model.chat = ChatTemplate(
        "{% for m in messages %}{{ m.content }}{{ '\\n' if not loop.last }}{% endfor %}", "fake",
        {});
  if (model.ends.empty()) model.ends = {3};  // of bytes: ASCII's end of text
  std::shared_ptr<const Keys> keys;
  if (!arguments.at("keys").empty())
    keys = std::make_shared<const Keys>(Keys::read(arguments.at("keys")));
  HttpRoutes routes = openai_routes({.models = {model}, .keys = keys, .version = "fake"});
  if (!arguments.at("probe").empty())
    routes.insert(routes.begin(),
                  {.method = "GET", .path = "/", .handler = [&](const HttpRequest&) {
                     return probed_page(arguments.at("probe"));
                   }});
  const HttpServer server(openai_listen({}, keys), std::move(routes));
  std::cout << server.address() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}

}  // namespace
}  // namespace strata

int main(int count, char** texts) { return strata::serve(strata::arguments_of(count, texts)); }
