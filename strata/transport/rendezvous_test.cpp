#include "strata/transport/rendezvous.h"

#include <gtest/gtest.h>

#include <map>

#include "strata/base/errors.h"

namespace strata {
namespace {

using Map = std::map<std::string, std::string>;

Rendezvous found(const Map& variables) {
  return rendezvous_from([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

TEST(Rendezvous, WithoutVariablesIsOneProcess) {
  EXPECT_TRUE(found({}).alone());
  EXPECT_EQ(found({}).local_processes, 1);
  EXPECT_EQ(found({}).source, "threads");
}

TEST(Rendezvous, ReadsTorchrunVariables) {
  const Rendezvous it = found({{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "node4"},
                               {"MASTER_PORT", "1234"},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                               {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(it.process, 5);
  EXPECT_EQ(it.processes, 8);
  EXPECT_EQ(it.local_process, 1);
  EXPECT_EQ(it.local_processes, 2);
  EXPECT_EQ(it.host, "node4");
  EXPECT_EQ(it.port, 1234);
  EXPECT_TRUE(it.store_is_running);
  EXPECT_EQ(it.restart, "2");
}

TEST(Rendezvous, ReadsSlurmVariables) {
  const Map slurm{{"SLURM_PROCID", "3"},
                  {"SLURM_NTASKS", "4"},
                  {"SLURM_LOCALID", "1"},
                  {"SLURM_JOB_ID", "41007"},
                  {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                  {"SLURM_STEP_NODELIST", "gpu[07-09],login"}};
  const Rendezvous it = found(slurm);
  EXPECT_EQ(it.process, 3);
  EXPECT_EQ(it.local_processes, 2);
  EXPECT_EQ(it.host, "gpu07");
  EXPECT_EQ(it.port, 29500 + 41007 % 4000);
  EXPECT_FALSE(it.store_is_running);
  Map torchrun = slurm;  // torchrun inside a Slurm job
  torchrun.insert({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_TRUE(found(torchrun).alone());
  EXPECT_EQ(found(torchrun).source, "torchrun");
  torchrun.insert({"STRATA_LAUNCH", "3"});  // which sets the same variables
  EXPECT_EQ(found(torchrun).source, "strata launch");
}

TEST(Rendezvous, ReadsOpenMpiVariables) {
  Map mpi{{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(found(mpi).process, 1);
  EXPECT_EQ(found(mpi).local_processes, 2);
  EXPECT_EQ(found(mpi).host, "127.0.0.1");
  mpi["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_THROW(found(mpi), UserError);
}

TEST(Rendezvous, ExpandsListsOfHosts) {
  using Hosts = std::vector<std::string>;
  EXPECT_EQ(expand_hosts("one"), Hosts({"one"}));
  EXPECT_EQ(expand_hosts("node[03-05,9],login"),
            Hosts({"node03", "node04", "node05", "node9", "login"}));
  EXPECT_EQ(expand_hosts("a[1-2]-ib,b[098-101]"),
            Hosts({"a1-ib", "a2-ib", "b098", "b099", "b100", "b101"}));
  EXPECT_EQ(expand_hosts("r[1-2]n[7,8]"), Hosts({"r1n7", "r1n8", "r2n7", "r2n8"}));
  EXPECT_THROW(expand_hosts("node[3"), UserError);
  EXPECT_THROW(expand_hosts("node[a-b]"), UserError);
}

TEST(Rendezvous, RejectsMalformedListsOfHosts) {
  const auto refused = [](const std::string& list) -> std::string {
    try {
      found({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_NODELIST", list}});
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().where, "SLURM_STEP_NODELIST");
      EXPECT_LT(error.text().got.size(), 200u);
      return error.text().got;
    }
    return "";
  };
  EXPECT_EQ(refused("n[5-3]"), "a range that ends before it begins in 'n[5-3]'");
  EXPECT_EQ(refused("n[0-999999999]"), "a range of 1000000000 hosts in 'n[0-999999999]'");
  EXPECT_NE(refused("a[1-300]b[1-300]c[1-300]").find("too many hosts"), std::string::npos);
  EXPECT_NE(refused("a[1-60000],b[1-60000]").find("too many hosts"), std::string::npos);
  EXPECT_NE(refused("n[3").find("an open bracket"), std::string::npos);
  EXPECT_NE(refused("n3]").find("a closing bracket"), std::string::npos);
  EXPECT_NE(refused("n[]").find("no number"), std::string::npos);
  EXPECT_NE(refused("n[1-99999999999]").find("no number"), std::string::npos);
  EXPECT_NE(refused(",").find("no host"), std::string::npos);
  EXPECT_NE(refused(std::string(2 << 20, 'n')).find("bytes"), std::string::npos);
  std::string brackets = "n";
  for (int i = 0; i < 100000; ++i) brackets += "[1]";
  EXPECT_NE(refused(brackets).find("a name longer"), std::string::npos);
  EXPECT_NE(refused("n[0-60000]" + std::string(900000, 'x')).find("a name"), std::string::npos);
  std::string ranges = "n[0-60000";
  for (int i = 0; i < 100000; ++i) ranges += ",0-60000";
  EXPECT_NE(refused(ranges + "]").find("too many hosts"), std::string::npos);
}

TEST(Rendezvous, ErrorNamesVariable) {
  const auto refused = [](const Map& variables) -> std::string {
    try {
      found(variables);
    } catch (const UserError& error) {
      return error.text().where;
    }
    return "";
  };
  EXPECT_EQ(refused({{"RANK", "0"}}), "WORLD_SIZE");
  EXPECT_EQ(refused({{"WORLD_SIZE", "2"}}), "RANK");
  EXPECT_EQ(refused({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK");
  EXPECT_EQ(refused({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), "RANK");
  EXPECT_EQ(refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "MASTER_ADDR");
  EXPECT_EQ(refused({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "99999"}}), "MASTER_PORT");
  EXPECT_EQ(refused({{"RANK", "0"}, {"WORLD_SIZE", "2000000000"}, {"MASTER_ADDR", "a"}}),
            "WORLD_SIZE");
}

}  // namespace
}  // namespace strata
