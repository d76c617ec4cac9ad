// Answers that come in pieces or later, and clients that leave meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/http/http_client_test.h"
#include "strata/http/http_server.h"

namespace strata {
namespace {

// Keeps the streams and responders of /stream and /later for the test to use.
class Held {
 public:
  HttpRoutes routes() {
    HttpRoutes all = test_routes();
    all.push_back({.method = "GET", .path = "/stream", .handler = [this](const HttpRequest&) {
                     return HttpAnswer{.type = kEventStream, .stream = [this](auto stream) {
                                         const std::lock_guard lock(mutex_);
                                         stream->on_closed([this] { ++closed; });
                                         streams_.push_back(std::move(stream));
                                       }};
                   }});
    all.push_back(
        {.method = "GET", .path = "/later", .asynchronous = [this](HttpRequest, auto responder) {
           const std::lock_guard lock(mutex_);
           responder->on_closed([this] { ++closed; });
           responders_.push_back(std::move(responder));
         }});
    all.push_back({.method = "GET",
                   .path = "/live",
                   .handler = [](const HttpRequest&) { return HttpAnswer{.body = "live\n"}; },
                   .while_draining = true});
    return all;
  }
  std::size_t streams() { return size(streams_); }
  // The oldest stream or responder; the caller becomes its owner.
  std::shared_ptr<HttpStream> stream() { return next(streams_); }
  std::shared_ptr<HttpResponder> responder() { return next(responders_); }
  std::atomic<int> closed = 0;

