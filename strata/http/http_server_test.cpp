#include "strata/http/http_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/http/http_client_test.h"

namespace strata {
namespace {

TEST(HttpServer, AnswersFromItsRoutes) {
  const HttpServer server({}, test_routes());
  EXPECT_TRUE(server.address().starts_with("127.0.0.1:"));
  const std::string health = ask(server, get("/health?verbose"));
  EXPECT_EQ(status_of(health), 200);
  EXPECT_EQ(body_of(health), "SERVING\n");
  EXPECT_NE(health.find("Content-Type: text/plain; charset=utf-8\r\n"), std::string::npos);
  EXPECT_NE(health.find("Content-Length: 8\r\n"), std::string::npos);
  const std::string echo = ask(
      server, "POST /echo?a=1&b=?2 HTTP/1.1\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody");
  EXPECT_EQ(body_of(echo), "a=1&b=?2|body");
  EXPECT_NE(echo.find("Content-Type: text/x-echo\r\n"), std::string::npos);
}

TEST(HttpServer, ClosesItsSocketsInProgramsThatTheProcessStarts) {
  const HttpServer server({}, test_routes());
  Client client(server);
  client.send("GET /health HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(client.receive_through("SERVING"));
  int sockets = 0;  // of the server: one listens, one is the connection
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) continue;
    if (address.sin_family != AF_INET || ntohs(address.sin_port) != port_of(server)) continue;
    ++sockets;
    EXPECT_EQ(::fcntl(descriptor, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  EXPECT_EQ(sockets, 2);
}

TEST(HttpServer, AnswersOtherPathsAndMethodsWith404And405) {
  const HttpServer server({}, test_routes());
  EXPECT_EQ(status_of(ask(server, get("/"))), 404);
  EXPECT_EQ(status_of(ask(server, get("/health/../health"))), 404);
  const std::string posted =
      ask(server, "POST /health HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(status_of(posted), 405);
  EXPECT_NE(posted.find("Allow: GET, HEAD, OPTIONS\r\n"), std::string::npos);
}

TEST(HttpServer, AnswersSeveralRequestsOfOneConnection) {
  const HttpServer server({}, test_routes());
  const std::string open = "GET /health HTTP/1.1\r\n\r\n";
  const std::string answers = ask(server, open + open + get("/nowhere"));
  const std::size_t second = answers.find("HTTP/1.1 200 OK", 1);
  ASSERT_NE(second, std::string::npos);
  EXPECT_EQ(answers.find("HTTP/1.1 200 OK"), 0u);
  EXPECT_NE(answers.find("HTTP/1.1 404 Not Found", second), std::string::npos);
}

TEST(HttpServer, ClosesConnectionOfHttp10AfterItsAnswer) {
  const HttpServer server({}, test_routes());
  EXPECT_EQ(body_of(ask(server, "GET /health HTTP/1.0\r\n\r\n")), "SERVING\n");
}

TEST(HttpServer, AnswersChunkedBody) {
  const HttpServer server({}, test_routes());
  const std::string answer = ask(server,
                                 "POST /echo HTTP/1.1\r\nConnection: close\r\n"
                                 "Transfer-Encoding: chunked\r\n\r\n"
                                 "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
  EXPECT_EQ(body_of(answer), "|onetwo");
}

TEST(HttpServer, AnswersHeadWithoutBodyAndOptionsWithMethods) {
  const HttpServer server({}, test_routes());
  const std::string head = ask(server, "HEAD /health HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(status_of(head), 200);
  EXPECT_NE(head.find("Content-Length: 8\r\n"), std::string::npos);
  EXPECT_EQ(body_of(head), "");  // a body would be read as the next answer
  EXPECT_EQ(body_of(ask(server, "HEAD /nowhere HTTP/1.1\r\nConnection: close\r\n\r\n")), "");
  const std::string options = ask(server, "OPTIONS /echo HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(status_of(options), 204);
  EXPECT_NE(options.find("Allow: POST, OPTIONS\r\n"), std::string::npos);
  EXPECT_EQ(options.find("Content-Length"), std::string::npos);
  EXPECT_EQ(status_of(ask(server, "OPTIONS * HTTP/1.1\r\nConnection: close\r\n\r\n")), 204);
}

TEST(HttpServer, SendsNoBodyWithAStatusThatHasNone) {
  const HttpServer server(
      {}, {{"GET", "/none",
            [](const HttpRequest&) { return HttpAnswer{.status = 204, .body = "a body"}; }},
           {"GET", "/next", [](const HttpRequest&) { return HttpAnswer{.body = "next"}; }}});
  const std::string both = ask(server, "GET /none HTTP/1.1\r\n\r\n" + get("/next"));
  EXPECT_EQ(status_of(both), 204);
  const std::string second = both.substr(both.find("\r\n\r\n") + 4);
  EXPECT_EQ(status_of(second), 200) << both;
  EXPECT_EQ(body_of(second), "next");
}

TEST(HttpServer, PassesWholeRequestToHandler) {
  HttpRequest seen;
  const HttpServer server({}, {{"PUT", "/models/{id}", [&](const HttpRequest& request) {
                                  seen = request;
                                  return HttpAnswer{};
                                }}});
  const std::string body("\0\xff\r\n\r\n", 6);
  EXPECT_EQ(status_of(ask(server,
                          "PUT /models/a%2Fb?x=1&y=%20 HTTP/1.1\r\nhost: here\r\n"
                          "X-Request-ID: \t7 \r\nConnection: close\r\nContent-Length: 6\r\n\r\n" +
                              body)),
            200);
  EXPECT_EQ(seen.method, "PUT");
  EXPECT_EQ(seen.path, "/models/a%2Fb");
  EXPECT_EQ(seen.parameter("id"), "a/b");
  EXPECT_EQ(seen.query, "x=1&y=%20");
  EXPECT_EQ(seen.query_value("y"), " ");
  EXPECT_EQ(seen.header("HOST"), "here");
  EXPECT_EQ(seen.header("x-request-id"), "7");
  EXPECT_EQ(seen.body, body);
}

TEST(HttpServer, SendsHeadersOfAnswersOnOneLineEach) {
  const HttpServer server(
      {}, {{"GET", "/", [](const HttpRequest&) {
              return HttpAnswer{
                  .status = 429,
                  .headers = {{"Retry-After", "2"}, {"X-Request-Id", "a\r\nX-Evil: b"}}};
            }}});
  const std::string answer = ask(server, get("/"));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 429 Too Many Requests\r\n"));
  EXPECT_NE(answer.find("Retry-After: 2\r\n"), std::string::npos);
  EXPECT_NE(answer.find("X-Request-Id: a  X-Evil: b\r\n"), std::string::npos);
}

TEST(HttpServer, ReadsBodiesUpToTheLimitOfTheirRoute) {
  HttpRoutes routes = test_routes();
  routes.push_back({.method = "POST",
                    .path = "/prompt",
                    .handler =
                        [](const HttpRequest& request) {
                          return HttpAnswer{.body = std::to_string(request.body.size())};
                        },
                    .body_bytes = 8 << 20});
  const HttpServer server({}, routes);
  const auto post = [&](const std::string& path, std::size_t bytes) {
    return ask(server, "POST " + path + " HTTP/1.1\r\nConnection: close\r\nContent-Length: " +
                           std::to_string(bytes) + "\r\n\r\n" + std::string(bytes, 'x'));
  };
  EXPECT_EQ(body_of(post("/prompt", 8 << 20)), std::to_string(8 << 20));
  EXPECT_EQ(status_of(post("/prompt", (8 << 20) + 1)), 413);
  EXPECT_EQ(status_of(post("/echo", 64 << 10)), 200);
  EXPECT_EQ(status_of(post("/echo", (64 << 10) + 1)), 413);
}

TEST(HttpServer, AsksForBodyThatClientHoldsBack) {
  const HttpServer server({}, test_routes());
  const std::string expect = " HTTP/1.1\r\nExpect: 100-continue\r\nConnection: close\r\n";
  Client client(server);
  client.send("POST /echo" + expect + "Content-Length: 4\r\n\r\n");
  ASSERT_TRUE(client.receive_through("HTTP/1.1 100 Continue\r\n\r\n"));
  client.send("body");
  const std::string answer = client.receive_all();
  EXPECT_TRUE(answer.ends_with("\r\n\r\n|body")) << answer;
  // A request that is refused, or has no body, gets its answer instead.
  EXPECT_EQ(status_of(ask(server, "POST /echo" + expect + "Content-Length: 99999999\r\n\r\n")),
            413);
  EXPECT_EQ(status_of(ask(server, "POST /nowhere" + expect + "Content-Length: 4\r\n\r\n")), 404);
  EXPECT_EQ(status_of(ask(server, "GET /health" + expect + "\r\n")), 200);
  EXPECT_EQ(
      status_of(ask(server, "GET /health HTTP/1.1\r\nExpect: more\r\nConnection: close\r\n\r\n")),
      417);
}

TEST(HttpServer, AdmitsRequestsBeforeTheirBodies) {
  HttpListen listen;
  listen.admit = [](const HttpRequest& request) -> std::optional<HttpAnswer> {
    if (request.path == "/health" || request.header("Authorization") == "Bearer key") return {};
    return HttpAnswer{.status = 401, .headers = {{"WWW-Authenticate", "Bearer"}}};
  };
  listen.refusal = [](HttpAnswer& answer, const HttpRequest&) {
    answer.type = "application/json";
    answer.body = std::to_string(answer.status);
  };
  const HttpServer server(listen, test_routes());
  EXPECT_EQ(status_of(ask(server, get("/health"))), 200);
  const std::string refused =
      ask(server, "POST /echo HTTP/1.1\r\nContent-Length: 1000\r\n\r\n");  // no body comes
  EXPECT_EQ(status_of(refused), 401);
  EXPECT_NE(refused.find("WWW-Authenticate: Bearer\r\n"), std::string::npos);
  EXPECT_NE(refused.find("Connection: close\r\n"), std::string::npos);
  EXPECT_EQ(status_of(ask(server, get("/nowhere"))), 401);  // paths are not revealed
  const std::string missing = ask(
      server, "GET /nowhere HTTP/1.1\r\nauthorization: Bearer key\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(body_of(missing), "404");
  EXPECT_NE(missing.find("Content-Type: application/json\r\n"), std::string::npos);
  EXPECT_EQ(body_of(ask(server, "nonsense\r\n\r\n")), "400");
}

TEST(HttpServer, SendsWholeAnswerToClientThatReads) {
  const HttpServer server({}, test_routes());
  EXPECT_EQ(body_of(ask(server, get("/large"))), std::string(64 << 20, 'x'));
}

TEST(HttpServer, AnswersHalfClosedConnectionThenClosesIt) {
  const HttpServer server({}, test_routes());
  Client asking(server);
  asking.send("GET /health HTTP/1.1\r\n\r\n");
  asking.end_sending();
  EXPECT_EQ(body_of(asking.receive_all()), "SERVING\n");
  Client silent(server);
  silent.end_sending();
  EXPECT_EQ(silent.receive_all(), "");
  Client cut(server);
  cut.send("GET /hea");
  cut.end_sending();
  EXPECT_EQ(cut.receive_all(), "");
  wait_for_connections(server, 0);
}

// Handlers of /wait hold until open() is called.
class Gate {
 public:
  HttpRoutes routes() {
    HttpRoutes all = test_routes();
    all.push_back({"GET", "/wait", [this](const HttpRequest&) {
                     ++waiting;
                     opened_.wait();
                     ++left;
                     return HttpAnswer{.body = "waited\n"};
                   }});
    return all;
  }
  void await(int count) const {
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    while (waiting < count && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(1ms);
    ASSERT_EQ(waiting, count);
  }
  void open() { open_.set_value(); }
  std::atomic<int> waiting = 0, left = 0;

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future();
};

TEST(HttpServer, AnswersOthersWhileHandlerRuns) {
  Gate gate;
  const HttpServer server({.limits = {.handler_threads = 2}}, gate.routes());
  Client slow(server);
  slow.send(get("/wait"));
  gate.await(1);
  EXPECT_EQ(body_of(ask(server, get("/health"))), "SERVING\n");
  gate.open();
  EXPECT_EQ(body_of(slow.receive_all()), "waited\n");
}

// The time limit of a request does not run while its handler does.
TEST(HttpServer, AnswersAfterHandlerThatRunsLongerThanTheLimits) {
  Gate gate;
  const HttpServer server({.limits = {.request = 200ms, .answer = 200ms}}, gate.routes());
  Client slow(server);
  slow.send(get("/wait"));
  gate.await(1);
  std::this_thread::sleep_for(500ms);
  gate.open();
  EXPECT_EQ(body_of(slow.receive_all()), "waited\n");
}

TEST(HttpServer, OutlivesClientThatLeavesDuringItsRequest) {
  Gate gate;
  const HttpServer server({}, gate.routes());
  {
    Client leaving(server);
    leaving.send(get("/wait"));
    gate.await(1);
    leaving.reset();
  }
  gate.open();
  wait_for_connections(server, 0);
  EXPECT_EQ(body_of(ask(server, get("/health"))), "SERVING\n");
}

TEST(HttpServer, WaitsForItsHandlersWhenItEnds) {
  Gate gate;
  auto server =
      std::make_unique<HttpServer>(HttpListen{.limits = {.handler_threads = 2}}, gate.routes());
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<Client>(*server));
    clients.back()->send(get("/wait"));
  }
  gate.await(2);  // the others wait for a thread
  std::thread opening([&] {
    std::this_thread::sleep_for(50ms);
    gate.open();
  });
  server.reset();
  EXPECT_EQ(gate.left, gate.waiting);
  opening.join();
  for (const auto& client : clients) client->receive_all();
}

TEST(HttpServer, RefusesPortInUse) {
  const HttpServer server({}, test_routes());
  try {
    const HttpServer other({.port = port_of(server)}, test_routes());
    FAIL() << "two servers listen at one port";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().operation, "http.listen");
    EXPECT_EQ(error.text().where, server.address());
    EXPECT_FALSE(error.text().fix.empty());
  }
  EXPECT_THROW(HttpServer({.host = "no.such.host.invalid"}, test_routes()), UserError);
}

TEST(HttpServer, ListensAtIpv6Loopback) {
  try {
    const HttpServer server({.host = "::1"}, test_routes());
    EXPECT_TRUE(server.address().starts_with("[::1]:"));
  } catch (const UserError&) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
}

}  // namespace
}  // namespace strata
