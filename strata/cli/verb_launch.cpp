// Starts several processes of one run on one machine and waits for all.
//
// The processes share a new secret (STRATA_SECRET), unless one is set, so no other process can
// join. They die with their launcher. Signals that end a program are forwarded to all. After the
// first failure the others have 15 s to end by themselves. Only failures of the system cause a
// restart, which resumes from the last checkpoint.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/checkpoint/folder.h"
#include "strata/cli/arguments.h"
#include "strata/cli/reported_once.h"
#include "strata/cli/shared_input.h"
#include "strata/cli/verbs.h"
#include "strata/train/disk_commit.h"
#include "strata/transport/secret.h"
#include "strata/transport/socket.h"

namespace strata {
namespace {

// How the processes ended.
struct LaunchResult {
  int exit_code = 0;            // the first that is not 0; 3 if a signal ended the process
  int killed = 0;               // processes that a signal ended
  bool interrupted = false;     // the launcher got a signal
  int process = 0, signal = 0;  // of the first failed process, if a signal ended it
};

constexpr std::chrono::seconds kGrace{15};
constexpr int kMostProcesses = 1024;
constexpr std::array kForwarded{SIGINT, SIGTERM, SIGHUP, SIGUSR1};

// Read and cleared by one atomic exchange, so that no signal is lost.
std::atomic<int> last_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal's handler may use nothing else");
void note_signal(int signal) { last_signal = signal; }

// Records signals instead of ending; without SA_RESTART, so that a signal interrupts waitpid().
class SignalNotes {
 public:
  SignalNotes() {
    last_signal = 0;
    struct sigaction noting{};
    noting.sa_handler = &note_signal;
    for (std::size_t i = 0; i < kForwarded.size(); ++i)
      ::sigaction(kForwarded[i], &noting, &before_[i]);
  }
  ~SignalNotes() {
    for (std::size_t i = 0; i < kForwarded.size(); ++i)
      ::sigaction(kForwarded[i], &before_[i], nullptr);
  }
  SignalNotes(const SignalNotes&) = delete;
  SignalNotes& operator=(const SignalNotes&) = delete;

 private:
  std::array<struct sigaction, kForwarded.size()> before_{};
};

// Blocks signals until the child has removed the launcher's handlers, which would swallow them.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t forwarded;
    ::sigemptyset(&forwarded);
    for (const int signal : kForwarded) ::sigaddset(&forwarded, signal);
    ::sigprocmask(SIG_BLOCK, &forwarded, &before_);
  }
  ~HeldSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

// The file in which processes of a launch record printed errors.
class ReportedErrors {
 public:
  ReportedErrors() : file_(open_reported_errors()) {
    ::setenv(kLaunchVariable, std::to_string(file_).c_str(), 1);
  }
  ~ReportedErrors() {
    ::unsetenv(kLaunchVariable);
    if (file_ >= 0) ::close(file_);
  }
  ReportedErrors(const ReportedErrors&) = delete;
  ReportedErrors& operator=(const ReportedErrors&) = delete;

