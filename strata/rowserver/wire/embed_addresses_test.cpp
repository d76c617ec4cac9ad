// Where servers listen, and whom they let in.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/wire/grpc_client.h"
#include "strata/rowserver/wire/grpc_inspection.h"
#include "strata/rowserver/wire/server_processes_test.h"
#include "strata/transport/server_address.h"
#include "strata/transport/socket.h"

namespace strata {
namespace {

TEST(EmbedServer, RefusesImpossibleAddresses) {
  const ScratchFolder scratch;
  ServerOptions options = options_for_test(scratch.path(), 0, 1, 1);
  options.listen = "0.0.0.0:0";  // beyond the machine, without TLS
  EXPECT_THROW(EmbedServer server(options), UserError);
  for (const char* none : {"nonsense", "host:", ":7001", "host:port", "unix:"}) try {
      remote_inspection(none, {})->metrics();
      ADD_FAILURE() << none;
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().expected, "HOST:PORT or unix:PATH") << error.what();
    }
  options.listen = "127.0.0.1:0";
  const EmbedServer server(options);
  ServerOptions second = options_for_test(scratch.path(), 0, 1, 1);
  second.folder += "b";
  second.listen = server.address();
  EXPECT_THROW(EmbedServer taken(second), UserError);
}

struct AddressCase {
  const char* text;
  bool local;
  const char* target;
};

TEST(ServerAddress, CountsOnlyLoopbackNumbersAndLocalhostAsLocal) {
  for (const AddressCase& address : {AddressCase{"127.0.0.1:7001", true, "127.0.0.1:7001"},
                                     AddressCase{"127.8.9.1:1", true, "127.8.9.1:1"},
                                     AddressCase{"127.1:65535", true, "127.0.0.1:65535"},
                                     AddressCase{"[::1]:7001", true, "[::1]:7001"},
                                     AddressCase{"localhost:7001", true, "localhost:7001"},
                                     AddressCase{"unix:/tmp/a", true, "unix:/tmp/a"},
                                     AddressCase{"unix:///tmp/a", true, "unix:/tmp/a"},
                                     AddressCase{"10.0.0.1:7001", false, "10.0.0.1:7001"},
                                     AddressCase{"0.0.0.0:7001", false, "0.0.0.0:7001"},
                                     AddressCase{"[::]:7001", false, "[::]:7001"},
                                     AddressCase{"127.rows.org:7001", false, "127.rows.org:7001"},
                                     AddressCase{"127.0.0.1.x:7001", false, "127.0.0.1.x:7001"},
                                     AddressCase{"localhost.x:7001", false, "localhost.x:7001"}}) {
    const ServerAddress parsed = parse_server_address(address.text);
    EXPECT_EQ(parsed.local, address.local) << address.text;
    EXPECT_EQ(parsed.target(), address.target);
  }
}

TEST(ServerAddress, RefusesMalformedTextWithAFix) {
  const std::string long_path = "unix:/" + std::string(120, 'x');
  for (const char* none :
       {"127.0.0.1:99999", "127.0.0.1:65536", "127.0.0.1:4294974297", "127.0.0.1:0", "127.0.0.1:-1",
        "127.0.0.1:7001x", "::1:7001", "[::1]x:7001", "[]:1", "ipv4:10.0.0.1:7001", "dns:///h:1",
        "a b:1", "unix:", "unix://", ":1", "host", "", long_path.c_str()})
    try {
      parse_server_address(none);
      ADD_FAILURE() << none;
    } catch (const UserError& error) {
      EXPECT_FALSE(error.text().expected.empty()) << error.what();
      EXPECT_FALSE(error.text().fix.empty()) << error.what();
    }
  EXPECT_EQ(parse_server_address("127.0.0.1:0", FreePort::kYes).port, 0);
}

// Whatever the name resolves to.
TEST(EmbedServer, RequiresTlsForHostNamesThatBeginLikeLoopback) {
  const ScratchFolder scratch;
  ServerOptions options = options_for_test(scratch.path(), 0, 1, 1);
  options.listen = "127.localhost:0";
  try {
    const EmbedServer server(options);
    ADD_FAILURE() << "served without TLS at " << server.address();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().operation, "embed.tls") << error.what();
  }
  try {
    remote_inspection("127.localhost:7001", {})->lag();
    ADD_FAILURE() << "a request was accepted without TLS";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().operation, "embed.tls") << error.what();
  }
}

