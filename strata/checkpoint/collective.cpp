#include "strata/checkpoint/collective.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <exception>
#include <utility>

#include "strata/base/error_transfer.h"
#include "strata/device/device.h"

namespace strata {
namespace {

constexpr char kDone = '+', kFailed = '-';  // in front of a result or an error

at::Tensor to_message(const std::string& text) {
  at::Tensor message = at::empty({static_cast<std::int64_t>(text.size())}, host_options(at::kByte));
  std::memcpy(message.mutable_data_ptr(), text.data(), text.size());
  return message;
}

std::string to_text(const at::Tensor& message) {
  return {static_cast<const char*>(message.const_data_ptr()),
          static_cast<std::size_t>(message.numel())};
}

// Exceptions that aren't std::exception, such as a cancelled wait, go on.
std::string outcome_of(const std::function<std::string()>& action) {
  try {
    return kDone + action();
  } catch (const std::exception& error) {
    return kFailed + encode_error(to_error(error));
  }
}

}  // namespace

std::vector<std::string> gather(Group& group, const std::function<std::string()>& action) {
  const std::string outcome = outcome_of(action);
  const MessageTag up = group.next_collective(), down = group.next_collective();
  std::string verdict(1, kDone);
  std::vector<std::string> results;
  if (group.rank() != 0) {
    group.send(0, up, to_message(outcome));
    verdict = to_text(group.receive(0, down));
  } else {
    for (int rank = 0; rank < group.size(); ++rank) {
      std::string theirs = rank == 0 ? outcome : to_text(group.receive(rank, up));
      if (theirs[0] == kFailed && verdict[0] == kDone) verdict = theirs;
      results.push_back(theirs.substr(1));
    }
    for (int rank = 1; rank < group.size(); ++rank) group.send(rank, down, to_message(verdict));
  }
  if (verdict[0] == kFailed) throw_error(decode_error(verdict.substr(1)));
  return results;
}

void run_on_all(Group& group, const std::function<void()>& action) {
  gather(group, [&] {
    action();
    return std::string();
  });
}

}  // namespace strata
