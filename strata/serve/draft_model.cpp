#include "strata/serve/draft_model.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/error_source.h"

namespace strata {
namespace {

constexpr ErrorSource kDraftErrors{"serve.draft", "pass a model with the same tokens as --draft"};

// Of the same tokens, a text has the same ids in both models.
void check_tokenizers(const Tokenizer& draft, const Tokenizer& served) {
  for (std::int64_t token = 0; token < served.vocabulary(); ++token) {
    const std::string text = served.decode({&token, 1});
    if (token < draft.vocabulary() && draft.decode({&token, 1}) == text) continue;
    throw kDraftErrors.user("--draft", "the draft model has another tokenizer",
                            "token " + std::to_string(token) + " with the text \"" + text + "\"",
                            token < draft.vocabulary()
                                ? "\"" + draft.decode({&token, 1}) + "\""
                                : std::to_string(draft.vocabulary()) + " tokens");
  }
}

}  // namespace

void check_draft(const ServedModel& draft, const ServedModel& served) {
  if (draft.model.vocab != served.model.vocab)
    throw kDraftErrors.user("--draft", "the draft model has embeddings of another number of tokens",
                            std::to_string(served.model.vocab), std::to_string(draft.model.vocab));
  check_tokenizers(*tokenizer_of(draft), *tokenizer_of(served));
}

std::int64_t draft_bytes(const Sequential& model, const ServingRequest& served,
                         std::int64_t sequences) {
  const ServingPlan plan = plan_serving({.model = model,
                                         .room = served.room,
                                         .context = served.context,
                                         .pass_tokens = served.pass_tokens,
                                         .pass_logits = sequences,
                                         .memory = {.weights = TierChoice::kDevice}});
  return peak_bytes(plan.ledger);
}

DraftModel::DraftModel(const Sequential& model, const PageRoom& room, const Group& world,
                       const WeightTiers& tiers)
    : alone_(world.subgroup({world.rank()}, "draft")),
      decoder_(model, decoder_steps(model, Mesh{}), room, alone_, tiers) {}

void DraftModel::guess(Batch& batch, const ChooseGuess& choose) {
  const auto guesses_of = [&](std::size_t row) { return batch.rows[row].guesses; };
  // The rows of the batch that the next pass of the draft model has, in its order.
  std::vector<std::size_t> rows;
  Pass pass;
  decoder_.move_pages(batch.moves);
  for (std::size_t row = 0; row < batch.rows.size(); ++row) {
    PassTokens own = batch.pass[row];
    own.tokens.resize(own.tokens.size() - guesses_of(row));
    own.logits = guesses_of(row) > 0 ? 1 : 0;
    rows.push_back(row);
    pass.push_back(std::move(own));
  }
  for (std::int64_t guessed = 0; !pass.empty(); ++guessed) {
    const at::Tensor logits = decoder_.forward(pass).logits.cpu();
    std::vector<std::size_t> next_rows;
    Pass next;
    std::int64_t with_logits = 0;
    for (std::size_t i = 0; i < pass.size(); ++i) {
      if (pass[i].logits == 0) continue;
      const at::Tensor own = logits[with_logits++];
      std::span<std::int64_t> guesses = batch.pass[rows[i]].tokens;
      guesses = guesses.last(guesses_of(rows[i]));
      guesses[guessed] =
          choose(rows[i], {own.const_data_ptr<float>(), static_cast<std::size_t>(own.numel())},
                 guesses.first(guessed));
      // The last guess gets keys and values, too: the served model may accept it.
      next_rows.push_back(rows[i]);
      next.push_back({.tokens = {guesses[guessed]},
                      .position = pass[i].position + std::ssize(pass[i].tokens),
                      .pages = std::move(pass[i].pages),
                      .logits = guessed + 1 < std::ssize(guesses) ? 1 : 0});
    }
    rows = std::move(next_rows);
    pass = std::move(next);
  }
}

}  // namespace strata