 private:
  int file_;
};

// What every process starts with.
struct LaunchedProgram {
  std::vector<std::string> arguments;
  const SharedInput& input;
};

[[noreturn]] void become(int process, int processes, int port, const std::string& secret,
                         const LaunchedProgram& program) {
  program.input.give();
  // Its own process group: Ctrl-C at the terminal reaches it once, through the launcher.
  ::setpgid(0, 0);
  const auto set = [](const char* name, int value) {
    ::setenv(name, std::to_string(value).c_str(), 1);
  };
  set("RANK", process);
  set("LOCAL_RANK", process);
  set("WORLD_SIZE", processes);
  set("LOCAL_WORLD_SIZE", processes);
  set("MASTER_PORT", port);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  // Other users of the machine can connect to loopback, too.
  if (!secret.empty()) {
    ::setenv("STRATA_SECRET", secret.c_str(), 1);
    ::setenv(kLaunchSecretVariable, "1", 1);  // row servers do not know this secret
  }
  std::vector<char*> argv{program_invocation_name};
  for (const std::string& argument : program.arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv("/proc/self/exe", argv.data());
  ::_exit(3);
}

pid_t start(int process, int processes, int port, const std::string& secret,
            const LaunchedProgram& program) {
  const pid_t launcher = ::getpid();
  pid_t pid = -1;
  {
    const HeldSignals held;
    pid = ::fork();
    if (pid == 0)
      for (const int signal : kForwarded) ::signal(signal, SIG_DFL);
  }
  if (pid < 0)
    throw SystemError({.operation = "cli.launch",
                       .where = "process " + std::to_string(process),
                       .what = "the system starts no more processes",
                       .got = std::strerror(errno),
                       .fix = "raise the limit (ulimit -u), or launch fewer"});
  if (pid > 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(3);  // the launcher died before prctl()
  become(process, processes, port, secret, program);
}

class Children {
 public:
  ~Children() { send(SIGKILL), reap(); }
  void add(pid_t pid) { running_.push_back({pid, started_++}); }
  bool any() const { return !running_.empty(); }
  void send(int signal) const {
    for (const auto& [pid, process] : running_) ::kill(pid, signal);
  }

  // Collects ended processes; the polling interval is short enough that a user does not notice it.
  void collect(LaunchResult& result) {
    std::erase_if(running_, [&](const Child& child) {
      int status = 0;
      if (::waitpid(child.pid, &status, WNOHANG) != child.pid) return false;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 3;
      const bool killed = WIFSIGNALED(status) && WTERMSIG(status) != SIGPIPE;
      if (killed) ++result.killed;
      if (killed && result.exit_code == 0)
        result.process = child.process, result.signal = WTERMSIG(status);
      if (result.exit_code == 0) result.exit_code = code;
      return true;
    });
  }

 private:
  struct Child {
    pid_t pid;
    int process;
  };
  void reap() {
    for (const auto& [pid, process] : running_) ::waitpid(pid, nullptr, 0);
  }
  std::vector<Child> running_;
  int started_ = 0;
};

// Prints the signal that ended a process, because the process printed no error.
[[noreturn]] void fail(const LaunchResult& result) {
  if (result.signal == 0) throw CLI::RuntimeError(result.exit_code);
  throw SystemError(
      {.operation = "cli.launch",
       .where = "process " + std::to_string(result.process),
       .what = "a signal ended it",
       .got = ::strsignal(result.signal),
       .fix = result.interrupted
                  ? "start it again"
                  : "read the system's log: a machine without memory ends processes"});
}

LaunchResult launch_processes(int processes, const LaunchedProgram& program) {
  using Clock = std::chrono::steady_clock;
  const SignalNotes notes;
  const int port = free_loopback_port();
  const bool has_secret = std::getenv("STRATA_SECRET") || std::getenv("STRATA_SECRET_FILE");
  const std::string secret = has_secret ? "" : make_secret();
  const ReportedErrors reported_errors;
  Children children;
  for (int process = 0; process < processes; ++process)
    children.add(start(process, processes, port, secret, program));
  LaunchResult result;
  Clock::time_point failed = Clock::time_point::max();
  while (children.any()) {
    ::usleep(20000);
    if (const int signal = last_signal.exchange(0); signal != 0) {
      children.send(signal);
      result.interrupted = true;
    }
    const int killed_before = result.killed;
    children.collect(result);
    if (result.exit_code != 0 && failed == Clock::time_point::max()) failed = Clock::now();
    if (failed < Clock::time_point::max() && Clock::now() - failed > kGrace) {
      children.send(SIGKILL);
      result.killed = killed_before;  // processes that the launcher kills do not count as lost
    }
  }
  return result;
}

struct LaunchArguments {
  int processes = 2;
  int restarts = 0;
  bool shrink = false;
};

std::string words_of(const LaunchArguments& arguments) {
  return "launch -n " + std::to_string(arguments.processes) +
         (arguments.restarts > 0 ? " --restarts " + std::to_string(arguments.restarts) : "") +
         (arguments.shrink ? " --shrink" : "");
}

// Resumes from the folder of memory.disk, which is never older than a checkpoint, or else from the
// last checkpoint, if there is one. Replaces an earlier --resume.
void resume_latest(TrainArguments& arguments) {
  const Recipe recipe = arguments.load();
  const std::string& folder = recipe.train.checkpoint_folder;
  if (holds_commits(recipe.memory.disk.path)) {
    arguments.resume = recipe.memory.disk.path;
    return;
  }
  if (!folder.empty() && !list_checkpoints(folder).empty()) arguments.resume = folder;
}

// Shrinks the run to the largest number of remaining processes that hold whole replicas.
void shrink(int killed, int& processes, TrainArguments& arguments) {
  const int dp = arguments.load().mesh.axes[Axis::kData];
  for (int left = processes - killed; left >= 1; --left) {
    if (dp * left % processes != 0) continue;
    const int replicas = dp * left / processes;
    arguments.recipe.overrides.push_back("mesh.dp=" + std::to_string(replicas));
    std::cerr << "launch: continuing with " << left << " of " << processes << " processes, mesh.dp "
              << replicas << std::endl;
    processes = left;
    return;
  }
}

void require_command(const std::vector<std::string>& command) {
  if (command.empty())
    throw UserError({.operation = "cli.launch",
                     .what = "nothing to launch",
                     .expected = "a verb and a recipe",
                     .fix = "strata launch -n 2 train recipe.yaml"});
}

void run_launch(LaunchArguments arguments, std::vector<std::string> command,
                const SharedInput& input) {
  for (int restart = 0;; ++restart) {
    ::setenv(kLauncherVariable, words_of(arguments).c_str(), 1);
    const LaunchResult result = launch_processes(arguments.processes, {command, input});
    if (result.exit_code == 0) return;
    if (result.exit_code != 3 || result.interrupted || restart == arguments.restarts) fail(result);
    std::cerr << "launch: restart " << restart + 1 << " of " << arguments.restarts << std::endl;
    if (command.front() != "train") continue;
    TrainArguments train = parse_train_command(command);
    input.rewind();
    if (arguments.shrink && result.killed > 0) shrink(result.killed, arguments.processes, train);
    input.rewind();
    resume_latest(train);
    command = train.resume_command(train.resume);
  }
}

}  // namespace

void add_launch_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("launch", "start a verb as several processes of this machine");
  verb->footer(
      "VERB and its arguments follow the options: strata launch -n 2 train RECIPE --set "
      "train.steps=2");
  auto arguments = std::make_shared<LaunchArguments>();
  verb->add_option("-n,--processes", arguments->processes,
                   "how many, up to " + std::to_string(kMostProcesses) +
                       "; ranks are divided evenly among them")
      ->check(between(1, kMostProcesses))
      ->type_name("COUNT")
      ->capture_default_str();
  verb->add_option("--restarts", arguments->restarts,
                   "after a system error, resume from the last checkpoint, at most this many times")
      ->check(at_least(0))
      ->type_name("COUNT")
      ->capture_default_str();
  verb->add_flag("--shrink", arguments->shrink,
                 "restart without the processes that were killed, with fewer replicas (mesh.dp)");
  verb->prefix_command();
  verb->callback([arguments, verb, &app] {
    const std::vector<std::string> command = verb->remaining();
    require_command(command);
    require_verb(app, command.front());
    run_launch(*arguments, command, SharedInput(*app.get_subcommand(command.front()), command));
  });
}

}  // namespace strata
