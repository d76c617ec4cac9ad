// A fake scorer lets tests decide when a pass ends, so no test depends on a time.
#include "strata/kserve/model/sample_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <future>
#include <limits>
#include <mutex>

#include "strata/base/errors.h"
#include "strata/kserve/kserve_server_test.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

struct FakeSamples final : RequestSamples {
  std::vector<double> values;
};

/// The logit of a sample is a + 10 b. A pass waits until the test lets it compute.
class FakeScorer final : public SampleScorer {
 public:
  std::vector<TensorMetadata> inputs() const override {
    return {{.name = "a", .datatype = Datatype::kFp64, .shape = {-1}},
            {.name = "b", .datatype = Datatype::kBytes, .shape = {-1}}};
  }
  bool ready() const override { return is_ready; }
  std::vector<std::string> numbers() const override { return {"version"}; }
  std::unique_ptr<const RequestSamples> read(const InferenceRequest& request,
                                             std::int64_t samples) const override {
    auto read = std::make_unique<FakeSamples>();
    for (const Tensor& tensor : request.inputs)
      if (tensor.name == "a") read->values = values_of<double>(tensor);
    for (const Tensor& tensor : request.inputs) {
      if (tensor.name != "b") continue;
      const auto texts = texts_of(tensor);
      for (std::int64_t i = 0; i < samples; ++i) {
        if (texts[i] == "bad")
          throw UserError({.operation = "fake.read", .what = "b is bad", .fix = "mend b"});
        read->values[i] += 10 * static_cast<double>(texts[i].size());
      }
    }
    return read;
  }
  SampleScores score(std::span<const RequestSamples* const> requests) override {
    SampleScores scores{.numbers = {7}};
    for (const RequestSamples* request : requests)
      for (const double value : dynamic_cast<const FakeSamples&>(*request).values)
        scores.logits.push_back(static_cast<float>(value));
    std::unique_lock lock(mutex_);
    passes.push_back(scores.logits.size());
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ >= passes.size(); });
    if (std::exchange(fails, false)) throw std::runtime_error("no rows");
    if (std::exchange(is_away, false))
      throw SystemError({.operation = "fake.score", .what = "the rows are away"});
    return scores;
  }

  void let_compute(std::size_t count = std::numeric_limits<std::int32_t>::max()) {
    {
      const std::scoped_lock lock(mutex_);
      open_ += count;
    }
    changed_.notify_all();
  }
  /// Waits until so many passes have begun.
  void await_passes(std::size_t count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(30), [&] { return passes.size() >= count; }));
  }

  bool is_ready = true;
  bool fails = false, is_away = false;  // the next pass
  std::vector<std::size_t> passes;      // their samples
 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t open_ = 0;
};

/// A request's end: "scores", or a status and a message.
class FakeSink final : public InferenceSink {
 public:
  bool on_answer(InferenceAnswer answer) override {
    answer_ = std::move(answer);
    done_.set_value("scores");
    return true;
  }
  void on_error(const ApiError& error) override {
    done_.set_value(std::to_string(error.parts().status) + ' ' + error.parts().message);
  }
  std::string end() {
    EXPECT_EQ(ended.wait_for(std::chrono::seconds(30)), std::future_status::ready);
    return ended.get();
  }
  std::vector<float> scores() {
    EXPECT_EQ(end(), "scores");
    return values_of<float>(answer_.outputs.at(0));
  }

 private:
  InferenceAnswer answer_;
  std::promise<std::string> done_;

 public:
  std::shared_future<std::string> ended{done_.get_future()};
};

constexpr std::chrono::hours kForever{1};

class SampleModelTest : public testing::Test {
 protected:
  void start(SampleLimits limits) {
    model = std::make_shared<SampleModel>("m", "fake", scorer, limits);
  }
  void TearDown() override { scorer->let_compute(); }

