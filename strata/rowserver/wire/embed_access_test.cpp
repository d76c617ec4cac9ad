// Whom a server on loopback or a unix socket lets in.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/wire/grpc_client.h"
#include "strata/rowserver/wire/grpc_inspection.h"
#include "strata/rowserver/wire/refusal_test.h"
#include "strata/rowserver/wire/server_processes_test.h"

namespace strata {
namespace {

const ServerAccess kOurs({}, "the secret of the test's run"), kTheirs({}, "of another local user");

ServerOptions options_with(const std::string& folder, const ServerAccess& access) {
  ServerOptions options = options_for_test(folder, 0, 1, 1);
  options.access = access;
  return options;
}

RemoteServersOptions remote_with(const std::string& address, const ServerAccess& access) {
  RemoteServersOptions remote;
  remote.addresses = {address};
  remote.features = options_for_test("", 0, 1, 1).features, remote.seed = 3;
  remote.access = access;
  return remote;
}

TEST(EmbedAccess, RefusesCallsWithoutTheSecret) {
  const ScratchFolder scratch;
  ServerOptions options = options_with(scratch.path(), kOurs);
  for (const std::string& listen : {options.listen, std::string("127.0.0.1:0")}) {
    options.listen = listen;
    EmbedServer server(options);
    RemoteServersOptions stranger = remote_with(server.address(), kTheirs);
    stranger.seed = 4;  // a greeting that is refused would show the fingerprint
    const std::string fingerprint = std::to_string(fingerprint_of(stranger.features, 3));
    for (const std::string& reported :
         {refusal([&] { make_remote_servers(stranger)->await(0); }),
          refusal([&] { runs_to_follow(stranger); }),
          refusal([&] { remote_inspection(server.address(), kTheirs)->digest(); }),
          refusal([&] { grpc_follow(server.address(), kTheirs, {}); })}) {
      EXPECT_NE(reported.find("[embed.secret]"), std::string::npos) << reported;
      EXPECT_EQ(reported.find(fingerprint), std::string::npos) << reported;
      EXPECT_EQ(reported.find(kTheirs.secret), std::string::npos) << reported;
    }
    EXPECT_EQ(remote_inspection(server.address(), kOurs)->run(), 0u) << "no run has begun";
    const RemoteServersOptions mine = remote_with(server.address(), kOurs);
    EXPECT_NO_THROW(make_remote_servers(mine)->await(0));
    EXPECT_NE(remote_inspection(server.address(), kOurs)->run(), 0u);
    EXPECT_EQ(grpc_health(server.address(), kTheirs), "SERVING")
        << "the one thing that all may ask";
    options.folder += "-second";
  }
}

TEST(EmbedAccess, RequiresTheSecretFromReplicas) {
  const ScratchFolder scratch;
  EmbedServer primary(options_with(scratch.path(), kOurs));
  ServerOptions options = replica_for_test(scratch.path(), 0, 1, 1);
  options.access = kTheirs;
  {
    EmbedServer stranger(options);
    EXPECT_NE(refusal([&] { stranger.wait(); }).find("[embed.secret]"), std::string::npos);
  }
  options.access = kOurs;
  EmbedServer replica(options);
  const std::unique_ptr<RowInspection> remote = remote_inspection(replica.address(), kOurs);
  while (!remote->lag().value().following)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST(EmbedAccess, CreatesSocketWithMode600) {
  const ScratchFolder scratch;
  const mode_t before = ::umask(0);
  const EmbedServer server(options_with(scratch.path(), kOurs));
  ::umask(before);
  struct stat about{};
  ASSERT_EQ(::stat(server.address().substr(5).c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
}

// A program that listens where a server was, and passes on what comes.
class Relay {
 public:
  explicit Relay(int to_port) : to_(to_port), listening_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    ::bind(listening_, reinterpret_cast<const sockaddr*>(&address), size);
    ::listen(listening_, 16);
    ::getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { pass_on(); });
  }
  ~Relay() {
    over_ = true;
    thread_.join();
    ::close(listening_);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::int64_t bytes() const { return bytes_; }

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void pass_on() {
    std::vector<pollfd> waiting{{.fd = listening_, .events = POLLIN, .revents = 0}};
    std::vector<int> other{-1};
    while (!over_) {
      ::poll(waiting.data(), waiting.size(), 20);
      for (std::size_t i = 1; i < waiting.size(); ++i) {
        if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
        char buffer[4096];
        const ssize_t size = ::recv(waiting[i].fd, buffer, sizeof(buffer), MSG_DONTWAIT);
        if (size > 0) {
          bytes_ += size;
          static_cast<void>(::send(other[i], buffer, static_cast<std::size_t>(size), MSG_NOSIGNAL));
        } else if (size == 0) {
          ::shutdown(other[i], SHUT_RDWR);
          waiting[i].fd = -waiting[i].fd;
        }
      }
      if (waiting[0].revents == 0) continue;
      const int near = ::accept(listening_, nullptr, nullptr);
      const int far = ::socket(AF_INET, SOCK_STREAM, 0);
      const sockaddr_in address = loopback(to_);
      ::connect(far, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
      for (const auto& [fd, peer] : {std::pair{near, far}, {far, near}}) {
        waiting.push_back({.fd = fd, .events = POLLIN, .revents = 0});
        other.push_back(peer);
      }
    }
    for (std::size_t i = 1; i < waiting.size(); ++i) ::close(std::abs(waiting[i].fd));
  }

  const int to_, listening_;
  int port_ = 0;
  std::atomic<bool> over_ = false;
  std::atomic<std::int64_t> bytes_ = 0;
  std::thread thread_;
};

TEST(EmbedAccess, DetectsForwardingProgram) {
  const ScratchFolder scratch;
  ServerOptions options = options_with(scratch.path(), kOurs);
  options.listen = "127.0.0.1:0";
  EmbedServer server(options);
  const std::string port = server.address().substr(server.address().rfind(':') + 1);
  Relay relay(std::stoi(port));
  const std::string reported =
      refusal([&] { make_remote_servers(remote_with(relay.address(), kOurs))->await(0); });
  EXPECT_GT(relay.bytes(), 0);
  EXPECT_NE(reported.find("[embed.secret]"), std::string::npos) << reported;
  EXPECT_NE(reported.find("ipv4:127.0.0.1:" + port), std::string::npos) << reported;
  EXPECT_EQ(remote_inspection(server.address(), kOurs)->run(), 0u) << "no run has begun";
}

}  // namespace
}  // namespace strata