 private:
  template <typename T>
  std::size_t size(const std::vector<T>& held) {
    const std::lock_guard lock(mutex_);
    return held.size();
  }
  template <typename T>
  T next(std::vector<T>& held) {
    if (!becomes_true([&] { return size(held) > 0; })) throw std::runtime_error("no request came");
    const std::lock_guard lock(mutex_);
    T first = held.front();
    held.erase(held.begin());
    return first;
  }
  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpStream>> streams_;
  std::vector<std::shared_ptr<HttpResponder>> responders_;
};

TEST(HttpStream, SendsPiecesAsChunks) {
  Held held;
  const HttpServer server({}, held.routes());
  Client client(server);
  client.send("GET /stream HTTP/1.1\r\n\r\n" + get("/health"));
  const auto stream = held.stream();
  EXPECT_TRUE(stream->write("data: 1\n\n"));
  ASSERT_TRUE(client.receive_through("\r\n\r\n9\r\ndata: 1\n\n\r\n"));  // before the next piece
  EXPECT_TRUE(stream->write("0123456789abcdef"));
  ASSERT_TRUE(client.receive_through("10\r\n0123456789abcdef\r\n"));
  EXPECT_TRUE(stream->write(""));
  stream->finish();
  EXPECT_FALSE(stream->write("late"));
  const std::string all = client.receive_all();
  EXPECT_EQ(status_of(all), 200);
  EXPECT_NE(all.find("Content-Type: text/event-stream\r\n"), std::string::npos);
  EXPECT_NE(all.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_EQ(all.find("Content-Length"), all.find("Content-Length: 8"));  // only of /health
  EXPECT_NE(all.find("\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n"), std::string::npos);
  EXPECT_TRUE(all.ends_with("SERVING\n"));
  EXPECT_EQ(held.closed, 1);
}

TEST(HttpStream, EndsWithConnectionOfHttp10) {
  Held held;
  const HttpServer server({}, held.routes());
  Client client(server);
  client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto stream = held.stream();
  stream->write("one");
  stream->write("two");
  stream->finish();
  const std::string all = client.receive_all();
  EXPECT_EQ(all.find("chunked"), std::string::npos);
  EXPECT_EQ(body_of(all), "onetwo");
}

TEST(HttpStream, KeepsEveryPieceOfSeveralThreads) {
  Held held;
  const HttpServer server({}, held.routes());
  Client client(server);
  client.send(get("/stream"));
  const auto stream = held.stream();
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i)
    writers.emplace_back([&] {
      for (int piece = 0; piece < 1000; ++piece) EXPECT_TRUE(stream->write("xyz;"));
    });
  for (std::thread& writer : writers) writer.join();
  stream->finish();
  const std::string all = client.receive_all();
  std::size_t pieces = 0;
  for (std::size_t at = all.find(';'); at != std::string::npos; at = all.find(';', at + 1))
    ++pieces;
  EXPECT_EQ(pieces, 4000u);
  EXPECT_TRUE(all.ends_with("0\r\n\r\n"));
}

TEST(HttpStream, LeavesBodyIncompleteWithoutFinish) {
  Held held;
  const HttpServer server({}, held.routes());
  Client client(server);
  client.send("GET /stream HTTP/1.1\r\n\r\n");
  held.stream()->write("part");
  const std::string all = client.receive_all();
  EXPECT_TRUE(all.ends_with("\r\n4\r\npart\r\n")) << all;
  ASSERT_TRUE(becomes_true([&] { return held.closed == 1; }));
}

TEST(HttpStream, NoticesClientThatLeavesWhileNothingIsWritten) {
  Held held;
  const HttpServer server({}, held.routes());
  for (const bool resets : {false, true}) {
    held.closed = 0;
    auto client = std::make_unique<Client>(server);
    client->send(get("/stream"));
    const auto stream = held.stream();
    ASSERT_TRUE(client->receive_through("\r\n\r\n"));
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(held.closed, 0);
    if (resets) client->reset();
    client.reset();
    ASSERT_TRUE(becomes_true([&] { return held.closed == 1; }));
    EXPECT_TRUE(becomes_true([&] { return !stream->write("more"); }));
  }
  wait_for_connections(server, 0);
  EXPECT_EQ(server.requests(), 0);
}

// A client that ends its sending counts as gone, but gets what is written nevertheless.
TEST(HttpStream, SendsToHalfClosedClient) {
  Held held;
  const HttpServer server({}, held.routes());
  Client client(server);
  client.send(get("/stream"));
  client.end_sending();
  const auto stream = held.stream();
  ASSERT_TRUE(becomes_true([&] { return held.closed == 1; }));
  EXPECT_TRUE(stream->write("still"));
  ASSERT_TRUE(client.receive_through("still"));
  stream->finish();
  EXPECT_TRUE(client.receive_all().ends_with("0\r\n\r\n"));
  EXPECT_EQ(held.closed, 1);
}

TEST(HttpStream, ClosesWhenClientReadsSlowly) {
  Held held;
  const HttpServer server({.limits = {.answer = 1h, .stream_bytes = 64 << 10}}, held.routes());
  Client client(server, 4096);
  client.send(get("/stream"));
  const auto stream = held.stream();
  std::size_t accepted = 0;
  const std::string piece(16 << 10, 'x');
  while (stream->write(piece)) {
    accepted += piece.size();
    std::this_thread::sleep_for(500us);  // the kernel's buffers fill first, then the stream's
  }
  EXPECT_LT(accepted, std::size_t{32} << 20);  // the kernel's buffers and the stream's
  EXPECT_FALSE(stream->write("x"));
  wait_for_connections(server, 0);  // without the limit of time
  EXPECT_EQ(held.closed, 1);
  EXPECT_FALSE(client.receive_all().ends_with("0\r\n\r\n"));
}

TEST(HttpStream, ClosesWhenClientDoesNotReadInTime) {
  Held held;
  const HttpServer server({.limits = {.answer = 100ms}}, held.routes());
  Client client(server, 4096);
  client.send(get("/stream"));
  const auto stream = held.stream();
  EXPECT_TRUE(stream->write(std::string(64 << 20, 'x')));  // one piece may have any length
  wait_for_connections(server, 0);
  EXPECT_EQ(held.closed, 1);
  EXPECT_FALSE(stream->write("x"));
}

TEST(HttpStream, CallsWhatIsRegisteredAfterItsEnd) {
  Held held;
  auto server = std::make_unique<HttpServer>(HttpListen{}, held.routes());
  Client client(*server);
  client.send(get("/stream"));
  const auto stream = held.stream();
  stream->finish();
  client.receive_all();
  ASSERT_TRUE(becomes_true([&] { return held.closed == 1; }));
  std::promise<std::thread::id> called;
  stream->on_closed([&] { called.set_value(std::this_thread::get_id()); });
  EXPECT_NE(called.get_future().get(), std::this_thread::get_id());
  server.reset();
  bool at_once = false;
  stream->on_closed([&] { at_once = true; });
  EXPECT_TRUE(at_once);
  EXPECT_FALSE(stream->write("x"));
}

TEST(HttpStream, DoesNotStartForHead) {
  Held held;
  const HttpServer server({}, held.routes());
  const std::string all = ask(
      server, "HEAD /stream HTTP/1.1\r\n\r\nHEAD /health HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_NE(all.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_NE(all.find("\r\n\r\nHTTP/1.1 200 OK\r\n"), std::string::npos);
  EXPECT_NE(all.find("Content-Length: 8\r\n"), std::string::npos);
  EXPECT_TRUE(all.ends_with("\r\n\r\n"));
  EXPECT_EQ(held.streams(), 0u);
}

int threads_of_this_process() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "Threads:") {
      int count = 0;
      status >> count;
      return count;
    }
  return 0;
}

TEST(HttpStream, HoldsHundredsOpenWithoutAThreadEach) {
  Held held;
  const HttpServer server({.limits = {.connections = 200, .handler_threads = 1}}, held.routes());
  const int threads = threads_of_this_process();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<Client>(server));
    clients.back()->send(get("/stream"));
  }
  std::vector<std::shared_ptr<HttpStream>> streams;
  while (streams.size() < clients.size()) streams.push_back(held.stream());
  EXPECT_EQ(server.requests(), 200);
  EXPECT_EQ(threads_of_this_process(), threads);
  for (int piece = 0; piece < 10; ++piece)
    for (const auto& stream : streams) EXPECT_TRUE(stream->write("piece;"));
  for (const auto& stream : streams) stream->finish();
  for (const auto& client : clients) {
    const std::string all = client->receive_all();
    EXPECT_TRUE(all.ends_with("0\r\n\r\n"));
    EXPECT_NE(all.find("piece;"), std::string::npos);
  }
  EXPECT_TRUE(becomes_true([&] { return held.closed == 200; }));
}

