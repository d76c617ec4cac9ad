#include "strata/openai/metrics.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "strata/base/prometheus_text.h"
#include "strata/base/units.h"

namespace strata {
namespace {

std::vector<double> powers_of_two(double last) {
  std::vector<double> bounds;
  for (double bound = 1; bound <= last; bound *= 2) bounds.push_back(bound);
  return bounds;
}

/// Writes a family twice: with vLLM's name and labels, and with Strata's.
class PrometheusText {
 public:
  explicit PrometheusText(const std::vector<ModelState>& models) : models_(models) {}

  using Number = std::function<double(const ModelState&)>;
  void number(const char* type, const char* vllm, const char* own, const char* help,
              const Number& value) {
    each_name(vllm, own, type, help,
              [&](const std::string& name, const std::string& labels, const ModelState& model) {
                line(name, labels, value(model));
              });
  }

  void finished() {
    each_name("request_success_total", "requests_finished_total", "counter",
              "choices by the reason of their end",
              [&](const std::string& name, const std::string& labels, const ModelState& model) {
                for (const auto& [reason, count] : model.counts.finished)
                  line(name, labels + ",finished_reason=\"" + reason + '"',
                       static_cast<double>(count));
              });
  }

  using Part = Histogram RequestCounts::*;
  void histogram(const char* vllm, const char* own, const char* help, Part part) {
    each_name(vllm, own, "histogram", help,
              [&](const std::string& name, const std::string& labels, const ModelState& model) {
                buckets(name, labels, model.counts.*part);
              });
  }

  std::string text() && { return std::move(text_); }

 private:
  template <typename Write>
  void each_name(const char* vllm, const char* own, const char* type, const char* help,
                 const Write& write) {
    if (vllm != nullptr)
      family("vllm:" + std::string(vllm), "engine=\"0\",model_name", type, help, write);
    if (own != nullptr) family("strata_" + std::string(own), "model", type, help, write);
  }

  template <typename Write>
  void family(const std::string& name, const std::string& label, const char* type, const char* help,
              const Write& write) {
    text_ += prometheus_head(name, type, help);
    for (const ModelState& model : models_)
      write(name, label + "=\"" + prometheus_label_value(model.name) + '"', model);
  }

  void line(const std::string& name, const std::string& labels, double value) {
    text_ += name + '{' + labels + "} " + format_double_exactly(value) + '\n';
  }

  void buckets(const std::string& name, const std::string& labels, const Histogram& values) {
    std::int64_t below = 0;
    for (std::size_t i = 0; i < values.counts().size(); ++i) {
      const bool last = i == values.bounds().size();
      below += values.counts()[i];
      line(name + "_bucket",
           labels + ",le=\"" + (last ? "+Inf" : format_double_exactly(values.bounds()[i])) + '"',
           static_cast<double>(below));
    }
    line(name + "_sum", labels, values.sum());
    line(name + "_count", labels, static_cast<double>(below));
  }

