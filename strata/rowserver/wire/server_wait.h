/// Measures how long a server of rows is away, reports once which server the caller waits for, and
/// ends the wait.
///
/// Threads  one.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "strata/base/errors.h"

namespace strata {

struct ServerWaitOptions {
  std::string address;                                  ///< for errors
  std::chrono::milliseconds deadline{60'000};           ///< of being away
  std::function<void(const std::string&)> notice = {};  ///< which server is away, and until when
  std::chrono::milliseconds notice_after{3'000};        ///< of being away; once until it is back
};

class ServerWait {
 public:
  explicit ServerWait(ServerWaitOptions options);

  void restart();                    ///< the server was there until now
  void say(const std::string& why);  ///< may wait for a terminal
  bool is_over() const;
  SystemError error(const std::string& why) const;
  SystemError stopped() const;  ///< the run is to stop, and the server is away

 private:
  using Clock = std::chrono::steady_clock;
  const ServerWaitOptions options_;
  Clock::time_point lost_ = Clock::now();
  bool reported_ = false;
};

}  // namespace strata