TEST(HttpResponder, AnswersLaterAndOnce) {
  Held held;
  const HttpServer server({.limits = {.request = 50ms, .answer = 50ms, .handler_threads = 1}},
                          held.routes());
  Client client(server);
  client.send("GET /later HTTP/1.1\r\n\r\n" + get("/later"));
  const auto first = held.responder();
  EXPECT_EQ(body_of(ask(server, get("/health"))), "SERVING\n");  // the thread is free
  std::this_thread::sleep_for(100ms);
  first->answer({.status = 429, .body = "first\n", .headers = {{"Retry-After", "3"}}});
  first->answer({.body = "second\n"});
  const auto second = held.responder();
  second->answer({.body = "third\n"});
  const std::string all = client.receive_all();
  EXPECT_EQ(status_of(all), 429);
  EXPECT_NE(all.find("Retry-After: 3\r\n"), std::string::npos);
  EXPECT_NE(all.find("first\n"), std::string::npos);
  EXPECT_EQ(all.find("second\n"), std::string::npos);
  EXPECT_TRUE(all.ends_with("third\n"));
}

TEST(HttpResponder, AnswersStatus500WhenItIsReleased) {
  Held held;
  const HttpServer server({}, held.routes());
  Client client(server);
  client.send(get("/later"));
  held.responder();
  EXPECT_EQ(status_of(client.receive_all()), 500);
}

TEST(HttpResponder, AnswersErrorsOfItsHandler) {
  HttpRoutes routes = {{.method = "GET", .path = "/", .asynchronous = [](HttpRequest, auto) {
                          throw UserError({.operation = "test.refuse", .what = "no such row"});
                        }}};
  const HttpServer server({}, routes);
  const std::string answer = ask(server, get("/"));
  EXPECT_EQ(status_of(answer), 400);
  EXPECT_NE(answer.find("no such row"), std::string::npos);
}

TEST(HttpResponder, NoticesClientThatLeavesBeforeItsAnswer) {
  Held held;
  const HttpServer server({}, held.routes());
  {
    Client client(server);
    client.send(get("/later"));
    const auto responder = held.responder();
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(held.closed, 0);
    client.end_sending();
    ASSERT_TRUE(becomes_true([&] { return held.closed == 1; }));
    EXPECT_EQ(server.connections(), 1);  // until the handler has given up
  }
  wait_for_connections(server, 0);
  EXPECT_EQ(held.closed, 1);
}

