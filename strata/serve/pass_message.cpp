// The tensor holds the order, the characters of the checkpoint, the moves, the number of rows, and
// for each row its position, its number of logits, and its tokens and pages, each list after its
// length. Moves are pairs in one list.
#include "strata/serve/pass_message.h"

#include <ATen/ops/tensor.h>

#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/serve/number_list.h"

namespace strata {
at::Tensor tensor_of(const PassMessage& message) {
  std::vector<std::int64_t> numbers = {static_cast<std::int64_t>(message.order)};
  append_list(numbers, message.checkpoint);
  std::vector<std::int32_t> moves;
  for (const PageMove& move : message.moves) moves.insert(moves.end(), {move.from, move.to});
  append_list(numbers, moves);
  numbers.push_back(std::ssize(message.pass));
  for (const PassTokens& row : message.pass) {
    numbers.push_back(row.position);
    numbers.push_back(row.logits);
    append_list(numbers, row.tokens);
    append_list(numbers, row.pages);
  }
  return at::tensor(numbers, host_options(at::kLong));
}

PassMessage pass_message_of(const at::Tensor& tensor) {
  NumberReader numbers(tensor);
  const std::int64_t order = numbers.next();
  STRATA_CHECK(order >= 0 && order <= static_cast<std::int64_t>(PassOrder::kStop),
               "serve.pass_message");
  PassMessage message{.order = PassOrder{order}};
  for (const std::int64_t character : numbers.list())
    message.checkpoint.push_back(static_cast<char>(character));
  const auto moves = numbers.list();
  STRATA_CHECK_EQ(moves.size() % 2, 0u, "serve.pass_message");
  for (std::size_t i = 0; i < moves.size(); i += 2)
    message.moves.push_back(
        {static_cast<std::int32_t>(moves[i]), static_cast<std::int32_t>(moves[i + 1])});
  const std::int64_t rows = numbers.next();
  for (std::int64_t i = 0; i < rows; ++i) {
    PassTokens& row = message.pass.emplace_back();
    row.position = numbers.next();
    row.logits = numbers.next();
    const auto tokens = numbers.list(), pages = numbers.list();
    row.tokens.assign(tokens.begin(), tokens.end());
    row.pages.assign(pages.begin(), pages.end());
  }
  STRATA_CHECK(numbers.at_end(), "serve.pass_message");
  return message;
}

}  // namespace strata
