/// Sends inputs to routes: the first byte chooses the route, the rest is the body. Each request
/// must be answered, never with status 500, and a body of JSON must be JSON.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fuzz.h"
#include "strata/openai/fake_client_test.h"

namespace strata::fuzz {

struct Target {
  const char* method;
  const char* path;
};

inline void check_answer(const FakeClient& client) {
  require(client.status() >= 200 && client.status() != 500, "a server has no error of its own");
  if (client.type().starts_with("application/json") && !client.body().empty())
    require(TestJson::accept(client.body()), "a body of JSON is JSON");
}

/// `headers`: makes the headers of the request, and may change its body.
template <typename Server>
void send(std::span<const Target> targets, std::string_view input,
          HttpFields (*headers)(std::string& body) = nullptr) {
  constexpr int kRequests = 2000;  // then a new server, because the fake keeps its requests
  static std::unique_ptr<Server> server;
  static int requests = 0;
  if (requests++ % kRequests == 0) server = std::make_unique<Server>();
  if (input.empty()) return;
  const Target& target = targets[static_cast<unsigned char>(input[0]) % targets.size()];
  std::string body(input.substr(1));
  HttpFields fields;
  if (headers != nullptr) fields = headers(body);
  check_answer(*server->call(target.method, target.path, std::move(body), std::move(fields)));
}

}  // namespace strata::fuzz
