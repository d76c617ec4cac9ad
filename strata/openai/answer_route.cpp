#include "strata/openai/answer_route.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "strata/openai/answer_sinks.h"
#include "strata/openai/api_error.h"
#include "strata/openai/chat_request.h"
#include "strata/openai/completion_request.h"
#include "strata/openai/generation.h"

namespace strata {
namespace {

std::int64_t reserved_tokens(const AnswerRequest& request) {
  std::int64_t tokens = 0;
  for (const auto& prompt : request.prompts)
    tokens += static_cast<std::int64_t>(prompt.size()) +
              *request.options.max_tokens * request.options.candidates;
  return tokens;
}

void refuse_unless_ready(const OpenAiModel& model) {
  if (model.service->status().ready) return;
  throw ApiError({.status = 503,
                  .message = "the model '" + model.name + "' is not ready",
                  .type = "server_error",
                  .code = "not_ready",
                  .retry_after = std::chrono::seconds(1)});
}

}  // namespace

void answer_generation(AnswerKind kind, const ServedModels& models, const ApiCall& call) {
  const bool chat = kind == AnswerKind::kChat;
  const RequestFields fields(call.request().body);
  const ServedModelEntry& served = models.of(fields, call);
  refuse_unless_ready(*served.model);
  AnswerRequest request = chat ? read_chat_request(fields, *served.model)
                               : read_completion_request(fields, *served.model);
  if (call.key) request.scope = call.key->number();
  const AnswerOptions options = request.options;
  const std::size_t prompts = request.prompts.size();
  auto use = call.key == nullptr ? nullptr : call.key->use(reserved_tokens(request));
  const AnswerHead head{.kind = kind,
                        .id = (chat ? "chatcmpl-" : "cmpl-") + random_id(),
                        .created = seconds_since_1970(),
                        .model = served.model->name,
                        .scored = options.likeliest.has_value(),
                        .weights = [model = served.model] { return model->service->weights(); }};
  const auto generation = std::make_shared<Generation>(
      served.model, std::move(request), RequestRecord(served.metrics, std::move(use)));
  generation->submit();
  call.responder()->on_closed([left = std::weak_ptr(generation)] {
    if (const auto generation = left.lock()) generation->cancel();
  });
  const auto choices = static_cast<std::size_t>(options.choices);
  const auto candidates = static_cast<std::size_t>(options.candidates);
  if (!options.stream)
    return generation->begin(
        std::make_shared<WholeAnswer>(call, head, choices, candidates, prompts));
  call.answer_events([=](std::shared_ptr<HttpStream> stream) {
    generation->begin(std::make_shared<StreamedAnswer>(std::move(stream), head,
                                                       options.include_usage, prompts * choices));
  });
}

}  // namespace strata
