/// Finds out from the environment which process of how many this is, and where they meet.
///
/// Understands, in this order: what torchrun and Kubernetes set (RANK, WORLD_SIZE, LOCAL_RANK,
/// MASTER_ADDR, MASTER_PORT), Slurm (SLURM_PROCID, SLURM_NTASKS, ...), Open MPI
/// (OMPI_COMM_WORLD_RANK, ...). Sizes count processes; each may host several ranks as threads.
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
  int local_processes = 1;         ///< there; 1, too, where nobody says
  std::string host = "127.0.0.1";  ///< where process 0 is
  int port = 29500;
  bool store_is_running = false;   ///< torchrun's agent serves the store; process 0 does not
  std::string restart;             ///< tells the restarts of one job apart
  std::string source = "threads";  ///< "torchrun", "Slurm", "Open MPI"

  bool alone() const { return processes == 1; }
};

/// Value of a variable, or null.
using Variables = std::function<const char*(const char* name)>;

Rendezvous rendezvous_from(const Variables& variables);
Rendezvous rendezvous_from_environment();

/// Hosts of a Slurm list: "node[03-05,9],login" is node03 node04 node05 node9 login; at most 65,536.
std::vector<std::string> expand_hosts(const std::string& list);

}  // namespace strata
