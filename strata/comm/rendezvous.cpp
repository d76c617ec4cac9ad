#include "strata/comm/rendezvous.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr int kFirstPort = 29500, kPorts = 4000;  // where jobs of one machine spread

[[noreturn]] void refuse(const std::string& variable, const std::string& what,
                         const std::string& expected, const std::string& got,
                         const std::string& fix = "") {
  throw UserError(
      {.operation = "comm.rendezvous",
       .where = variable,
       .what = what,
       .expected = expected,
       .got = got,
       .fix = fix.empty() ? "set " + variable + ", or start with `strata launch -n N`" : fix});
}

int number(const Variables& variables, const std::string& name) {
  const char* text = variables(name.c_str());
  if (!text) refuse(name, "the variable is missing", "a whole number", "nothing");
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, value);
  if (result.ec != std::errc() || result.ptr != end || value < 0)
    refuse(name, "the variable is not a whole number", "0 or more", text);
  return value;
}

int number_or(const Variables& variables, const std::string& name, int otherwise) {
  return variables(name.c_str()) ? number(variables, name) : otherwise;
}

std::string text_or(const Variables& variables, const char* name, const char* otherwise) {
  const char* text = variables(name);
  return text && *text ? text : otherwise;
}

// A job's own port, so that two jobs on one node do not meet.
int port_of_job(const Variables& variables, const char* job) {
  return number_or(variables, "MASTER_PORT", kFirstPort + number_or(variables, job, 0) % kPorts);
}

void require_in_world(const Rendezvous& found, const char* rank, const char* size) {
  if (found.processes < 1) refuse(size, "there is no process", "1 or more", "0");
  if (found.process >= found.processes)
    refuse(rank, "the process is outside of its world",
           "less than " + std::string(size) + ", " + std::to_string(found.processes),
           std::to_string(found.process));
  if (found.port < 1 || found.port > 65535)
    refuse("MASTER_PORT", "no such port", "1 to 65535", std::to_string(found.port));
}

Rendezvous from_torchrun(const Variables& variables) {
  Rendezvous found{
      .process = number(variables, "RANK"),
      .processes = number(variables, "WORLD_SIZE"),
      .local_process = number_or(variables, "LOCAL_RANK", 0),
      .host = text_or(variables, "MASTER_ADDR", ""),
      .port = number_or(variables, "MASTER_PORT", kFirstPort),
      .store_is_running = text_or(variables, "TORCHELASTIC_USE_AGENT_STORE", "") == "True",
      .attempt = text_or(variables, "TORCHELASTIC_RESTART_COUNT", "0"),
      .source = "torchrun"};
  require_in_world(found, "RANK", "WORLD_SIZE");
  if (found.host.empty() && !found.alone())
    refuse("MASTER_ADDR", "the variable is missing", "the host of process 0", "nothing");
  return found;
}

Rendezvous from_slurm(const Variables& variables) {
  const std::string list = text_or(variables, "SLURM_STEP_NODELIST",
                                   text_or(variables, "SLURM_JOB_NODELIST", "127.0.0.1").c_str());
  Rendezvous found{.process = number(variables, "SLURM_PROCID"),
                   .processes = number(variables, "SLURM_NTASKS"),
                   .local_process = number_or(variables, "SLURM_LOCALID", 0),
                   .host = text_or(variables, "MASTER_ADDR", expand_hosts(list).front().c_str()),
                   .port = port_of_job(variables, "SLURM_JOB_ID"),
                   .attempt = text_or(variables, "SLURM_RESTART_COUNT", "0"),
                   .source = "Slurm"};
  require_in_world(found, "SLURM_PROCID", "SLURM_NTASKS");
  return found;
}

Rendezvous from_open_mpi(const Variables& variables) {
  Rendezvous found{.process = number(variables, "OMPI_COMM_WORLD_RANK"),
                   .processes = number(variables, "OMPI_COMM_WORLD_SIZE"),
                   .local_process = number_or(variables, "OMPI_COMM_WORLD_LOCAL_RANK", 0),
                   .port = number_or(variables, "MASTER_PORT", kFirstPort),
                   .attempt = "0",
                   .source = "Open MPI"};
  found.host = text_or(variables, "MASTER_ADDR", "");
  require_in_world(found, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  const int on_this_machine = number_or(variables, "OMPI_COMM_WORLD_LOCAL_SIZE", found.processes);
  if (found.host.empty() && on_this_machine < found.processes)
    refuse("MASTER_ADDR", "processes on several machines do not know where to meet",
           "the host of process 0", "nothing", "add `-x MASTER_ADDR=HOST` to mpirun");
  if (found.host.empty()) found.host = "127.0.0.1";
  return found;
}

// Adds prefix + each number of "03-05", with the width of its first.
void expand_range(const std::string& prefix, const std::string& range, const std::string& list,
                  std::vector<std::string>& hosts) {
  const auto whole = [&](const std::string& digits) {
    if (digits.empty() || digits.size() > 9 ||
        digits.find_first_not_of("0123456789") != std::string::npos)
      refuse("SLURM_STEP_NODELIST", "not a list of hosts", "hosts like node[03-05,9]", list);
    return std::stoi(digits);
  };
  const std::size_t dash = range.find('-');
  const std::string first = range.substr(0, dash);
  const int begin = whole(first);
  const int end = dash == std::string::npos ? begin : whole(range.substr(dash + 1));
  for (int i = begin; i <= end; ++i) {
    const std::string digits = std::to_string(i);
    const std::size_t zeros = first.size() > digits.size() ? first.size() - digits.size() : 0;
    hosts.push_back(prefix + std::string(zeros, '0') + digits);
  }
}

// Pieces between commas, those inside of brackets apart.
std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> pieces(1);
  int depth = 0;
  for (const char c : list) {
    depth += (c == '[') - (c == ']');
    if (c == ',' && depth == 0) {
      pieces.emplace_back();
    } else {
      pieces.back().push_back(c);
    }
  }
  return pieces;
}

}  // namespace

std::vector<std::string> expand_hosts(const std::string& list) {
  std::vector<std::string> hosts;
  for (const std::string& piece : split(list)) {
    const std::size_t open = piece.find('['), close = piece.find(']');
    if (open == std::string::npos) {
      hosts.push_back(piece);
      continue;
    }
    if (close == std::string::npos || close < open)
      refuse("SLURM_STEP_NODELIST", "not a list of hosts", "hosts like node[03-05,9]", list);
    const std::string prefix = piece.substr(0, open), suffix = piece.substr(close + 1);
    std::vector<std::string> numbered;
    for (const std::string& range : split(piece.substr(open + 1, close - open - 1)))
      expand_range(prefix, range, list, numbered);
    for (const std::string& host : numbered)
      for (const std::string& expanded : expand_hosts(host + suffix)) hosts.push_back(expanded);
  }
  return hosts;
}

Rendezvous rendezvous_from(const Variables& variables) {
  if (variables("RANK") || variables("WORLD_SIZE")) return from_torchrun(variables);
  if (variables("SLURM_PROCID")) return from_slurm(variables);
  if (variables("OMPI_COMM_WORLD_RANK")) return from_open_mpi(variables);
  return {};
}

Rendezvous rendezvous_from_environment() {
  return rendezvous_from([](const char* name) { return std::getenv(name); });
}

}  // namespace strata
