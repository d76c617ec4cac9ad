/// Serves a fake model "m" of bytes through the routes of KServe and OpenAI, without sockets, and
/// writes requests for it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/kserve/rest/infer_body.h"
#include "strata/kserve/rest/routes.h"
#include "strata/kserve/server_routes.h"
#include "strata/openai/fake_client_test.h"

namespace strata {

class KServeServer : public TestServer {
 public:
  explicit KServeServer(FakeService::Options options = {},
                        std::shared_ptr<const Keys> keys = nullptr)
      : TestServer(std::move(options), keys) {
    const OpenAiModel shared = model("m");
    repository = repository_of(shared);
    routes = server_routes(shared, repository, keys, "1.2");
  }

  TestJson json(const std::string& method, const std::string& path, std::string body = "") const {
    const auto client = call(method, path, std::move(body));
    EXPECT_EQ(client->status(), 200) << client->body();
    return client->json();
  }
  /// The message of a refused request.
  std::string refusal(const std::string& path, const std::string& body, int status = 400,
                      HttpFields headers = {}) const {
    const auto client = call("POST", path, body, std::move(headers));
    EXPECT_EQ(client->status(), status) << body << client->body();
    return client->json().at("error").get<std::string>();
  }

  std::shared_ptr<const ModelRepository> repository;
};

inline TestJson json_tensor(const std::string& name, const std::string& datatype, TestJson data) {
  return {{"name", name}, {"datatype", datatype}, {"shape", {data.size()}}, {"data", data}};
}

/// A request that continues `text` by `tokens` tokens.
inline TestJson text_request(const std::string& text, int tokens = 4,
                             TestJson more = TestJson::object()) {
  more["max_tokens"] = tokens;
  if (!more.contains("temperature")) more["temperature"] = 0;
  return {{"inputs",
           {json_tensor("text_input", "BYTES", {text}),
            json_tensor("sampling_parameters", "BYTES", {more.dump()})}}};
}

inline std::string text_element(const std::string& text) {
  std::string bytes;
  append_text(bytes, text);
  return bytes;
}

}  // namespace strata
