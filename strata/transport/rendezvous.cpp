// A list of hosts is external input and may be hostile: its expansion is bounded in advance. A job
// without a port takes one derived from its number, so that two jobs on one machine do not collide.
#include "strata/transport/rendezvous.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr int kFirstPort = 29500, kPorts = 4000;  // range of ports of the jobs of one machine
constexpr int kMostProcesses = 1 << 20;           // a mesh has no more ranks
constexpr std::size_t kMostHosts = 1 << 16, kMostListBytes = 1 << 20;  // in a list of hosts
constexpr std::size_t kMostNameBytes = 255;

[[noreturn]] void refuse(const std::string& variable, const std::string& what,
                         const std::string& expected, const std::string& got,
                         const std::string& fix = "") {
  throw UserError(
      {.operation = "transport.rendezvous",
       .where = variable,
       .what = what,
       .expected = expected,
       .got = got,
       .fix = fix.empty() ? "set " + variable + ", or start with `strata launch -n N`" : fix});
}

[[noreturn]] void refuse_hosts(const std::string& list, const std::string& got) {
  constexpr std::size_t kShown = 80;
  refuse("SLURM_STEP_NODELIST", "not a list of hosts",
         "hosts like node[03-05,9], at most " + std::to_string(kMostHosts),
         got + " in '" + list.substr(0, kShown) + (list.size() > kShown ? "...'" : "'"));
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

// A port derived from the job, so that two jobs on one node do not collide.
int port_of_job(const Variables& variables, const char* job) {
  return number_or(variables, "MASTER_PORT", kFirstPort + number_or(variables, job, 0) % kPorts);
}

void require_in_world(const Rendezvous& found, const char* rank, const char* size) {
  if (found.processes < 1) refuse(size, "there is no process", "1 or more", "0");
  if (found.processes > kMostProcesses)
    refuse(size, "there are not so many processes", "at most " + std::to_string(kMostProcesses),
           std::to_string(found.processes));
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
      .local_processes = number_or(variables, "LOCAL_WORLD_SIZE", 1),
      .host = text_or(variables, "MASTER_ADDR", ""),
      .port = number_or(variables, "MASTER_PORT", kFirstPort),
      .store_is_running = text_or(variables, "TORCHELASTIC_USE_AGENT_STORE", "") == "True",
      .restart = text_or(variables, "TORCHELASTIC_RESTART_COUNT", "0"),
      .source = variables("STRATA_LAUNCH") ? "strata launch" : "torchrun"};
  require_in_world(found, "RANK", "WORLD_SIZE");
  if (found.host.empty() && !found.alone())
    refuse("MASTER_ADDR", "the variable is missing", "the host of process 0", "nothing");
  return found;
}

// "4", or "4(x2)": 4 on each of two nodes; if nodes differ, the number of the first.
int tasks_a_node(const Variables& variables) {
  const std::string list = text_or(variables, "SLURM_STEP_TASKS_PER_NODE", "1");
  int tasks = 1;
  std::from_chars(list.data(), list.data() + list.size(), tasks);
  return tasks;
}

Rendezvous from_slurm(const Variables& variables) {
  const std::string list = text_or(variables, "SLURM_STEP_NODELIST",
                                   text_or(variables, "SLURM_JOB_NODELIST", "127.0.0.1").c_str());
  Rendezvous found{.process = number(variables, "SLURM_PROCID"),
                   .processes = number(variables, "SLURM_NTASKS"),
                   .local_process = number_or(variables, "SLURM_LOCALID", 0),
                   .local_processes = tasks_a_node(variables),
                   .host = text_or(variables, "MASTER_ADDR", expand_hosts(list).front().c_str()),
                   .port = port_of_job(variables, "SLURM_JOB_ID"),
                   .restart = text_or(variables, "SLURM_RESTART_COUNT", "0"),
                   .source = "Slurm"};
  require_in_world(found, "SLURM_PROCID", "SLURM_NTASKS");
  if (found.host.empty()) refuse_hosts(list, "no host");
  return found;
}

