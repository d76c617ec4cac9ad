#include "strata/comm/library_environment.h"

#include <gtest/gtest.h>

#include <map>

namespace strata {
namespace {

std::vector<std::string> found(const std::map<std::string, std::string>& variables) {
  return library_warnings([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

TEST(LibraryWarnings, NameSettingsThatChangeSumsNetworksOrWaits) {
  EXPECT_TRUE(found({}).empty());
  EXPECT_TRUE(found({{"NCCL_ALGO", ""},
                     {"NCCL_IB_DISABLE", "0"},
                     {"NCCL_COMM_BLOCKING", "0"},
                     {"NCCL_DEBUG", "INFO"}})
                  .empty());
  const std::vector<std::string> all = found({{"NCCL_ALGO", "Ring"},
                                              {"NCCL_NVLS_ENABLE", "0"},
                                              {"NCCL_SOCKET_IFNAME", "eth1"},
                                              {"NCCL_P2P_DISABLE", "1"},
                                              {"NCCL_COMM_BLOCKING", "1"}});
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].substr(0, 58), "NCCL_ALGO=Ring: mesh.reduction=native adds in another orde");
  EXPECT_EQ(all[1].substr(0, 20), "NCCL_NVLS_ENABLE=0: ");  // on unless it is set
  EXPECT_EQ(all[2].substr(0, 43), "NCCL_SOCKET_IFNAME=eth1: chooses the networ");
  EXPECT_EQ(all[3], "NCCL_P2P_DISABLE=1: a faster way between GPUs is left out");
  EXPECT_EQ(all[4].substr(0, 43), "NCCL_COMM_BLOCKING=1: refused where NCCL is");
}

}  // namespace
}  // namespace strata