  struct Sent {
    std::shared_ptr<FakeSink> sink = std::make_shared<FakeSink>();
    std::function<void()> cancel;
  };
  Sent send(const std::vector<double>& a, const std::vector<std::string>& outputs = {"logit"},
            std::shared_ptr<ApiKey> key = nullptr) {
    InferenceRequest request{.model = "m", .outputs = outputs, .key = std::move(key)};
    const auto count = static_cast<std::int64_t>(a.size());
    Tensor numbers{"a", Datatype::kFp64, {count}}, texts{"b", Datatype::kBytes, {count}};
    for (const double value : a) append_value(numbers.bytes, value), append_text(texts.bytes, "");
    request.inputs = {numbers, texts};
    Sent sent;
    sent.cancel = model->infer(std::move(request), sent.sink);
    return sent;
  }

  std::shared_ptr<FakeScorer> scorer = std::make_shared<FakeScorer>();
  std::shared_ptr<SampleModel> model;
};

TEST_F(SampleModelTest, RequestsThatFillAPassShareItBeforeTheDelay) {
  scorer->let_compute();
  start({.samples = 4, .delay = kForever});
  const Sent one = send({1}), two = send({2, 3, 4});
  EXPECT_EQ(one.sink->scores(), (std::vector<float>{1}));
  EXPECT_EQ(two.sink->scores(), (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(scorer->passes, (std::vector<std::size_t>{4}));
  EXPECT_EQ(model->statistics().executions, 1u);
  EXPECT_EQ(model->statistics().success.count, 2u);
}

TEST_F(SampleModelTest, ALoneRequestIsScoredAfterTheDelay) {
  scorer->let_compute();
  start({.samples = 4, .delay = std::chrono::milliseconds(1)});
  EXPECT_EQ(send({5}).sink->scores(), (std::vector<float>{5}));
}

TEST_F(SampleModelTest, RequestsThatComeDuringAPassShareTheNext) {
  start({.samples = 100});
  const Sent first = send({1});
  scorer->await_passes(1);
  std::vector<Sent> later;
  for (int i = 0; i < 5; ++i) later.push_back(send({10.0 + i}));
  EXPECT_EQ(model->statistics().pending, 5);
  EXPECT_EQ(model->running(), 6);
  scorer->let_compute();
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(later[i].sink->scores(), (std::vector<float>{10.0F + static_cast<float>(i)}));
  EXPECT_EQ(scorer->passes, (std::vector<std::size_t>{1, 5}));
  EXPECT_EQ(model->running(), 0);
}

TEST_F(SampleModelTest, AClientThatLeavesTakesNoPartInAPass) {
  start({.samples = 100});
  const Sent computing = send({1});
  scorer->await_passes(1);
  const Sent leaves = send({2}), stays = send({3});
  leaves.cancel();
  leaves.cancel();
  computing.cancel();
  scorer->let_compute();
  EXPECT_EQ(stays.sink->scores(), (std::vector<float>{3}));
  EXPECT_EQ(scorer->passes, (std::vector<std::size_t>{1, 1}));
  for (const Sent* gone : {&leaves, &computing})
    EXPECT_EQ(gone->sink->ended.wait_for(std::chrono::seconds(0)), std::future_status::timeout)
        << "the sink gets no call";
  EXPECT_EQ(model->statistics().failures.at("CANCELED").count, 2u);
  EXPECT_EQ(model->statistics().success.count, 1u);
  EXPECT_EQ(model->running(), 0);
  stays.cancel();
  EXPECT_EQ(model->statistics().failures.at("CANCELED").count, 2u) << "it has ended before";
}

TEST_F(SampleModelTest, AFailedPassEndsItsRequestsAlone) {
  scorer->fails = true;
  scorer->let_compute();
  start({.samples = 2, .delay = kForever});
  const Sent one = send({1}), two = send({2});
  EXPECT_EQ(one.sink->end(), "500 no rows");
  EXPECT_EQ(two.sink->end(), "500 no rows");
  EXPECT_EQ(model->statistics().failures.at("BACKEND").count, 2u);
  EXPECT_EQ(send({3, 4}).sink->scores(), (std::vector<float>{3, 4}));
}

TEST_F(SampleModelTest, WhatIsAwayForAWhileMeansStatus503) {
  scorer->is_away = true;
  scorer->let_compute();
  start({.samples = 1});
  EXPECT_EQ(send({1}).sink->end(), "503 [fake.score] the rows are away");
  EXPECT_EQ(send({2}).sink->scores(), (std::vector<float>{2}));
}

TEST_F(SampleModelTest, AFullQueueMeansStatus429) {
  start({.samples = 1, .requests = 2});
  const Sent computing = send({1});
  scorer->await_passes(1);
  const Sent one = send({2}), two = send({3});
  try {
    send({4});
    FAIL() << "it must be refused";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.parts().status, 429);
    EXPECT_GT(error.parts().retry_after.count(), 0);
  }
  EXPECT_EQ(model->statistics().failures.at("REJECTED").count, 1u);
  scorer->let_compute();
  EXPECT_EQ(two.sink->scores(), (std::vector<float>{3}));
}

TEST_F(SampleModelTest, RefusesRequestsUntilTheScorerIsReady) {
  scorer->let_compute();
  scorer->is_ready = false;
  start({.samples = 1});
  EXPECT_FALSE(model->ready());
  try {
    send({1});
    FAIL() << "it must be refused";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.parts().status, 503);
  }
  scorer->is_ready = true;
  EXPECT_EQ(send({2}).sink->scores(), (std::vector<float>{2}));
}

