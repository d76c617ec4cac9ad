#include "strata/transport/transport_choice.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/transport/join.h"

namespace strata {
namespace {

std::optional<MissingUcx> nothing_missing() { return std::nullopt; }
std::optional<MissingUcx> library_missing() {
  return MissingUcx{.reason = "the library is missing", .fix = "install it"};
}
std::optional<MissingUcx> not_called() {
  ADD_FAILURE() << "loads UCX although sockets are used";
  return std::nullopt;
}

class RdmaFolder : public testing::Test {
 protected:
  RdmaFolder() { std::filesystem::create_directories(folder_); }
  ~RdmaFolder() override { std::filesystem::remove_all(folder_); }
  void add_port(const std::string& device, const std::string& port, const std::string& state) {
    const std::string path = folder_ + "/" + device + "/ports/" + port;
    std::filesystem::create_directories(path);
    std::ofstream(path + "/state") << state << '\n';
  }
  const std::string folder_ = testing::TempDir() + "strata_rdma_" + std::to_string(::getpid());
};

TEST_F(RdmaFolder, NamesFirstDeviceWithActivePort) {
  EXPECT_EQ(active_rdma_device(folder_ + "/none"), "");
  EXPECT_EQ(active_rdma_device(folder_), "");
  add_port("mlx5_0", "1", "1: DOWN");
  std::filesystem::create_directories(folder_ + "/mlx5_1/ports/1");  // without a state
  EXPECT_EQ(active_rdma_device(folder_), "");
  add_port("mlx5_3", "1", "4: ACTIVE");
  EXPECT_EQ(active_rdma_device(folder_), "mlx5_3");
  add_port("mlx5_2", "1", "2: INIT");
  add_port("mlx5_2", "2", "4: ACTIVE");
  EXPECT_EQ(active_rdma_device(folder_), "mlx5_2");
}

TEST(TransportChoice, AutoTakesUcxOnlyWithDeviceAndLibrary) {
  const TransportChoice ucx = choose_transport(TransportKind::kAuto, {"mlx5_0", nothing_missing});
  EXPECT_EQ(ucx.kind, TransportKind::kUcx);
  EXPECT_EQ(ucx.reason, "RDMA device mlx5_0");

  const TransportChoice no_device = choose_transport(TransportKind::kAuto, {"", not_called});
  EXPECT_EQ(no_device.kind, TransportKind::kSockets);
  EXPECT_EQ(no_device.reason, "no RDMA device has an active port");

  const TransportChoice no_library =
      choose_transport(TransportKind::kAuto, {"mlx5_0", library_missing});
  EXPECT_EQ(no_library.kind, TransportKind::kSockets);
  EXPECT_EQ(no_library.reason,
            "RDMA device mlx5_0 is not used: the library is missing; install it");
}

TEST(TransportChoice, ObeysExplicitKindOrRefusesWithFix) {
  EXPECT_EQ(choose_transport(TransportKind::kSockets, {"mlx5_0", not_called}).kind,
            TransportKind::kSockets);
  EXPECT_EQ(choose_transport(TransportKind::kUcx, {"", nothing_missing}).kind, TransportKind::kUcx);
  try {
    choose_transport(TransportKind::kUcx, {"mlx5_0", library_missing});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "mesh.transport");
    EXPECT_EQ(error.text().fix, "install it, or set mesh.transport=auto");
  }
}

struct Agreed {
  TransportChoice choice;
  std::string error;
};

// Processes, as threads, that meet at `host` on machines with `support`.
std::vector<Agreed> agree(TransportKind requested, const std::vector<UcxSupport>& support,
                          const std::string& host) {
  std::vector<Agreed> all(support.size());
  const int port = free_loopback_port();
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < support.size(); ++i)
    threads.emplace_back([&, i] {
      Bootstrap bootstrap({.process = static_cast<int>(i),
                           .processes = static_cast<int>(support.size()),
                           .host = host,
                           .port = port},
                          {.seconds = 20, .secret = "the secret of this test"});
      try {
        all[i].choice = agree_on_transport(bootstrap, requested, support[i]);
      } catch (const UserError& error) {
        all[i].error = error.what();
      }
    });
  threads.clear();
  return all;
}

TEST(TransportChoice, AllProcessesTakeSocketsIfOneCannotUseUcx) {
  const TransportChoice ucx{TransportKind::kUcx, "RDMA device mlx5_0"};
  const TransportChoice sockets{TransportKind::kSockets, "no RDMA device has an active port"};
  EXPECT_EQ(common_choice({ucx, {TransportKind::kUcx, "RDMA device mlx5_1"}}).kind,
            TransportKind::kUcx);
  for (const auto& choices : {std::vector{ucx, sockets, ucx}, std::vector{ucx, sockets, sockets}}) {
    const TransportChoice common = common_choice(choices);
    EXPECT_EQ(common.kind, TransportKind::kSockets);
    EXPECT_EQ(common.reason, "process 1 of 3: no RDMA device has an active port");
  }
  EXPECT_EQ(common_choice({sockets, sockets}).reason, sockets.reason);
}

TEST(TransportChoice, AutoTakesSocketsBetweenProcessesOfOneMachine) {
  for (const Agreed& each :
       agree(TransportKind::kAuto, {{"mlx5_0", not_called}, {"mlx5_0", not_called}}, "127.0.0.1")) {
    EXPECT_EQ(each.error, "");
    EXPECT_EQ(each.choice.kind, TransportKind::kSockets);
    EXPECT_EQ(each.choice.reason, "all processes are on this machine");
  }
}

TEST(TransportChoice, AllProcessesRefuseWhatOneLacks) {
  for (const Agreed& each :
       agree(TransportKind::kUcx,
             {{"", nothing_missing}, {"", library_missing}, {"", nothing_missing}}, "127.0.0.1")) {
    EXPECT_NE(each.error.find("process 1 of 3"), std::string::npos) << each.error;
    EXPECT_NE(each.error.find("the library is missing"), std::string::npos) << each.error;
  }
}

}  // namespace
}  // namespace strata
