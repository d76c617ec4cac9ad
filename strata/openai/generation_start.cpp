#include "strata/openai/generation_start.h"

#include <chrono>
#include <utility>

#include "strata/openai/api_error.h"

namespace strata {
namespace {

std::int64_t reserved_tokens(const AnswerRequest& request) {
  std::int64_t tokens = 0;
  for (const auto& prompt : request.prompts)
    tokens += static_cast<std::int64_t>(prompt.size()) +
              *request.options.max_tokens * request.options.candidates;
  return tokens;
}

}  // namespace

void refuse_unless_ready(const OpenAiModel& model) {
  if (model.service->status().ready) return;
  throw ApiError({.status = 503,
                  .message = "the model '" + model.name + "' is not ready",
                  .type = "server_error",
                  .code = "not_ready",
                  .retry_after = std::chrono::seconds(1)});
}

std::shared_ptr<Generation> start_generation(const std::shared_ptr<const OpenAiModel>& model,
                                             AnswerRequest request,
                                             const std::shared_ptr<ApiKey>& key) {
  if (key) request.scope = key->number();
  auto use = key == nullptr ? nullptr : key->use(reserved_tokens(request));
  const auto generation = std::make_shared<Generation>(
      model, std::move(request), RequestRecord(model->metrics, std::move(use)));
  generation->submit();
  return generation;
}

void end_with_client(const std::shared_ptr<Generation>& generation, const ApiCall& call) {
  call.responder()->on_closed([left = std::weak_ptr(generation)] {
    if (const auto generation = left.lock()) generation->cancel();
  });
}

}  // namespace strata