TEST_F(SampleModelTest, RequestsThatWaitEndWithTheModel) {
  start({.samples = 100, .delay = kForever});
  const Sent waits = send({1});
  model.reset();
  EXPECT_EQ(waits.sink->end(), "503 the server ends");
  waits.cancel();
}

TEST_F(SampleModelTest, AKeyIsFreeAgainWhenItsAnswerArrives) {
  scorer->let_compute();
  start({.samples = 1});
  const auto key =
      std::make_shared<ApiKey>(KeyOptions{.name = "k", .key = "sk", .concurrency = 1}, 1);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(send({1.0 * i}, {"logit"}, key).sink->scores(),
              (std::vector<float>{1.0F * static_cast<float>(i)}));
}

/// The routes of a server whose only model is a SampleModel.
class SampleServer {
 public:
  explicit SampleServer(SampleLimits limits = {.samples = 8}) {
    scorer->let_compute();
    model = std::make_shared<SampleModel>("m", "fake", scorer, limits);
    routes = inference_routes(
        std::make_shared<const ModelRepository>(std::vector<ModelRepository::Model>{model}),
        nullptr, "1.2");
  }
  std::shared_ptr<FakeClient> call(const std::string& method, const std::string& path,
                                   const TestJson& body = {}) const {
    const auto client = std::make_shared<FakeClient>();
    const HttpMatch match = match_route(routes, method, path);
    EXPECT_NE(match.route, nullptr) << path;
    run_route(*match.route,
              {.method = method,
               .path = path,
               .query = "",
               .body = body.is_null() ? "" : body.dump(),
               .parameters = match.parameters},
              client);
    client->wait();
    return client;
  }
  std::string refusal(const TestJson& body) const {
    const auto client = call("POST", "/v2/models/m/infer", body);
    EXPECT_EQ(client->status(), 400) << body;
    return client->json().at("error").get<std::string>();
  }

  std::shared_ptr<FakeScorer> scorer = std::make_shared<FakeScorer>();
  std::shared_ptr<SampleModel> model;
  HttpRoutes routes;
};

TestJson request_of(TestJson a, TestJson b) {
  return {{"inputs",
           {json_tensor("a", "FP64", std::move(a)), json_tensor("b", "BYTES", std::move(b))}}};
}

TEST(SampleModelRoutes, DescribeInputsAndOutputs) {
  const TestJson model = SampleServer().call("GET", "/v2/models/m")->json();
  EXPECT_EQ(model["platform"], "fake");
  EXPECT_EQ(model["inputs"], TestJson::parse(R"([{"name":"a","datatype":"FP64","shape":[-1]},
      {"name":"b","datatype":"BYTES","shape":[-1]}])"));
  EXPECT_EQ(model["outputs"], TestJson::parse(R"([{"name":"score","datatype":"FP32","shape":[-1]},
      {"name":"logit","datatype":"FP32","shape":[-1]},
      {"name":"version","datatype":"INT64","shape":[1]}])"));
}