// Accepts connections and says nothing.
class SilentListener {
 public:
  SilentListener()
      : listening_(listen_at(resolve("127.0.0.1", 0, std::chrono::steady_clock::now()).front())) {}
  std::string address() const { return "127.0.0.1:" + std::to_string(listening_.port()); }
  bool was_called() const {
    pollfd waiting{.fd = listening_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, 0) == 1;
  }

 private:
  Socket listening_;
};

TEST(EmbedServer, IgnoresProxiesOfTheEnvironment) {
  const ScratchFolder scratch;
  ServerOptions options = options_for_test(scratch.path(), 0, 1, 1);
  options.listen = "127.0.0.1:0";
  const EmbedServer server(options);
  const SilentListener proxy;
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy"})
    ::setenv(name, ("http://" + proxy.address()).c_str(), 1);
  EXPECT_NO_THROW(remote_inspection(server.address(), {})->metrics());
  EXPECT_EQ(grpc_health(server.address(), {}), "SERVING");
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy"}) ::unsetenv(name);
  EXPECT_FALSE(proxy.was_called());
}

// A server that is away, and one that accepts and says nothing.
TEST(EmbedServer, EndsTheWaitOfAStoppedRun) {
  const SilentListener silent;
  const std::string unused = "127.0.0.1:" + std::to_string(free_loopback_port());
  for (const std::string& address : {unused, silent.address()}) {
    std::atomic<bool> stop = false;
    RemoteServersOptions remote;
    remote.addresses = {address};
    remote.features = options_for_test("", 0, 1, 1).features;
    remote.deadline = std::chrono::hours(1);
    remote.stop = &stop;
    const auto servers = make_remote_servers(remote);
    std::jthread stopping([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      stop = true;
    });
    try {
      servers->await(1);
      ADD_FAILURE() << "there is no server";
    } catch (const SystemError& error) {
      EXPECT_NE(std::string(error.what()).find("was stopped"), std::string::npos) << error.what();
      EXPECT_EQ(error.text().where, address);
    }
  }
}

ServerOptions another_for_test(const std::string& folder, const std::string& listen) {
  ServerOptions options = options_for_test(folder, 0, 1, 1);
  options.folder += "-another";
  options.listen = listen;
  return options;
}

std::vector<std::string> errors_of_a_taken_address(const std::vector<std::string>& addresses,
                                                   const std::string& folder) {
  std::vector<std::string> errors;
  for (const std::string& address : addresses) try {
      const EmbedServer taken(another_for_test(folder, address));
    } catch (const UserError& error) {
      const std::string text = error.what();
      errors.push_back(text.substr(text.find("the server cannot")));
    }
  return errors;
}

TEST(EmbedServer, RefusesSocketInUseLikePortInUse) {
  const ScratchFolder scratch;
  ServerOptions tcp = options_for_test(scratch.path(), 1, 2, 1);
  tcp.listen = "127.0.0.1:0";
  const EmbedServer one(options_for_test(scratch.path(), 0, 1, 1)), two(tcp);
  const auto errors = errors_of_a_taken_address({two.address(), one.address()}, scratch.path());
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_EQ(grpc_health(one.address(), {}), "SERVING");
}

