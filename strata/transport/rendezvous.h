/// Reads from the environment the number of this process, the number of processes, and where they
/// meet.
///
/// Understands, in this order: torchrun and Kubernetes (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
/// MASTER_PORT), Slurm (SLURM_PROCID, SLURM_NTASKS, ...), Open MPI (OMPI_COMM_WORLD_RANK, ...).
/// Sizes count processes; each may host several ranks as threads.
///
/// Errors  UserError for variables that are missing, not numbers or contradict each other.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace strata {

struct Rendezvous {
  int process = 0;
  int processes = 1;
  int local_process = 0;           ///< on this machine
  int local_processes = 1;         ///< on this machine; 1 if no variable tells
  std::string host = "127.0.0.1";  ///< host of process 0
  int port = 29500;
  bool store_is_running = false;   ///< torchrun's agent serves the store; process 0 does not
  std::string restart;             ///< distinguishes the restarts of one job
  std::string source = "threads";  ///< "torchrun", "Slurm", "Open MPI"

  bool alone() const { return processes == 1; }
};

/// Value of a variable, or null.
using Variables = std::function<const char*(const char* name)>;

Rendezvous rendezvous_from(const Variables& variables);
Rendezvous rendezvous_from_environment();

/// Expands a Slurm list of hosts: "node[03-05,9],login" is node03 node04 node05 node9 login; at
/// most 65,536.
std::vector<std::string> expand_hosts(const std::string& list);

}  // namespace strata
