// Clients that send or read what they should not.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "strata/http/http_client_test.h"
#include "strata/http/http_server.h"

namespace strata {
namespace {

TEST(HttpServer, RefusesHeaderBeyondLimitWith431) {
  const HttpServer server({.limits = {.header_bytes = 1024}}, test_routes());
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
  const HttpServer server({.limits = {.body_bytes = 100}}, test_routes());
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

TEST(HttpServer, ClosesConnectionWhoseRequestIsSlow) {
  const HttpServer server({.limits = {.request = 200ms}}, test_routes());
  Client client(server);
  const std::string request = "GET /health HTTP/1.1\r\nX-Slow: " + std::string(10'000, 'x');
  std::size_t sent = 0;
  // Each byte comes well within the limit; the whole request does not.
  while (sent < request.size() && client.send(request.substr(sent, 1))) {
    ++sent;
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_LT(sent, request.size());
  EXPECT_EQ(status_of(client.receive_all()), 408);
  wait_for_connections(server, 0);
}

TEST(HttpServer, ClosesConnectionWhoseBodyIsSlow) {
  const HttpServer server({.limits = {.request = 200ms}}, test_routes());
  Client client(server);
  client.send("POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nbut no body");
  EXPECT_EQ(status_of(client.receive_all()), 408);
}

TEST(HttpServer, ClosesIdleConnection) {
  const HttpServer server({.limits = {.request = 200ms}}, test_routes());
  Client silent(server);
  EXPECT_EQ(silent.receive_all(), "");
  Client answered(server);
  answered.send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_EQ(body_of(answered.receive_all()), "SERVING\n");  // then idle, then closed
}

TEST(HttpServer, ClosesConnectionWhoseClientDoesNotRead) {
  const HttpServer server({.limits = {.answer = 200ms}}, test_routes());
  Client client(server, 4096);
  client.send(get("/large"));
  wait_for_connections(server, 1);
  wait_for_connections(server, 0);
  EXPECT_LT(client.receive_all().size(), std::size_t{64} << 20);
}

// A reset after the refusal could cost the client the refusal.
TEST(HttpServer, ReadsForAWhileAfterARefusal) {
  const HttpServer server({}, test_routes());
  Client client(server);
  client.send("GET / HTTP/1.1\r\nX: " + std::string(1 << 20, 'x'));
  ASSERT_TRUE(client.receive_through("the header is too long\n"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(client.send("more"));
    std::this_thread::sleep_for(10ms);
  }
  wait_for_connections(server, 0);  // however long the client stays
}

TEST(HttpServer, RefusesConnectionsBeyondLimitWith503) {
  const HttpServer server({.limits = {.connections = 2}}, test_routes());
  auto first = std::make_unique<Client>(server);
  const Client second(server);
  wait_for_connections(server, 2);
  Client third(server);
  third.send(get("/health"));
  const std::string answer = third.receive_all();
  EXPECT_EQ(status_of(answer), 503);
  EXPECT_NE(answer.find("Retry-After: 1\r\n"), std::string::npos);
  EXPECT_EQ(server.connections(), 2);
  first.reset();
  wait_for_connections(server, 1);
  EXPECT_EQ(body_of(ask(server, get("/health"))), "SERVING\n");
}

TEST(HttpServer, OutlivesFloodOfConnections) {
  const HttpServer server({.limits = {.connections = 4}}, test_routes());
  std::vector<std::unique_ptr<Client>> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(std::make_unique<Client>(server));
  wait_for_connections(server, 4);
  flood.clear();
  wait_for_connections(server, 0);
  EXPECT_EQ(body_of(ask(server, get("/health"))), "SERVING\n");
}

TEST(HttpServer, RefusesMalformedRequestWith400) {
  const HttpServer server({}, test_routes());
  const std::string post = "POST /echo HTTP/1.1\r\n";
  for (const std::string& request :
       {std::string("nonsense\r\n\r\n"), std::string("GET /health HTTP/9.9\r\n\r\n"),
        std::string("GET /health\r\n\r\n"), std::string("GET  /health HTTP/1.1\r\n\r\n"),
        std::string("GET /health HTTP/1.1\r\nno colon\r\n\r\n"),
        std::string("GET /health HTTP/1.1\r\n: no name\r\n\r\n"),
        std::string("GET /health HTTP/1.1\r\nA\0B: x\r\n\r\n", 32),
        std::string("GET /health HTTP/1.1\nHost: a\n\n\r\n\r\n"),
        std::string("GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        std::string("GET /health?a=%zz HTTP/1.1\r\n\r\n"), post + "Content-Length: -1\r\n\r\n",
        post + "Content-Length: +1\r\n\r\nx", post + "Content-Length: 0x1\r\n\r\nx",
        post + "Content-Length: 1 1\r\n\r\nx", post + "Content-Length: \r\n\r\n",
        post + "Content-Length: 99999999999999999999999\r\n\r\n"})
    EXPECT_EQ(status_of(ask(server, request)), 400) << request;
}

// If another server read the same bytes in another way, the rest of one client's request could
// become the begin of another client's.
TEST(HttpServer, RefusesBodiesOfDoubtfulLength) {
  const HttpServer server({}, test_routes());
  const std::string chunks = "\r\n\r\n0\r\n\r\n", hidden = get("/hidden");
  for (const std::string fields :
       {"Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5", "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 5", "Content-Length: 5, 6",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: identity\r\nContent-Length: 5", "Transfer-Encoding : chunked",
        "Content-Length : 5", "Transfer-Encoding: identity", "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity", "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: \x0b"
        "chunked",
        "Transfer-Encoding: chunked\r\n X: 1"}) {
    const std::string answer = ask(server, "POST /echo HTTP/1.1\r\n" + fields + chunks + hidden);
    EXPECT_TRUE(status_of(answer) == 400 || status_of(answer) == 501) << fields << '\n' << answer;
    EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << fields;  // no second answer
  }
  const std::string old = ask(server, "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked" + chunks);
  EXPECT_EQ(status_of(old), 400);
}

TEST(HttpServer, RefusesChunksOfBadSize) {
  const HttpServer server({}, test_routes());
  const std::string head = "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string chunks :
       {"x\r\n", "-1\r\n", "0x3\r\nabc\r\n0\r\n\r\n", " 3\r\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n", "\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "3\nabc\n0\n\n\r\n",
        "3\r\nabc0\r\n\r\n", "ffffffffffffffffff\r\nabc", "3;\x01=2\r\nabc\r\n0\r\n\r\n"}) {
    const std::string answer = ask(server, head + chunks + get("/hidden"));
    EXPECT_EQ(status_of(answer), 400) << chunks << '\n' << answer;
    EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << chunks;
  }
  EXPECT_EQ(status_of(ask(server, head + "7fffffffffffffff\r\nabc")), 413);
  EXPECT_EQ(status_of(ask(server, head + "ffffffffffffffff\r\nabc")), 413);
  EXPECT_EQ(status_of(ask(server, head + "3;" + std::string(1 << 20, 'x'))), 431);
  EXPECT_EQ(status_of(ask(server, head + "0\r\nX: " + std::string(1 << 20, 'x'))), 431);
}

TEST(HttpServer, ReadsChunksThatArriveByteByByte) {
  const HttpServer server({}, test_routes());
  for (const std::string chunks : {"0\r\n\r\n", "3\r\nabc\r\n1;a=b\r\nd\r\n0\r\nX: y\r\n\r\n"}) {
    Client client(server);
    client.send("POST /echo HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (const char byte : chunks) {
      client.send(std::string(1, byte));
      std::this_thread::sleep_for(2ms);
    }
    EXPECT_EQ(body_of(client.receive_all()), chunks[0] == '0' ? "|" : "|abcd");
  }
}

TEST(HttpServer, DoesNotLeaveItsPaths) {
  const HttpServer server({}, test_routes());
  for (const char* path :
       {"/../health", "/./health", "//health", "/health/", "/health/.", "/%2e%2e/health",
        "/.%2e/health", "/%2fhealth", "/health%2f", "/..%5chealth", "/HEALTH", "/health;a"})
    EXPECT_EQ(status_of(ask(server, get(path))), 404) << path;
  for (const char* path : {"/health%00", "/health%0d%0aX:%20y", "/%c0%ae", "/%ff", "/%", "/%zz",
                           "health", "*", "%2fhealth"})
    EXPECT_EQ(status_of(ask(server, get(path))), 400) << path;
  EXPECT_EQ(status_of(ask(server, get("/he%61lth"))), 200);
  EXPECT_EQ(status_of(ask(server, get("http://other.host/health"))), 200);
}

TEST(HttpServer, AnswersHundredsOfPipelinedRequestsInOrder) {
  const HttpServer server({}, test_routes());
  std::string all;
  for (int i = 0; i < 500; ++i)
    all += "POST /echo?" + std::to_string(i) + " HTTP/1.1\r\nContent-Length: 1\r\n\r\nx";
  Client client(server);
  std::thread sending([&] { client.send(all + get("/health")); });
  const std::string answers = client.receive_all();
  sending.join();
  std::size_t at = 0;
  for (int i = 0; i < 500 && at != std::string::npos; ++i)
    at = answers.find("\r\n\r\n" + std::to_string(i) + "|x", at);
  EXPECT_NE(at, std::string::npos);
  EXPECT_TRUE(answers.ends_with("SERVING\n"));
}

TEST(HttpServer, BoundsTheBodiesOfAllRequests) {
  HttpListen listen;
  listen.limits.body_bytes = 1 << 20;
  listen.limits.all_body_bytes = 3 << 20;
  std::mutex mutex;
  std::vector<std::shared_ptr<HttpResponder>> held;
  HttpRoutes routes = test_routes();
  routes.push_back(
      {.method = "POST", .path = "/later", .asynchronous = [&](HttpRequest, auto responder) {
         const std::lock_guard lock(mutex);
         held.push_back(std::move(responder));
       }});
  const HttpServer server(listen, routes);
  const auto post = [](const std::string& path, std::size_t bytes) {
    return "POST " + path +
           " HTTP/1.1\r\nConnection: close\r\nContent-Length: " + std::to_string(bytes) +
           "\r\n\r\n" + std::string(bytes, 'x');
  };
  Client clients[] = {Client(server), Client(server), Client(server)};
  for (Client& client : clients) client.send(post("/later", 1 << 20));
  ASSERT_TRUE(becomes_true([&] {
    const std::lock_guard lock(mutex);
    return held.size() == 3;
  }));
  EXPECT_EQ(status_of(ask(server, post("/echo", 1))), 503);
  EXPECT_EQ(status_of(ask(server, get("/health"))), 200);
  for (const auto& responder : held) responder->answer({});
  for (Client& client : clients) EXPECT_EQ(status_of(client.receive_all()), 200);
  EXPECT_EQ(status_of(ask(server, post("/echo", 1 << 20))), 200);
}

// The bytes of this process that are in memory.
std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

TEST(HttpServer, UsesFewBytesForClientsThatFlood) {
  const HttpServer server({.limits = {.connections = 200, .body_bytes = 4 << 20}}, test_routes());
  const std::string flood(64 << 10, 'x');
  const std::size_t before = resident_bytes();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<Client>(server));
    const int bytes = 64 << 10;
    ::setsockopt(clients.back()->socket(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    const int kind = i % 4;
    // Half a header; half a body; endless requests after a large answer that is not read; a claim.
    clients.back()->send(
        kind == 0   ? "GET /health HTTP/1.1\r\nX: " + flood.substr(0, 8000)
        : kind == 1 ? "POST /echo HTTP/1.1\r\nContent-Length: 65536\r\n\r\n" + flood.substr(1)
        : kind == 2 ? "POST /echo HTTP/1.1\r\nContent-Length: 60000\r\n\r\n" + flood
                    : "POST /echo HTTP/1.1\r\nContent-Length: 4194304\r\n\r\n");
  }
  wait_for_connections(server, 200);
  const std::size_t used = resident_bytes() - std::min(before, resident_bytes());
  EXPECT_LT(used, std::size_t{100} << 20);  // sanitizers' own bytes included
}

// Whether the text is a sequence of answers, each whole but perhaps the last.
bool is_answers(std::string text) {
  while (!text.empty()) {
    if (text.starts_with("HTTP/1.1 100 Continue\r\n\r\n")) {
      text.erase(0, 25);
      continue;
    }
    const std::size_t end = text.find("\r\n\r\n"), length = text.find("Content-Length: ");
    const bool has_body = status_of(text) != 204;
    if (status_of(text) < 200 || end == std::string::npos || (length < end) != has_body)
      return false;
    const std::size_t bytes = end + 4 + (has_body ? std::stoul(text.substr(length + 16)) : 0);
    if (text.size() < bytes) return false;
    text.erase(0, bytes);
  }
  return true;
}

std::string mutated(std::string text, std::mt19937& random, const std::vector<std::string>& seeds) {
  static const std::vector<std::string> tokens = {"\r\n",
                                                  "\r\n\r\n",
                                                  "\n",
                                                  "\r",
                                                  " ",
                                                  ":",
                                                  "%00",
                                                  "%2e%2e/",
                                                  "//",
                                                  "?",
                                                  ";",
                                                  "0\r\n\r\n",
                                                  "ffffffffffffffff\r\n",
                                                  "Transfer-Encoding: chunked\r\n",
                                                  "Content-Length: 3\r\n",
                                                  "Content-Length: 18446744073709551615\r\n",
                                                  "Expect: 100-continue\r\n",
                                                  "Connection: close\r\n",
                                                  "HTTP/1.0",
                                                  std::string(1, '\0'),
                                                  std::string(300, 'A'),
                                                  std::string(20'000, 'B')};
  for (std::size_t changes = 1 + random() % 4; changes > 0 && !text.empty(); --changes) {
    const std::size_t at = random() % text.size(), length = random() % 20;
    const std::string& other = seeds[random() % seeds.size()];
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(random() % 256);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), length));
        break;
      case 3:
        text.insert(at, tokens[random() % tokens.size()]);
        break;
      case 4:
        text.resize(at);
        break;
      default:
        text = text.substr(0, at) + other.substr(random() % other.size());
        break;
    }
  }
  return text;
}

// Other random numbers: --gtest_random_seed=N.
TEST(HttpServer, AnswersOrRefusesMutatedRequests) {
  const HttpServer server({}, test_routes());
  const std::string post = "POST /echo?a=1 HTTP/1.1\r\nHost: here\r\n";
  const std::string chunked =
      post +
      "Transfer-Encoding: chunked\r\n\r\n3;a=b\r\none\r\n10\r\n0123456789abcdef\r\n0\r\nX: "
      "y\r\n\r\n";
  const std::vector<std::string> seeds = {
      get("/health"),
      post + "Content-Length: 5\r\n\r\nhello",
      chunked,
      post + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
      "GET /%68ealth?x=%20 HTTP/1.0\r\n\r\n",
      "OPTIONS /echo HTTP/1.1\r\nX:  folded\r\n value\r\n\r\n" + get("/nowhere"),
      chunked + get("/health")};
  for (std::uint32_t round = 0; round < 4000; ++round) {
    const std::uint32_t seed =
        static_cast<std::uint32_t>(GTEST_FLAG_GET(random_seed)) * 4000 + round;
    std::mt19937 random(seed);
    const std::string request = mutated(seeds[random() % seeds.size()], random, seeds);
    const std::size_t cut = random() % (request.size() + 1);
    Client client(server);
    client.send(request.substr(0, cut));
    if (round % 16 == 0) std::this_thread::sleep_for(1ms);
    client.send(request.substr(cut));
    client.end_sending();
    const std::string answers = client.receive_all();
    ASSERT_TRUE(is_answers(answers)) << "seed " << seed << '\n' << request << '\n' << answers;
  }
  wait_for_connections(server, 0);
  EXPECT_EQ(server.requests(), 0);
  EXPECT_EQ(body_of(ask(server, get("/health"))), "SERVING\n");
}

}  // namespace
}  // namespace strata