TEST(HttpServer, HoldsBackClientThatSendsWhileItWaits) {
  Held held;
  const HttpServer server({}, held.routes());
  Client client(server);
  client.send("GET /later HTTP/1.1\r\n\r\n");
  const auto responder = held.responder();
  const timeval patience{.tv_sec = 0, .tv_usec = 50'000};
  ::setsockopt(client.socket(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  std::size_t sent = 0;
  const std::string requests(64 << 10, 'x');
  for (int refused = 0; sent < 64 << 20 && refused < 20;)  // a busy machine also refuses some
    client.send(requests) ? sent += requests.size() : refused += 1;
  EXPECT_LT(sent, std::size_t{64} << 20);  // the kernel's buffers are full
  responder->answer({.body = "now\n"});
  EXPECT_TRUE(client.receive_through("now\n"));
  EXPECT_NE(client.receive_all().find("HTTP/1.1 4"), std::string::npos);
}

TEST(HttpServer, FinishesRequestsWhileItDrains) {
  Held held;
  HttpServer server({}, held.routes());
  Client streaming(server), idle(server), later(server);
  idle.send("GET /health HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(idle.receive_through("SERVING\n"));
  streaming.send("GET /stream HTTP/1.1\r\n\r\n");
  later.send("GET /later HTTP/1.1\r\n\r\n");
  const auto stream = held.stream();
  const auto responder = held.responder();
  server.stop_accepting();
  idle.send("GET /health HTTP/1.1\r\n\r\n");
  for (const std::string& refused :
       {idle.receive_all(), ask(server, "GET /health HTTP/1.1\r\n\r\n")}) {
    EXPECT_NE(refused.find("HTTP/1.1 503 Service Unavailable\r\n"), std::string::npos);
    EXPECT_NE(refused.find("Retry-After: 1\r\n"), std::string::npos);
    EXPECT_NE(refused.find("Connection: close\r\n"), std::string::npos);
  }
  // A body is not waited for.
  EXPECT_EQ(status_of(ask(server, "POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\n")), 503);
  EXPECT_EQ(body_of(ask(server, get("/live"))), "live\n");
  EXPECT_TRUE(stream->write("more"));
  ASSERT_TRUE(streaming.receive_through("more"));
  EXPECT_EQ(server.requests(), 2);
  EXPECT_FALSE(server.wait_idle(std::chrono::steady_clock::now() + 20ms));
  responder->answer({.body = "done\n"});
  EXPECT_TRUE(later.receive_all().ends_with("done\n"));  // the connection closes
  stream->finish();
  EXPECT_TRUE(server.wait_idle(std::chrono::steady_clock::now() + 30s));
  EXPECT_TRUE(streaming.receive_all().ends_with("0\r\n\r\n"));
  EXPECT_EQ(server.requests(), 0);
}

TEST(HttpServer, EndsStreamsAndCallsThatTheirHandlersWaitFor) {
  Held held;
  HttpRoutes routes = held.routes();
  std::promise<void> waits;
  routes.push_back({.method = "GET", .path = "/wait", .handler = [&](const HttpRequest&) {
                      return HttpAnswer{.stream = [&](const std::shared_ptr<HttpStream>& stream) {
                        std::promise<void> closed;
                        stream->on_closed([&] { closed.set_value(); });
                        waits.set_value();
                        closed.get_future().get();  // occupies a thread of the handlers
                      }};
                    }});
  auto server = std::make_unique<HttpServer>(HttpListen{}, routes);
  Client streaming(*server), later(*server), waiting(*server);
  streaming.send(get("/stream"));
  later.send(get("/later"));
  waiting.send(get("/wait"));
  const auto stream = held.stream();
  const auto responder = held.responder();
  waits.get_future().get();
  server.reset();
  EXPECT_EQ(held.closed, 2);
  EXPECT_FALSE(stream->write("x"));
  responder->answer({.body = "nowhere\n"});
  EXPECT_EQ(later.receive_all(), "");
}

}  // namespace
}  // namespace strata
