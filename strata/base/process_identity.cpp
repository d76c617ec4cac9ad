#include "strata/base/process_identity.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <fstream>
#include <sstream>

namespace strata {
namespace {

std::string this_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char numbers[64] = {};
  const ssize_t size = ::readlink("/proc/self/ns/pid", numbers, sizeof(numbers) - 1);
  return boot.empty() || size <= 0 ? "" : boot + " " + numbers;
}

struct ProcessState {
  char state = 0;  // 0: the file cannot be read
  std::uint64_t started = 0;
};

// /proc/N/stat: the name is in parentheses and may contain any characters. The state follows it,
// and the start time is the 20th field from there.
ProcessState state_of(std::int64_t process) {
  std::ostringstream text;
  text << std::ifstream("/proc/" + std::to_string(process) + "/stat").rdbuf();
  const std::size_t name_end = text.str().rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.str().substr(name_end + 1));
  ProcessState found;
  fields >> found.state;
  std::string skipped;
  for (int field = 0; field < 18; ++field) fields >> skipped;
  fields >> found.started;
  return fields ? found : ProcessState{};
}

}  // namespace

ProcessIdentity this_process() {
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  const std::int64_t process = ::getpid();
  return {.host = host,
          .process = process,
          .since = std::time(nullptr),
          .machine = this_machine(),
          .started = state_of(process).started};
}

std::string utc_text(std::int64_t seconds_since_1970) {
  const std::time_t seconds = seconds_since_1970;
  char text[64] = {};
  std::tm utc{};
  if (::gmtime_r(&seconds, &utc) == nullptr) return "an unknown time";
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text;
}

std::string text_of(const ProcessIdentity& identity) {
  return "host " + identity.host + ", process " + std::to_string(identity.process) + ", since " +
         utc_text(identity.since);
}

bool has_ended(const ProcessIdentity& identity) {
  if (identity.process <= 0 || identity.machine.empty() || identity.machine != this_machine())
    return false;
  if (::kill(static_cast<pid_t>(identity.process), 0) != 0 && errno == ESRCH) return true;
  const ProcessState now = state_of(identity.process);
  if (now.state == 0) return false;
  return now.started != identity.started || now.state == 'Z' || now.state == 'X';
}

}  // namespace strata
