#include "strata/comm/run_on_all.h"

#include <exception>

#include "strata/base/errors.h"
#include "strata/comm/message.h"

namespace strata {
namespace {

constexpr char kDone = '+', kFailed = '-';  // in front of a result or an error

// Exceptions not derived from std::exception, such as a cancelled wait, are passed on.
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
  std::string reply(1, kDone);
  std::vector<std::string> results;
  if (group.rank() != 0) {
    group.send(0, up, byte_tensor(outcome));
    reply = text_of(group.receive(0, down));
  } else {
    for (int rank = 0; rank < group.size(); ++rank) {
      std::string theirs = rank == 0 ? outcome : text_of(group.receive(rank, up));
      if (theirs[0] == kFailed && reply[0] == kDone) reply = theirs;
      results.push_back(theirs.substr(1));
    }
    for (int rank = 1; rank < group.size(); ++rank) group.send(rank, down, byte_tensor(reply));
  }
  if (reply[0] == kFailed) throw_error(decode_error(reply.substr(1)));
  return results;
}

void run_on_all(Group& group, const std::function<void()>& action) {
  gather(group, [&] {
    action();
    return std::string();
  });
}

}  // namespace strata
