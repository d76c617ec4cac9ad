/// Talks to an HttpServer through a bare socket, so that tests can misbehave.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "strata/http/http_server.h"

namespace strata {

using namespace std::chrono_literals;

inline int port_of(const HttpServer& server) {
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

  int socket() const { return socket_; }

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
  // Makes the destructor reset the connection.
  void reset() {
    const linger hard{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  }

  // Until the server closes the connection.
  std::string receive_all() {
    std::string all = std::move(received_);
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

inline std::string ask(const HttpServer& server, const std::string& request) {
  Client client(server);
  client.send(request);
  return client.receive_all();
}

inline std::string get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
}

inline int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
}

inline std::string body_of(const std::string& answer) {
  const std::size_t head = answer.find("\r\n\r\n");
  return head == std::string::npos ? "" : answer.substr(head + 4);
}

inline HttpRoutes test_routes() {
  return {{"GET", "/health", [](const HttpRequest&) { return HttpAnswer{.body = "SERVING\n"}; }},
          {"GET", "/large",
           [](const HttpRequest&) { return HttpAnswer{.body = std::string(64 << 20, 'x')}; }},
          {"POST", "/echo", [](const HttpRequest& request) {
             return HttpAnswer{.body = request.query + "|" + request.body, .type = "text/x-echo"};
           }}};
}

// Whether the condition holds within a time that only a server that hangs exceeds.
inline bool becomes_true(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

inline void wait_for_connections(const HttpServer& server, int count) {
  ASSERT_TRUE(becomes_true([&] { return server.connections() == count; }))
      << server.connections() << " connections";
}

}  // namespace strata