Rendezvous from_open_mpi(const Variables& variables) {
  Rendezvous found{.process = number(variables, "OMPI_COMM_WORLD_RANK"),
                   .processes = number(variables, "OMPI_COMM_WORLD_SIZE"),
                   .local_process = number_or(variables, "OMPI_COMM_WORLD_LOCAL_RANK", 0),
                   .port = number_or(variables, "MASTER_PORT", kFirstPort),
                   .restart = "0",
                   .source = "Open MPI"};
  found.host = text_or(variables, "MASTER_ADDR", "");
  require_in_world(found, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  found.local_processes = number_or(variables, "OMPI_COMM_WORLD_LOCAL_SIZE", found.processes);
  if (found.host.empty() && found.local_processes < found.processes)
    refuse("MASTER_ADDR", "processes on several machines do not know where to meet",
           "the host of process 0", "nothing", "add `-x MASTER_ADDR=HOST` to mpirun");
  if (found.host.empty()) found.host = "127.0.0.1";
  return found;
}

// Adds each number of "03-05", with the width of its first.
void expand_range(const std::string& range, const std::string& list,
                  std::vector<std::string>& numbers) {
  const auto whole = [&](const std::string& digits) {
    if (digits.empty() || digits.size() > 9 ||
        digits.find_first_not_of("0123456789") != std::string::npos)
      refuse_hosts(list, "no number");
    return std::stoi(digits);
  };
  const std::size_t dash = range.find('-');
  const std::string first = range.substr(0, dash);
  const int begin = whole(first);
  const int end = dash == std::string::npos ? begin : whole(range.substr(dash + 1));
  if (end < begin) refuse_hosts(list, "a range that ends before it begins");
  if (static_cast<std::size_t>(end - begin) >= kMostHosts)
    refuse_hosts(list, "a range of " + std::to_string(std::int64_t{end} - begin + 1) + " hosts");
  for (int i = begin; i <= end; ++i) {
    const std::string digits = std::to_string(i);
    const std::size_t zeros = first.size() > digits.size() ? first.size() - digits.size() : 0;
    numbers.push_back(std::string(zeros, '0') + digits);
  }
}

// Splits at commas outside of brackets.
std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> entries(1);
  int depth = 0;
  for (const char c : list) {
    depth += (c == '[') - (c == ']');
    if (c == ',' && depth == 0) {
      entries.emplace_back();
    } else {
      entries.back().push_back(c);
    }
  }
  return entries;
}

// Every combination of one number from each pair of brackets.
std::vector<std::string> expand_entry(const std::string& entry, const std::string& list) {
  std::vector<std::string> hosts{""};
  for (std::size_t at = 0; at < entry.size();) {
    const std::size_t open = entry.find('[', at), close = entry.find(']', at);
    const std::string literal = entry.substr(at, std::min(open, close) - at);
    if (hosts.front().size() + literal.size() > kMostNameBytes)
      refuse_hosts(list, "a name longer than " + std::to_string(kMostNameBytes) + " letters");
    for (std::string& host : hosts) host += literal;
    if (open == std::string::npos && close == std::string::npos) break;
    if (close == std::string::npos) refuse_hosts(list, "an open bracket");
    if (close < open) refuse_hosts(list, "a closing bracket alone");
    std::vector<std::string> numbers, product;
    for (const std::string& range : split(entry.substr(open + 1, close - open - 1))) {
      expand_range(range, list, numbers);
      if (numbers.size() > kMostHosts) break;
    }
    if (hosts.size() * numbers.size() > kMostHosts) refuse_hosts(list, "too many hosts");
    for (const std::string& host : hosts)
      for (const std::string& number : numbers) product.push_back(host + number);
    hosts = std::move(product);
    at = close + 1;
  }
  return hosts;
}

}  // namespace

std::vector<std::string> expand_hosts(const std::string& list) {
  std::vector<std::string> hosts;
  if (list.size() > kMostListBytes) refuse_hosts(list, std::to_string(list.size()) + " bytes");
  for (const std::string& entry : split(list)) {
    std::vector<std::string> expanded = expand_entry(entry, list);
    if (hosts.size() + expanded.size() > kMostHosts) refuse_hosts(list, "too many hosts");
    hosts.insert(hosts.end(), expanded.begin(), expanded.end());
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
