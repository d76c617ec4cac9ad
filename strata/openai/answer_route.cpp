#include "strata/openai/answer_route.h"

#include <memory>
#include <string>
#include <utility>

#include "strata/openai/answer_sinks.h"
#include "strata/openai/chat_request.h"
#include "strata/openai/completion_request.h"
#include "strata/openai/generation_start.h"

namespace strata {
void answer_generation(AnswerKind kind, const ServedModels& models, const ApiCall& call) {
  const bool chat = kind == AnswerKind::kChat;
  const RequestFields fields(call.request().body);
  const ServedModelEntry& served = models.of(fields, call);
  refuse_unless_ready(*served.model);
  AnswerRequest request = chat ? read_chat_request(fields, *served.model)
                               : read_completion_request(fields, *served.model);
  const AnswerOptions options = request.options;
  const std::size_t prompts = request.prompts.size();
  const AnswerHead head{.kind = kind,
                        .id = (chat ? "chatcmpl-" : "cmpl-") + random_id(),
                        .created = seconds_since_1970(),
                        .model = served.model->name,
                        .scored = options.likeliest.has_value(),
                        .weights = [model = served.model] { return model->service->weights(); }};
  const auto generation = start_generation(served.model, std::move(request), call.key);
  end_with_client(generation, call);
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
