#include "strata/openai/embedding_route.h"

#include <openssl/evp.h>

#include <bit>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "strata/openai/api_error.h"
#include "strata/openai/completion_request.h"
#include "strata/openai/generation_start.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little);  // clients read little-endian fp32

std::vector<float> normalised(std::vector<float> state) {
  double squares = 0;
  for (const double x : state) squares += x * x;
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
  for (float& x : state) x = static_cast<float>(x * scale);
  return state;
}

std::string base64_of(const std::vector<float>& numbers) {
  const std::size_t bytes = numbers.size() * sizeof(float);
  std::string text((bytes + 2) / 3 * 4 + 1, '\0');  // EVP_EncodeBlock ends it with a zero
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(numbers.data()),
                                     static_cast<int>(bytes));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

bool wants_base64(const RequestFields& fields) {
  const std::string format = fields.text("encoding_format", "float");
  if (format != "float" && format != "base64")
    refuse_field("encoding_format", "'float' or 'base64'", format);
  return format == "base64";
}

AnswerRequest read_request(const RequestFields& fields, const OpenAiModel& model) {
  refuse_if_set(fields, "dimensions", "the model's embeddings have one length");
  AnswerRequest request{.options = {.max_tokens = 0}, .prompts = {}, .embeds = true};
  request.prompts = read_prompts(fields, "input", model);
  fit_to_context(request, model, "input", 0);
  return request;
}

/// Sends all embeddings as one JSON object.
class EmbeddingAnswer final : public AnswerSink {
 public:
  EmbeddingAnswer(ApiCall call, std::shared_ptr<const OpenAiModel> model, std::size_t texts,
                  bool base64)
      : call_(std::move(call)), model_(std::move(model)), base64_(base64), embeddings_(texts) {}

  bool on_prompt(std::size_t, std::vector<TokenPiece>) override { return true; }
  bool on_pieces(std::size_t, std::vector<TokenPiece>) override { return true; }
  bool on_end(std::size_t, ChoiceEnd) override { return true; }
  void on_embedding(std::size_t text, std::vector<float> state) override {
    embeddings_[text] = normalised(std::move(state));
  }
  void on_done(const Usage& usage) override {
    Json data = Json::array();
    for (std::size_t i = 0; i < embeddings_.size(); ++i)
      data.push_back(
          {{"object", "embedding"},
           {"index", i},
           {"embedding", base64_ ? Json(base64_of(embeddings_[i])) : Json(embeddings_[i])}});
    call_.answer(Json{
        {"object", "list"},
        {"data", std::move(data)},
        {"model", model_->name},
        {"usage", {{"prompt_tokens", usage.prompt_tokens}, {"total_tokens", usage.prompt_tokens}}},
        {"system_fingerprint", model_->service->weights()}});
  }
  void on_error(const ApiError& error) override { call_.refuse(error); }

 private:
  const ApiCall call_;
  const std::shared_ptr<const OpenAiModel> model_;
  const bool base64_;
  std::vector<std::vector<float>> embeddings_;  // by text
};

}  // namespace

void answer_embeddings(const ServedModels& models, const ApiCall& call) {
  const RequestFields fields(call.request().body);
  const auto model = models.of(fields, call).model;
  refuse_unless_ready(*model);
  const bool base64 = wants_base64(fields);
  AnswerRequest request = read_request(fields, *model);
  const std::size_t texts = request.prompts.size();
  const auto generation = start_generation(model, std::move(request), call.key);
  end_with_client(generation, call);
  generation->begin(std::make_shared<EmbeddingAnswer>(call, model, texts, base64));
}

}  // namespace strata
