#include "strata/openai/metrics.h"

#include <gtest/gtest.h>

#include <sstream>

#include "strata/openai/fake_client_test.h"

namespace strata {
namespace {

// The value of the line that begins so.
double sample(const std::string& text, const std::string& begin) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(begin + ' ')) return std::stod(line.substr(begin.size() + 1));
  ADD_FAILURE() << "no sample " << begin;
  return -1;
}

TEST(Metrics, HistogramBucketsAreCumulative) {
  ModelMetrics metrics;
  for (const double seconds : {0.0005, 0.001, 0.002, 5000.0}) metrics.first_token(seconds);
  const std::string text = prometheus_text({{"m", {}, metrics.counts()}});
  const std::string name = "strata_time_to_first_token_seconds";
  EXPECT_EQ(sample(text, name + "_bucket{model=\"m\",le=\"0.001\"}"), 2);
  EXPECT_EQ(sample(text, name + "_bucket{model=\"m\",le=\"0.005\"}"), 3);
  EXPECT_EQ(sample(text, name + "_bucket{model=\"m\",le=\"2560\"}"), 3);
  EXPECT_EQ(sample(text, name + "_bucket{model=\"m\",le=\"+Inf\"}"), 4);
  EXPECT_EQ(sample(text, name + "_count{model=\"m\"}"), 4);
  EXPECT_EQ(sample(text, name + "_sum{model=\"m\"}"), 5000.0035);
}

TEST(Metrics, NamesAreEscapedInLabels) {
  EXPECT_EQ(sample(prometheus_text({{"a\"b\\c\nd", {.waiting = 7}, {}}}),
                   "strata_requests_waiting{model=\"a\\\"b\\\\c\\nd\"}"),
            7);
}

TEST(Metrics, RequestsAreCounted) {
  const TestServer server({.most_requests = 3, .token_time = std::chrono::milliseconds(5)});
  server.completion({{"prompt", "ab\n"}, {"max_tokens", 9}, {"temperature", 0}});
  server.completion({{"prompt", "ab"}, {"max_tokens", 4}, {"n", 2}});
  server.call("POST", "/v1/completions", R"({"prompt": "a", "n": 4})");
  server.service->wait_until_idle();
  const std::string text = server.call("GET", "/metrics")->body();
  const std::string vllm = "{engine=\"0\",model_name=\"m\"";
  EXPECT_EQ(sample(text, "vllm:request_success_total" + vllm + ",finished_reason=\"stop\"}"), 1);
  EXPECT_EQ(sample(text, "vllm:request_success_total" + vllm + ",finished_reason=\"length\"}"), 2);
  EXPECT_EQ(sample(text, "vllm:admission_rejections_total" + vllm + "}"), 1);
  EXPECT_EQ(sample(text, "vllm:time_to_first_token_seconds_count" + vllm + "}"), 3);
  EXPECT_EQ(sample(text, "vllm:inter_token_latency_seconds_count" + vllm + "}"), 1 + 2 * 3);
  EXPECT_EQ(sample(text, "vllm:time_per_output_token_seconds_count" + vllm + "}"), 7);
  EXPECT_EQ(sample(text, "vllm:e2e_request_latency_seconds_count" + vllm + "}"), 2);
  EXPECT_EQ(sample(text, "vllm:request_generation_tokens_sum" + vllm + "}"), 2 + 8);
  EXPECT_EQ(sample(text, "vllm:request_params_n_sum" + vllm + "}"), 1 + 2 + 4);
  EXPECT_EQ(sample(text, "vllm:generation_tokens_total" + vllm + "}"),
            sample(text, "strata_generation_tokens_total{model=\"m\"}"));
  EXPECT_EQ(sample(text, "vllm:num_preemptions_total" + vllm + "}"), 2);
  EXPECT_EQ(sample(text, "vllm:prefix_cache_hits_total" + vllm + "}"), 3);
  EXPECT_EQ(sample(text, "strata_prompt_tokens_cached_total{model=\"m\"}"), 3);
  EXPECT_EQ(text.find("strata_prefix_cache_hits_total"), std::string::npos);
  EXPECT_EQ(sample(text, "strata_requests_refused_total{model=\"m\"}"), 1);
  EXPECT_EQ(sample(text, "strata_ready{model=\"m\"}"), 1);
}

// Choices that ended for the reason.
double finished(const TestServer& server, const std::string& reason) {
  return sample(server.call("GET", "/metrics")->body(),
                "strata_requests_finished_total{model=\"m\",finished_reason=\"" + reason + "\"}");
}

TEST(Metrics, EveryChoiceOfAClientThatLeavesCountsAsAbort) {
  const TestServer server({.context = 100'000, .token_time = std::chrono::milliseconds(1)});
  server.start("POST", "/v1/completions", R"({"prompt": "ab", "max_tokens": 90000})")->leave();
  server.service->wait_until_idle();
  EXPECT_EQ(finished(server, "abort"), 1);
  const std::string body = R"({"prompt": "ab", "max_tokens": 90000, "n": 2, "stream": true})";
  server.start("POST", "/v1/completions", body)->leave();
  server.service->wait_until_idle();
  EXPECT_EQ(finished(server, "abort"), 3);
  server.start("POST", "/v1/completions", body, {}, 3)->wait();  // a write fails
  server.service->wait_until_idle();
  EXPECT_EQ(finished(server, "abort"), 5);
  EXPECT_EQ(finished(server, "error"), 0);
}

TEST(Metrics, ChoicesOfARequestThatFailsCountAsError) {
  const TestServer server({.fails_at = 2});
  const std::string body = R"({"prompt": "ab", "max_tokens": 9, "n": 3})";
  EXPECT_EQ(server.call("POST", "/v1/completions", body)->status(), 500);
  EXPECT_EQ(finished(server, "error"), 3);
  EXPECT_EQ(finished(server, "abort"), 0);
}

}  // namespace
}  // namespace strata
