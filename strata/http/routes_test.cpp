#include "strata/http/routes.h"

#include <gtest/gtest.h>

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
  for (const char* path : {"/row", "/rows/", "/ROWS", "", "/rows/../rows", "http://host/rows"})
    EXPECT_EQ(ask("GET", path).status, 404) << path;
}

TEST(HttpRoutes, AnswerStatus405WithAllowedMethods) {
  const HttpAnswer answer = ask("DELETE", "/rows");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.allow, "GET, POST");
  EXPECT_EQ(ask("get", "/rows").status, 405);
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
