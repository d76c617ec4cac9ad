#include "strata/serve/pass_loop.h"

#include <ATen/core/Tensor.h>

#include <span>

#include "strata/serve/pass_message.h"

namespace strata {
namespace {

void send_to_others(Group& world, const PassMessage& message) {
  if (world.size() == 1) return;
  const MessageTag tag = world.next_collective();
  const at::Tensor tensor = tensor_of(message);
  for (int peer = 0; peer < world.size(); ++peer)
    if (peer != world.rank()) world.send(peer, tag, tensor);
}

// `tensor`: fp32, in host memory.
std::span<const float> numbers_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

// All ranks have the weights when it returns.
void replace_weights(Decoder& decoder, Group& world, const PassMessage& message,
                     const LoadWeights& load) {
  load(decoder, message.checkpoint);
  world.barrier();
}

void decide(Decoder& decoder, Group& world, RequestLoop& loop, const LoadWeights& load,
            const GuessTokens& guess) {
  for (;;) {
    world.report_progress("waiting for requests");
    PassMessage message = loop.next_pass();
    if (guess && message.order == PassOrder::kRun) message.pass = loop.draft(guess);
    send_to_others(world, message);
    if (message.order == PassOrder::kStop) return;
    if (message.order == PassOrder::kWait) continue;
    if (message.order == PassOrder::kLoad) {
      replace_weights(decoder, world, message, load);
      loop.loaded();
      continue;
    }
    decoder.move_pages(message.moves);
    const PassOutputs outputs = decoder.forward(message.pass);
    const at::Tensor logits = outputs.logits.cpu(), states = outputs.states.to(at::kFloat).cpu();
    loop.consume(numbers_of(logits), numbers_of(states));
  }
}

void follow(Decoder& decoder, Group& world, const LoadWeights& load) {
  for (;;) {
    world.report_progress("waiting for requests");
    const PassMessage message =
        pass_message_of(world.receive(decoder.deciding_rank(), world.next_collective()));
    if (message.order == PassOrder::kStop) return;
    if (message.order == PassOrder::kRun) {
      decoder.move_pages(message.moves);
      decoder.forward(message.pass);
    }
    if (message.order == PassOrder::kLoad) replace_weights(decoder, world, message, load);
  }
}

}  // namespace

void run_passes(Decoder& decoder, Group& world, RequestLoop& loop, const LoadWeights& load,
                const GuessTokens& guess) {
  if (decoder.decides()) return decide(decoder, world, loop, load, guess);
  follow(decoder, world, load);
}

}  // namespace strata
