#include "strata/comm/agent_store.h"

#include <chrono>
#include <exception>
#include <future>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "strata/base/errors.h"

namespace strata {
namespace {

int through_store(const Rendezvous& rendezvous, int number, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(rendezvous.port);
  options.timeout = timeout;
  const auto store = c10::make_intrusive<c10d::PrefixStore>(
      "strata/" + rendezvous.restart,
      c10::make_intrusive<c10d::TCPStore>(rendezvous.host, options));
  if (rendezvous.process == 0) {
    const std::string text = std::to_string(number);
    store->set("port", std::vector<std::uint8_t>(text.begin(), text.end()));
    return number;
  }
  const std::vector<std::uint8_t> text = store->get("port");
  return std::stoi(std::string(text.begin(), text.end()));
}

}  // namespace

int broadcast_number(const Rendezvous& rendezvous, int number, Deadline deadline) {
  // Runs in a separate thread, because c10d's handshake with a program that listens but does not
  // answer has no time limit. The thread is then detached; the process ends soon after.
  std::promise<int> promise;
  std::future<int> answer = promise.get_future();
  std::thread([rendezvous, number, promise = std::move(promise),
               timeout = std::chrono::milliseconds(milliseconds_until(deadline))]() mutable {
    try {
      promise.set_value(through_store(rendezvous, number, timeout));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  std::string got = "no answer";
  if (answer.wait_until(deadline) == std::future_status::ready) {
    try {
      return answer.get();
    } catch (const std::exception& error) {
      got = error.what();
    }
  }
  throw SystemError({.operation = "comm.broadcast_number",
                     .where = rendezvous.host + ":" + std::to_string(rendezvous.port),
                     .what = "torchrun's store does not answer",
                     .expected = "the store that TORCHELASTIC_USE_AGENT_STORE promises",
                     .got = got.substr(0, got.find('\n')),
                     .fix = "unset TORCHELASTIC_USE_AGENT_STORE if torchrun did not set it"});
}

}  // namespace strata