TEST(SampleModelRoutes, AnswerScoresLogitsAndTheVersion) {
  const SampleServer server;
  TestJson request = request_of({0, 1.5}, {"", "x"});
  TestJson answer = server.call("POST", "/v2/models/m/infer", request)->json();
  ASSERT_EQ(answer["outputs"].size(), 1u);
  EXPECT_EQ(answer["outputs"][0]["name"], "score");
  EXPECT_EQ(answer["outputs"][0]["data"][0], 0.5);
  EXPECT_FLOAT_EQ(answer["outputs"][0]["data"][1].get<float>(),
                  static_cast<float>(1 / (1 + std::exp(-11.5))));
  request["outputs"] = TestJson::parse(R"([{"name":"version"},{"name":"logit"}])");
  answer = server.call("POST", "/v2/models/m/infer", request)->json();
  EXPECT_EQ(answer["outputs"][0]["data"], TestJson({7}));
  EXPECT_EQ(answer["outputs"][1]["data"], TestJson({0, 11.5}));
  answer = server.call("POST", "/v2/models/m/generate", {{"a", {3.5}}, {"b", {""}}})->json();
  EXPECT_FLOAT_EQ(answer["score"].get<float>(), static_cast<float>(1 / (1 + std::exp(-3.5))));
}

TEST(SampleModelRoutes, ReadNullAsNaN) {
  const SampleServer server;
  TestJson request = request_of({nullptr, 1}, {"", ""});
  request["outputs"] = TestJson::parse(R"([{"name":"logit"}])");
  const TestJson answer = server.call("POST", "/v2/models/m/infer", request)->json();
  EXPECT_EQ(answer["outputs"][0]["data"], TestJson::parse("[null,1]"));
}

TEST(SampleModelRoutes, RefuseRequestsThatDoNotFit) {
  const SampleServer server;
  const auto expect = [&](const TestJson& body, const std::string& words) {
    EXPECT_NE(server.refusal(body).find(words), std::string::npos) << server.refusal(body);
  };
  expect(request_of({1, 2}, {""}), "tensor 'b' has the shape [1], and 'a' has [2]");
  expect(request_of(TestJson::array(), TestJson::array()), "tensor 'a' has no samples");
  expect(request_of({1, 2, 3, 4, 5, 6, 7, 8, 9}, TestJson(9, "")),
         "tensor 'a' has 9 samples; a request has at most 8");
  expect(request_of({1}, {"bad"}), "b is bad");
  TestJson body = request_of({1}, {""});
  body["inputs"][1]["name"] = "c";
  expect(body, "tensor 'c' is no input of the model; it has a, b");
  body["inputs"].erase(1);
  expect(body, "tensor 'b' is missing");
  body = request_of({1}, {""});
  body["inputs"][0]["datatype"] = "FP32";
  expect(body, "must be FP64, got FP32");
  body = request_of({1}, {""});
  body["inputs"][0]["shape"] = {1, 1};
  expect(body, "must have the shape [-1], got [1,1]");
  body = request_of({1}, {""});
  body["parameters"] = {{"priority", 1}};
  expect(body, "'priority' is not supported");
}

TEST(SampleModelRoutes, StateHealthVersionAndMetrics) {
  const SampleServer server;
  server.call("POST", "/v2/models/m/infer", request_of({1, 2}, {"", ""}));
  EXPECT_EQ(server.call("GET", "/health")->json()["status"], "ok");
  EXPECT_EQ(server.call("GET", "/version")->json()["version"], "1.2");
  const std::string metrics = server.call("GET", "/metrics")->body();
  EXPECT_NE(metrics.find(R"(nv_inference_request_success{model="m",version="1"} 1)"),
            std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find(R"(nv_inference_exec_count{model="m",version="1"} 1)"), std::string::npos);
}

}  // namespace
}  // namespace strata