  const std::vector<ModelState>& models_;
  std::string text_;
};

PrometheusText::Number of_status(std::int64_t ServiceStatus::* part) {
  return [=](const ModelState& model) { return static_cast<double>(model.status.*part); };
}

double used_share(const ModelState& model) {
  return model.status.pages == 0 ? 0
                                 : static_cast<double>(model.status.used_pages) /
                                       static_cast<double>(model.status.pages);
}

void write_status(PrometheusText& out) {
  using Status = ServiceStatus;
  out.number("gauge", nullptr, "ready", "whether the model answers",
             [](const ModelState& model) { return model.status.ready ? 1 : 0; });
  out.number("gauge", "num_requests_running", "requests_running", "sequences that have pages",
             of_status(&Status::running));
  out.number("gauge", "num_requests_waiting", "requests_waiting", "sequences that wait for pages",
             of_status(&Status::waiting));
  out.number("gauge", "kv_cache_usage_perc", "kv_cache_usage_ratio",
             "share of the pages of keys and values in use, from 0 to 1", used_share);
  out.number("counter", "prompt_tokens_total", "prompt_tokens_total", "tokens of prompts",
             of_status(&Status::prompt_tokens));
  out.number("counter", "generation_tokens_total", "generation_tokens_total", "chosen tokens",
             of_status(&Status::generated_tokens));
  out.number("counter", "prompt_tokens_cached_total", "prompt_tokens_cached_total",
             "tokens of prompts whose keys and values were there",
             of_status(&Status::cached_prompt_tokens));
  out.number("counter", "prefix_cache_queries_total", nullptr, "tokens of prompts",
             of_status(&Status::prompt_tokens));
  out.number("counter", "prefix_cache_hits_total", nullptr,
             "tokens of prompts whose keys and values were there",
             of_status(&Status::cached_prompt_tokens));
  out.number("counter", nullptr, "loaded_pages_total",
             "pages of keys and values that came back from the host or the disk",
             of_status(&Status::loaded_pages));
  out.number("counter", "num_preemptions_total", "preemptions_total",
             "sequences that lost their pages for a while", of_status(&Status::preemptions));
  out.number("counter", "spec_decode_num_draft_tokens_total", "guessed_tokens_total",
             "tokens that speculation guessed", of_status(&Status::guessed_tokens));
  out.number("counter", "spec_decode_num_accepted_tokens_total", "accepted_guesses_total",
             "guessed tokens that the model chose", of_status(&Status::accepted_guesses));
  out.number("counter", "admission_rejections_total", "requests_refused_total",
             "requests that the service had no room for", of_status(&Status::refusals));
  out.number("counter", nullptr, "passes_total", "forward passes", of_status(&Status::passes));
}

void write_requests(PrometheusText& out) {
  using Counts = RequestCounts;
  out.finished();
  out.histogram("time_to_first_token_seconds", "time_to_first_token_seconds",
                "from a request to the first token of a choice", &Counts::first_token_seconds);
  out.histogram("inter_token_latency_seconds", "inter_token_latency_seconds",
                "between two tokens of a choice", &Counts::next_token_seconds);
  out.histogram("time_per_output_token_seconds", nullptr, "between two tokens of a choice",
                &Counts::next_token_seconds);
  out.histogram("e2e_request_latency_seconds", "e2e_request_latency_seconds",
                "from a request to its end", &Counts::request_seconds);
  out.histogram("request_prompt_tokens", "request_prompt_tokens", "tokens of a request's prompts",
                &Counts::prompt_tokens);
  out.histogram("request_generation_tokens", "request_generation_tokens", "tokens of a choice",
                &Counts::generated_tokens);
  out.histogram("request_params_n", nullptr, "choices of a request", &Counts::choices);
  out.histogram("request_params_max_tokens", nullptr, "limit of a request", &Counts::max_tokens);
}

}  // namespace

void Histogram::add(double value) {
  ++counts_[static_cast<std::size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin())];
  sum_ += value;
}

RequestCounts::RequestCounts()
    : ended{{"success", {}}, {"abort", {}}, {"error", {}}, {"refused", {}}},
      finished{{"stop", 0}, {"length", 0}, {"abort", 0}, {"error", 0}},
      first_token_seconds({.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                           1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560}),
      next_token_seconds({.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                          .4,   .5,    .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80}),
      request_seconds({.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                       30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}),
      prompt_tokens(powers_of_two(1 << 20)),
      generated_tokens(powers_of_two(1 << 20)),
      choices({1, 2, 5, 10, 20}),
      max_tokens(powers_of_two(1 << 20)) {}

void ModelMetrics::started(std::size_t prompt_tokens, std::int64_t max_tokens,
                           std::size_t choices) {
  const std::scoped_lock lock(mutex_);
  counts_.prompt_tokens.add(static_cast<double>(prompt_tokens));
  counts_.max_tokens.add(static_cast<double>(max_tokens));
  counts_.choices.add(static_cast<double>(choices));
}

void ModelMetrics::first_token(double seconds) {
  const std::scoped_lock lock(mutex_);
  counts_.first_token_seconds.add(seconds);
}

void ModelMetrics::next_token(double seconds) {
  const std::scoped_lock lock(mutex_);
  counts_.next_token_seconds.add(seconds);
}

void ModelMetrics::choice_ended(const std::string& finish_reason, std::int64_t tokens) {
  const std::scoped_lock lock(mutex_);
  ++counts_.finished[finish_reason];
  if (finish_reason == "stop" || finish_reason == "length")
    counts_.generated_tokens.add(static_cast<double>(tokens));
}

void ModelMetrics::ended(const std::string& outcome, double seconds) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::scoped_lock lock(mutex_);
  if (outcome != "refused") counts_.request_seconds.add(seconds);
  EndedRequests& requests = counts_.ended[outcome];
  ++requests.count;
  requests.seconds += seconds;
  counts_.last_end = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

RequestCounts ModelMetrics::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

std::string prometheus_text(const std::vector<ModelState>& models) {
  PrometheusText out(models);
  write_status(out);
  write_requests(out);
  return std::move(out).text();
}

}  // namespace strata
