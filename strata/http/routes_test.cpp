#include "strata/http/routes.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>

#include "strata/base/errors.h"

namespace strata {
namespace {

HttpRoutes routes() {
  const auto say = [](const std::string& text) {
    return [text](const HttpRequest&) { return HttpAnswer{.body = text}; };
  };
  return {{"GET", "/rows", say("read")},
          {"POST", "/rows", say("written")},
          {"POST", "/refuse",
           [](const HttpRequest&) -> HttpAnswer {
             throw UserError({.operation = "test.refuse", .what = "no such row"});
           }},
          {"POST", "/fail",
           [](const HttpRequest&) -> HttpAnswer { throw std::runtime_error("broken"); }},
          {"POST", "/disk", [](const HttpRequest&) -> HttpAnswer {
             throw SystemError({.operation = "test.disk", .what = "disk full"});
           }}};
}

// Keeps the answer of a handler.
class Keeper : public HttpResponder {
 public:
  void answer(HttpAnswer answer) override { kept = std::move(answer); }
  void on_closed(std::function<void()>) override {}
  HttpAnswer kept = {.status = 0};
};

HttpAnswer ask(const HttpRoutes& table, const std::string& method, const std::string& path) {
  HttpMatch match = match_route(table, method, path);
  if (!match.route) return match.answer;
  const auto keeper = std::make_shared<Keeper>();
  run_route(*match.route,
            {.method = method,
             .path = path,
             .query = {},
             .body = {},
             .parameters = std::move(match.parameters)},
            keeper);
  return keeper->kept;
}

HttpAnswer ask(const std::string& method, const std::string& path) {
  return ask(routes(), method, path);
}

TEST(HttpRoutes, ChooseHandlerByMethodAndPath) {
  EXPECT_EQ(ask("GET", "/rows").body, "read");
  EXPECT_EQ(ask("POST", "/rows").body, "written");
  EXPECT_EQ(ask("GET", "/rows").status, 200);
}

TEST(HttpRoutes, AnswerStatus404ForMissingPath) {
  for (const char* path : {"/row", "/rows/", "/ROWS", "/", "//rows", "/rows/../rows", "/rows%2f"})
    EXPECT_EQ(ask("GET", path).status, 404) << path;
  for (const char* path : {"", "rows", "/ro%00ws", "/rows%", "/rows%0a", "http://host/rows"})
    EXPECT_EQ(ask("GET", path).status, 400) << path;
}

TEST(HttpRoutes, AnswerStatus405WithAllowedMethods) {
  const HttpAnswer answer = ask("DELETE", "/rows");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.headers, (HttpFields{{"Allow", "GET, HEAD, POST, OPTIONS"}}));
  EXPECT_EQ(ask("get", "/rows").status, 405);
}

TEST(HttpRoutes, AnswerHeadByGetAndOptionsByMethods) {
  EXPECT_EQ(ask("HEAD", "/rows").body, "read");
  EXPECT_EQ(ask("HEAD", "/fail").status, 405);
  const HttpAnswer options = ask("OPTIONS", "/fail");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers, (HttpFields{{"Allow", "POST, OPTIONS"}}));
  EXPECT_EQ(ask("OPTIONS", "/row").status, 404);
  EXPECT_EQ(ask("OPTIONS", "*").status, 204);
  EXPECT_EQ(ask("GET", "*").status, 400);
}

TEST(HttpRoutes, PassDecodedParameters) {
  const auto say = [](const HttpRequest& request) {
    std::string all;
    for (const auto& [name, value] : request.parameters) all += name + "=" + value + ";";
    return HttpAnswer{.body = all};
  };
  const HttpRoutes table = {{"GET", "/v2/models/{model}/versions/{version}/infer", say},
                            {"GET", "/v2/models/{model}/ready", say},
                            {"GET", "/v2/models/all", say},
                            {"GET", "/v2/models/{model}", say},
                            {"GET", "/v1/models/{id...}", say}};
  const auto got = [&](const char* path) {
    const HttpAnswer answer = ask(table, "GET", path);
    return answer.status == 200 ? answer.body : std::to_string(answer.status);
  };
  EXPECT_EQ(got("/v2/models/m/versions/3/infer"), "model=m;version=3;");
  EXPECT_EQ(got("/v2/models/a%2Fb%20c/ready"), "model=a/b c;");
  EXPECT_EQ(got("/v%32/models/all"), "");
  EXPECT_EQ(got("/v2/models/x"), "model=x;");
  EXPECT_EQ(got("/v1/models/org/model"), "id=org/model;");
  EXPECT_EQ(got("/v1/models/m"), "id=m;");
  for (const char* other :
       {"/v2/models/", "/v2/models//ready", "/v2/models/../ready", "/v2/models/%2e%2e/ready",
        "/v2/models/..%2fx/ready", "/v2/models/%2fetc/ready", "/v2/models/a%5c..%5cb/ready",
        "/v1/models", "/v1/models/", "/v1/models/a//b", "/v1/models/../../etc", "/v1/models/a/.",
        "/v2/models/m/versions/3", "/v2/models/m/versions/3/infer/"})
    EXPECT_EQ(got(other), "404") << other;
  EXPECT_EQ(got("/v1/models/a%00b"), "400");
}

TEST(HttpRoutes, FindHeadersInAnyCase) {
  const HttpRequest request{.headers = {{"X-Request-ID", "7"}, {"x-request-id", "8"}},
                            .parameters = {{"id", "m"}},
                            .query_values = {{"a", "1"}}};
  EXPECT_EQ(request.header("x-Request-Id"), "7");
  EXPECT_EQ(request.header("X-Request"), "");
  EXPECT_EQ(request.parameter("id"), "m");
  EXPECT_EQ(request.parameter("ID"), "");
  EXPECT_EQ(request.query_value("a"), "1");
}

TEST(HttpRoutes, AnswerErrorsOfHandlersByKind) {
  EXPECT_EQ(ask("POST", "/refuse").status, 400);
  EXPECT_NE(ask("POST", "/refuse").body.find("no such row"), std::string::npos);
  EXPECT_EQ(ask("POST", "/fail").status, 500);
  EXPECT_EQ(ask("POST", "/disk").status, 500);
  EXPECT_NE(ask("POST", "/disk").body.find("disk full"), std::string::npos);
}

}  // namespace
}  // namespace strata
