// Clients are bare sockets, so that they can misbehave.
#include "strata/http/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"

namespace strata {
namespace {

using namespace std::chrono_literals;

int port_of(const HttpServer& server) {
  const std::string address = server.address();
  return std::stoi(address.substr(address.rfind(':') + 1));
}

class Client {
 public:
  explicit Client(const HttpServer& server, int receive_bytes = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{.tv_sec = 30, .tv_usec = 0};  // a server that hangs fails the test
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (receive_bytes > 0)
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port_of(server)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False: the server has closed the connection.
  bool send(const std::string& text) {
    for (std::size_t sent = 0; sent < text.size();) {
      const ssize_t some = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (some <= 0) return false;
      sent += static_cast<std::size_t>(some);
    }
    return true;
  }
  void end_sending() { ::shutdown(socket_, SHUT_WR); }
  void reset() {
    const linger hard{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  }

  // Until the server closes the connection.
  std::string receive_all() {
    std::string all;
    char some[4096];
    ssize_t bytes = 0;
    while ((bytes = ::recv(socket_, some, sizeof(some), 0)) > 0)
      all.append(some, static_cast<std::size_t>(bytes));
    EXPECT_FALSE(bytes < 0 && errno == EAGAIN) << "the server keeps the connection open";
    return all;
  }
  // Until `text` has come.
  bool receive_through(const std::string& text) {
    char one = 0;
    while (received_.find(text) == std::string::npos && ::recv(socket_, &one, 1, 0) == 1)
      received_ += one;
    return received_.find(text) != std::string::npos;
  }

 private:
  const int socket_;
  std::string received_;
};

std::string ask(const HttpServer& server, const std::string& request) {
  Client client(server);
  client.send(request);
  return client.receive_all();
}

std::string get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
}

int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
}

std::string body_of(const std::string& answer) {
  const std::size_t head = answer.find("\r\n\r\n");
  return head == std::string::npos ? "" : answer.substr(head + 4);
}

// A server cannot be asked when a connection ends; the test's own time limit ends this.
void wait_for_connections(const HttpServer& server, int count) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (server.connections() != count && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  ASSERT_EQ(server.connections(), count);
}

HttpRoutes routes() {
  return {{"GET", "/health", [](const HttpRequest&) { return HttpAnswer{.body = "SERVING\n"}; }},
          {"GET", "/large",
           [](const HttpRequest&) { return HttpAnswer{.body = std::string(64 << 20, 'x')}; }},
          {"POST", "/echo", [](const HttpRequest& request) {
             return HttpAnswer{.body = request.query + "|" + request.body, .type = "text/x-echo"};
           }}};
}

TEST(HttpServer, AnswersFromItsRoutes) {
  const HttpServer server({}, routes());
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

TEST(HttpServer, AnswersOtherPathsAndMethodsWith404And405) {
  const HttpServer server({}, routes());
  EXPECT_EQ(status_of(ask(server, get("/"))), 404);
  EXPECT_EQ(status_of(ask(server, get("/health/../health"))), 404);
  const std::string posted =
      ask(server, "POST /health HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(status_of(posted), 405);
  EXPECT_NE(posted.find("Allow: GET\r\n"), std::string::npos);
  const std::string head = ask(server, "HEAD /health HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(status_of(head), 405);
  EXPECT_EQ(body_of(head), "");  // a body would be read as the next answer
}

TEST(HttpServer, AnswersSeveralRequestsOfOneConnection) {
  const HttpServer server({}, routes());
  const std::string open = "GET /health HTTP/1.1\r\n\r\n";
  const std::string answers = ask(server, open + open + get("/nowhere"));
  const std::size_t second = answers.find("HTTP/1.1 200 OK", 1);
  ASSERT_NE(second, std::string::npos);
  EXPECT_EQ(answers.find("HTTP/1.1 200 OK"), 0u);
  EXPECT_NE(answers.find("HTTP/1.1 404 Not Found", second), std::string::npos);
}

TEST(HttpServer, ClosesConnectionOfHttp10AfterItsAnswer) {
  const HttpServer server({}, routes());
  EXPECT_EQ(body_of(ask(server, "GET /health HTTP/1.0\r\n\r\n")), "SERVING\n");
}

TEST(HttpServer, AnswersChunkedBody) {
  const HttpServer server({}, routes());
  const std::string answer = ask(server,
                                 "POST /echo HTTP/1.1\r\nConnection: close\r\n"
                                 "Transfer-Encoding: chunked\r\n\r\n"
                                 "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
  EXPECT_EQ(body_of(answer), "|onetwo");
}

TEST(HttpServer, RefusesHeaderBeyondLimitWith431) {
  const HttpServer server({.limits = {.header_bytes = 1024}}, routes());
  std::string many = "GET /health HTTP/1.1\r\n";
  for (int i = 0; i < 100'000; ++i) many += "X-" + std::to_string(i) + ": y\r\n";
  const std::string endless(4 << 20, 'a');  // no line ends
  for (const std::string& flood :
       {many, "GET /" + endless, "GET / HTTP/1.1\r\nX: " + endless, endless}) {
    const int status = status_of(ask(server, flood));
    EXPECT_TRUE(status == 431 || status == 400) << status << " for " << flood.substr(0, 30);
  }
  EXPECT_EQ(status_of(ask(server, many)), 431);
  const auto with_field = [](std::size_t bytes) {
    return "GET /health HTTP/1.1\r\nConnection: close\r\nX: " + std::string(bytes, 'y') +
           "\r\n\r\n";
  };
  EXPECT_EQ(status_of(ask(server, with_field(900))), 200);
  EXPECT_EQ(status_of(ask(server, with_field(1100))), 431);  // less than the buffer holds
  EXPECT_EQ(status_of(ask(server, get("/health"))), 200);
}

TEST(HttpServer, RefusesBodyBeyondLimitWith413) {
  const HttpServer server({.limits = {.body_bytes = 100}}, routes());
  const std::string head = "POST /echo HTTP/1.1\r\nConnection: close\r\n";
  const auto stated = [&](int bytes) {
    return head + "Content-Length: " + std::to_string(bytes) + "\r\n\r\n" + std::string(bytes, 'x');
  };
  EXPECT_EQ(status_of(ask(server, stated(100))), 200);
  EXPECT_EQ(status_of(ask(server, stated(101))), 413);
  EXPECT_EQ(status_of(ask(server, head + "Content-Length: 99999999999999\r\n\r\n")), 413);
  std::string chunks = head + "Transfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 1000; ++i) chunks += "10\r\n0123456789abcdef\r\n";
  EXPECT_EQ(status_of(ask(server, chunks)), 413);
}

TEST(HttpServer, RefusesMalformedRequestWith400) {
  const HttpServer server({}, routes());
  for (const std::string request :
       {"nonsense\r\n\r\n", "GET /health HTTP/9.9\r\n\r\n", "GET /health\r\n\r\n",
        "GET /health HTTP/1.1\r\nno colon\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "POST /echo HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx"})
    EXPECT_EQ(status_of(ask(server, request)), 400) << request;
}

TEST(HttpServer, SurvivesRandomBytes) {
  const HttpServer server({}, routes());
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string request = get("/health");
    for (int change = 0; change < 1 + round % 8; ++change)
      request[random() % request.size()] = static_cast<char>(random() % 256);
    Client client(server);
    client.send(request);
    client.end_sending();
    client.receive_all();
  }
  EXPECT_EQ(status_of(ask(server, get("/health"))), 200);
}

TEST(HttpServer, ClosesConnectionWhoseRequestIsSlow) {
  const HttpServer server({.limits = {.request = 200ms}}, routes());
  Client client(server);
  const std::string request = "GET /health HTTP/1.1\r\nX-Slow: " + std::string(10'000, 'x');
  std::size_t sent = 0;
  // Each byte comes well within the limit; the whole request does not.
  while (sent < request.size() && client.send(request.substr(sent, 1))) {
    ++sent;
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_LT(sent, request.size());
  EXPECT_EQ(client.receive_all(), "");
  wait_for_connections(server, 0);
}

TEST(HttpServer, ClosesConnectionWhoseBodyIsSlow) {
  const HttpServer server({.limits = {.request = 200ms}}, routes());
  Client client(server);
  client.send("POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nbut no body");
  EXPECT_EQ(client.receive_all(), "");
}

TEST(HttpServer, ClosesIdleConnection) {
  const HttpServer server({.limits = {.request = 200ms}}, routes());
  Client silent(server);
  EXPECT_EQ(silent.receive_all(), "");
  Client answered(server);
  answered.send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_EQ(body_of(answered.receive_all()), "SERVING\n");  // then idle, then closed
}

TEST(HttpServer, ClosesConnectionWhoseClientDoesNotRead) {
  const HttpServer server({.limits = {.answer = 200ms}}, routes());
  Client client(server, 4096);
  client.send(get("/large"));
  wait_for_connections(server, 1);
  wait_for_connections(server, 0);
  EXPECT_LT(client.receive_all().size(), std::size_t{64} << 20);
}

TEST(HttpServer, SendsWholeAnswerToClientThatReads) {
  const HttpServer server({}, routes());
  EXPECT_EQ(body_of(ask(server, get("/large"))), std::string(64 << 20, 'x'));
}

TEST(HttpServer, AnswersHalfClosedConnectionThenClosesIt) {
  const HttpServer server({}, routes());
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

// A reset after the refusal could cost the client the refusal.
TEST(HttpServer, ReadsForAWhileAfterARefusal) {
  const HttpServer server({}, routes());
  Client client(server);
  client.send("GET / HTTP/1.1\r\nX: " + std::string(1 << 20, 'x'));
  ASSERT_TRUE(client.receive_through("the header is too long\n"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(client.send("more"));
    std::this_thread::sleep_for(10ms);
  }
  wait_for_connections(server, 0);  // however long the client stays
}

TEST(HttpServer, LetsConnectionsBeyondLimitWait) {
  const HttpServer server({.limits = {.connections = 2}}, routes());
  auto first = std::make_unique<Client>(server);
  const Client second(server);
  wait_for_connections(server, 2);
  Client third(server);
  third.send(get("/health"));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(server.connections(), 2);
  first.reset();
  EXPECT_EQ(body_of(third.receive_all()), "SERVING\n");
}

// Handlers of /wait hold until open() is called.
class Gate {
 public:
  HttpRoutes routes() {
    HttpRoutes all = strata::routes();
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
  const HttpServer server({}, routes());
  try {
    const HttpServer other({.port = port_of(server)}, routes());
    FAIL() << "two servers listen at one port";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().operation, "http.listen");
    EXPECT_EQ(error.text().where, server.address());
    EXPECT_FALSE(error.text().fix.empty());
  }
  EXPECT_THROW(HttpServer({.host = "no.such.host.invalid"}, routes()), UserError);
}

TEST(HttpServer, ListensAtIpv6Loopback) {
  try {
    const HttpServer server({.host = "::1"}, routes());
    EXPECT_TRUE(server.address().starts_with("[::1]:"));
  } catch (const UserError&) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
}

}  // namespace
}  // namespace strata