TEST(EmbedServer, ReplacesSocketOfEndedServer) {
  const ScratchFolder scratch;
  ServerProcesses servers(scratch.path(), 1, 1);
  const std::string path = servers.address(0).substr(5);
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  servers.kill(0);
  ASSERT_TRUE(std::filesystem::exists(path));
  {
    const EmbedServer server(another_for_test(scratch.path(), servers.address(0)));
    EXPECT_EQ(grpc_health(server.address(), {}), "SERVING");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(EmbedServer, RemovesOnlyItsOwnSocket) {
  const ScratchFolder scratch;
  auto first = std::make_unique<EmbedServer>(options_for_test(scratch.path(), 0, 1, 1));
  const std::string address = first->address();
  std::filesystem::remove(address.substr(5));
  const EmbedServer second(another_for_test(scratch.path(), address));
  first.reset();
  EXPECT_EQ(grpc_health(address, {}), "SERVING");
}

TEST(EmbedServer, KeepsAFileAtItsAddress) {
  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/text";
  std::ofstream(path) << "mine";
  EXPECT_EQ(errors_of_a_taken_address({"unix:" + path}, scratch.path()).size(), 1u);
  EXPECT_EQ(std::filesystem::file_size(path), 4u);
}

// Authority, and a certificate of it for localhost; another authority with one.
void make_certificates(const std::string& folder) {
  const std::string script =
      "cd " + folder +
      " && for a in one two; do "
      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$a -keyout $a-ca.key -out "
      "$a-ca.pem && "
      "openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout $a.key -out $a.csr && "
      "printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' > ext && "
      "openssl x509 -req -in $a.csr -CA $a-ca.pem -CAkey $a-ca.key -CAcreateserial -days 2 "
      "-extfile ext "
      "-out $a.pem; done >/dev/null 2>&1";
  ASSERT_EQ(std::system(script.c_str()), 0);
}

TEST(EmbedServer, NamesTlsFilesThatDoNotFit) {
  if (std::system("openssl version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no openssl here";
  const ScratchFolder scratch;
  make_certificates(scratch.path());
  std::ofstream(scratch.path("words")) << "no PEM";
  const TlsFiles good{.certificate = scratch.path("one.pem"),
                      .key = scratch.path("one.key"),
                      .authority = scratch.path("one-ca.pem")};
  const auto named = [&](const TlsFiles& tls) {
    ServerOptions options = options_for_test(scratch.path(), 0, 1, 1);
    options.listen = "127.0.0.1:0";
    options.access.tls = tls;
    try {
      const EmbedServer server(options);
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().operation, "embed.tls") << error.what();
      EXPECT_FALSE(error.text().fix.empty()) << error.what();
      return error.text().where;
    }
    return std::string("none");
  };
  EXPECT_EQ(named(good), "none");
  for (std::string TlsFiles::* file :
       {&TlsFiles::certificate, &TlsFiles::key, &TlsFiles::authority}) {
    TlsFiles tls = good;
    tls.*file = scratch.path("words");
    EXPECT_EQ(named(tls), tls.*file);
  }
  TlsFiles tls = good;
  tls.key = scratch.path("two.key");
  EXPECT_EQ(named(tls), tls.key);
}

TEST(EmbedServer, RequiresCertificatesOfBothSides) {
  if (std::system("openssl version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no openssl here";
  const ScratchFolder scratch;
  make_certificates(scratch.path());
  const auto files = [&](const std::string& mine, const std::string& authority) {
    return TlsFiles{.certificate = scratch.path(mine + ".pem"),
                    .key = scratch.path(mine + ".key"),
                    .authority = scratch.path(authority + "-ca.pem")};
  };
  ServerOptions options = options_for_test(scratch.path(), 0, 1, 1);
  options.listen = "127.0.0.1:0";
  options.access.tls = files("one", "one");
  EmbedServer server(options);
  const std::string address =
      "localhost:" + server.address().substr(server.address().rfind(':') + 1);
  RemoteServersOptions remote;
  remote.addresses = {address};
  remote.features = options.features, remote.seed = 3;
  remote.access.tls = files("one", "one");
  make_remote_servers(remote)->await(0);
  remote.deadline = std::chrono::hours(1);  // what is refused is not waited for
  const auto refused = [&](const TlsFiles& tls, const std::string& at) {
    ++remote.run;
    remote.access.tls = tls;
    remote.addresses = {at};
    for (const std::function<void()>& call : std::vector<std::function<void()>>{
             [&] { make_remote_servers(remote)->await(0); },
             [&] { remote_inspection(at, tls)->lag(); }, [&] { grpc_follow(at, tls, {}); },
             [&] { grpc_health(at, tls); }})
      try {
        call();
        ADD_FAILURE() << "not refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kUser) << error.what();
        EXPECT_EQ(error.text().operation, "embed.tls") << error.what();
        EXPECT_FALSE(error.text().fix.empty()) << error.what();
      }
  };
  refused(files("one", "two"), address);  // does not know the server's authority
  refused(files("two", "one"), address);  // shows a certificate of another authority
  refused({}, address);
  options.access.tls = {};
  options.folder += "-plain";
  const EmbedServer plain(options);
  refused(files("one", "one"), plain.address());
  remote.addresses = {address};
  remote.access.tls = {
      .certificate = "nowhere.pem", .key = "nowhere.key", .authority = "nowhere.pem"};
  EXPECT_THROW(make_remote_servers(remote), UserError);
}

// What is no answer about certificates must not be taken for one, which ends training.
TEST(EmbedServer, WaitsForServerWithSlowHandshake) {
  if (std::system("openssl version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no openssl here";
  const ScratchFolder scratch;
  make_certificates(scratch.path());
  // The operating system accepts every connection, and no process answers.
  const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listening, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listening, 10), 0);
  ASSERT_EQ(::getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const TlsFiles tls{.certificate = scratch.path("one.pem"),
                     .key = scratch.path("one.key"),
                     .authority = scratch.path("one-ca.pem")};
  const std::string name = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  EXPECT_THROW(remote_inspection(name, tls, {.seconds = 4})->lag(), SystemError);
  ::close(listening);
}

}  // namespace
}  // namespace strata
