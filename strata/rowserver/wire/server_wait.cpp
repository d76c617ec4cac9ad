#include "strata/rowserver/wire/server_wait.h"

#include <time.h>

#include <ctime>
#include <utility>

namespace strata {

ServerWait::ServerWait(ServerWaitOptions options) : options_(std::move(options)) {}

void ServerWait::restart() {
  lost_ = Clock::now();
  reported_ = false;
}

bool ServerWait::is_over() const { return Clock::now() - lost_ > options_.deadline; }

void ServerWait::say(const std::string& why) {
  if (reported_ || !options_.notice || Clock::now() - lost_ < options_.notice_after) return;
  reported_ = true;
  const auto left = lost_ + options_.deadline - Clock::now();
  const std::time_t until = std::chrono::system_clock::to_time_t(
      std::chrono::system_clock::now() +
      std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
  std::tm local{};
  ::localtime_r(&until, &local);
  char time[16];
  std::strftime(time, sizeof time, "%H:%M:%S", &local);
  options_.notice("waiting for the server of rows at " + options_.address + " until " + time +
                  ": " + why);
}

SystemError ServerWait::stopped() const {
  return SystemError(
      {.operation = "embed.connect",
       .where = options_.address,
       .what = "the run was stopped while it waited for the server of rows",
       .expected = "an answer of the server, with which the step ends first",
       .got = "a signal",
       .fix = "restart the server, then resume from the last checkpoint with --resume"});
}

SystemError ServerWait::error(const std::string& why) const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(options_.deadline);
  return SystemError({.operation = "embed.connect",
                      .where = options_.address,
                      .what = "the server of rows does not answer",
                      .expected = "an answer within " + std::to_string(seconds.count()) + " s",
                      .got = why,
                      .fix = "start strata embed-server there again, with the same folder"});
}

}  // namespace strata
