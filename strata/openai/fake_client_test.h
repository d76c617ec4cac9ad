/// Calls routes as the HTTP server does, without sockets, and keeps what they answer.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "strata/http/routes.h"
#include "strata/openai/fake_service_test.h"
#include "strata/openai/routes.h"

namespace strata {

using TestJson = nlohmann::ordered_json;

/// A client that may leave after some pieces of a stream.
class FakeClient : public HttpResponder,
                   public HttpStream,
                   public std::enable_shared_from_this<FakeClient> {
 public:
  explicit FakeClient(int leaves_after = -1) : leaves_after_(leaves_after) {}

  void answer(HttpAnswer answer) override {
    auto stream = answer.stream;
    {
      const std::scoped_lock lock(mutex_);
      if (answered_) return;
      answered_ = true;
      done_ = stream == nullptr;
      answer_ = std::move(answer);
    }
    changed_.notify_all();
    if (stream) stream(shared_from_this());
  }
  bool write(std::string bytes) override {
    const std::scoped_lock lock(mutex_);
    if (leaves_after_ == 0) {
      done_ = true;
      changed_.notify_all();
      return false;
    }
    if (leaves_after_ > 0) --leaves_after_;
    body_ += bytes;
    return true;
  }
  void finish() override {
    const std::scoped_lock lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  void on_closed(std::function<void()> closed) override {
    const std::scoped_lock lock(mutex_);
    closed_ = std::move(closed);
  }

  /// The client's end of the connection goes away.
  void leave() {
    std::function<void()> closed;
    {
      const std::scoped_lock lock(mutex_);
      closed = closed_;
    }
    if (closed) closed();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(30), [this] { return done_; }));
  }
  int status() const { return answer_.status; }
  const std::string& type() const { return answer_.type; }
  std::string body() const { return answer_.stream ? body_ : answer_.body; }
  TestJson json() const { return TestJson::parse(body()); }
  std::string header(const std::string& name) const {
    for (const auto& [known, value] : answer_.headers)
      if (known == name) return value;
    return "";
  }

  /// The objects of a stream's events; checks that "[DONE]" is the last event.
  std::vector<TestJson> events() const {
    std::vector<TestJson> events;
    std::string rest = body();
    const std::string done = "data: [DONE]\n\n";
    EXPECT_TRUE(rest.ends_with(done)) << rest;
    rest.resize(rest.size() - std::min(rest.size(), done.size()));
    while (!rest.empty()) {
      const std::size_t end = rest.find("\n\n");
      if (end == std::string::npos || !rest.starts_with("data: ")) {
        ADD_FAILURE() << rest;
        break;
      }
      events.push_back(TestJson::parse(rest.substr(6, end - 6)));
      rest = rest.substr(end + 2);
    }
    return events;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int leaves_after_;
  bool answered_ = false, done_ = false;
  HttpAnswer answer_;
  std::string body_;
  std::function<void()> closed_;
};

inline constexpr const char* kTestTemplate =
    "{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('no such role') }}{% endif "
    "%}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    "{% if shout %}!{% endif %}";

/// A server of one model "m" of bytes, which ends texts with a line end.
class TestServer {
 public:
  explicit TestServer(FakeService::Options options = {}, std::shared_ptr<const Keys> keys = nullptr)
      : service(std::make_shared<FakeService>(std::move(options))) {
    routes = openai_routes({.models = {model("m")}, .keys = std::move(keys), .version = "1.2"});
  }

  OpenAiModel model(const std::string& name) const {
    return {.name = name,
            .tokenizer = make_tokenizer("bytes"),
            .service = service,
            .chat = ChatTemplate(kTestTemplate, "test", {}),
            .special = {{"eos_token", "\n"}},
            .token_names = {},
            .ends = {'\n'},
            .created = 5};
  }

  std::shared_ptr<FakeClient> start(const std::string& method, const std::string& target,
                                    std::string body = "", HttpFields headers = {},
                                    int leaves_after = -1) const {
    const auto client = std::make_shared<FakeClient>(leaves_after);
    HttpRequest request{.method = method, .path = target.substr(0, target.find('?'))};
    request.body = std::move(body);
    request.headers = std::move(headers);
    if (const auto at = target.find("?model="); at != std::string::npos)
      request.query_values = {{"model", target.substr(at + 7)}};
    const HttpMatch match = match_route(routes, method, request.path);
    if (match.route == nullptr) {
      client->answer(match.answer);
      return client;
    }
    request.parameters = match.parameters;
    run_route(*match.route, std::move(request), client);
    return client;
  }

  /// Waits for the whole answer.
  std::shared_ptr<FakeClient> call(const std::string& method, const std::string& target,
                                   std::string body = "", HttpFields headers = {}) const {
    const auto client = start(method, target, std::move(body), std::move(headers));
    client->wait();
    return client;
  }

  TestJson completion(const TestJson& request) const {
    const auto client = call("POST", "/v1/completions", request.dump());
    EXPECT_EQ(client->status(), 200) << client->body();
    return client->json();
  }
  TestJson chat(const TestJson& request) const {
    const auto client = call("POST", "/v1/chat/completions", request.dump());
    EXPECT_EQ(client->status(), 200) << client->body();
    return client->json();
  }
  std::vector<TestJson> stream(const std::string& path, TestJson request) const {
    request["stream"] = true;
    const auto client = call("POST", path, request.dump());
    EXPECT_EQ(client->status(), 200) << client->body();
    EXPECT_EQ(client->type(), kEventStream);
    return client->events();
  }
  std::string text(const TestJson& request) const {
    return completion(request)["choices"][0]["text"].get<std::string>();
  }
  /// The error object of a refused request.
  TestJson refusal(const std::string& path, const TestJson& request, int status = 400) const {
    const auto client = call("POST", path, request.dump());
    EXPECT_EQ(client->status(), status) << request.dump() << client->body();
    return client->json()["error"];
  }

  std::shared_ptr<FakeService> service;
  HttpRoutes routes;
};

/// The JSON without what differs between two runs.
inline TestJson without_ids(TestJson json) {
  json["id"] = json["id"].get<std::string>().substr(0, json["id"].get<std::string>().find('-'));
  json["created"] = json["created"].get<std::int64_t>() > 1'700'000'000 ? 1 : 0;
  return json;
}

}  // namespace strata
