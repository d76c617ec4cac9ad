// Servers of rows among strangers: clients that send too much or nothing, and other services at
// their address. This source and those of the program that are named grpc_* see headers of gRPC.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/support/sync_stream.h>
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/rows/row_table.h"
#include "strata/rowserver/wire/grpc_client.h"
#include "strata/rowserver/wire/grpc_inspection.h"
#include "strata/rowserver/wire/server_processes_test.h"
#include "strata/transport/socket.h"

namespace strata {
namespace {

// ---- Other services

// Answers whatever is called.
class Answering : public grpc::CallbackGenericService {
 public:
  Answering(std::string bytes, grpc::Status status)
      : bytes_(std::move(bytes)), status_(std::move(status)) {}

 private:
  class Call : public grpc::ServerGenericBidiReactor {
   public:
    Call(const std::string& bytes, grpc::Status status) : status_(std::move(status)) {
      if (bytes.empty()) {
        Finish(status_);
        return;
      }
      const grpc::Slice slice(bytes);
      message_ = grpc::ByteBuffer(&slice, 1);
      StartWrite(&message_);
    }
    void OnWriteDone(bool) override { Finish(status_); }
    void OnDone() override { delete this; }

   private:
    grpc::Status status_;
    grpc::ByteBuffer message_;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Call(bytes_, status_);
  }

  std::string bytes_;
  grpc::Status status_;
};

class OtherService {
 public:
  OtherService(std::string bytes, grpc::Status status)
      : service_(std::move(bytes), std::move(status)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~OtherService() { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  Answering service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

void expect_another_service(const std::string& where, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << where << ": taken for a server of rows";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("no server of rows"), std::string::npos)
        << where << ": " << error.what();
    EXPECT_FALSE(error.text().fix.empty());
  } catch (const std::exception& error) {
    ADD_FAILURE() << where << ": " << error.what();
  }
}

void expect_another_service_at(const std::string& address, const std::string& name) {
  const ScratchFolder scratch;
  expect_another_service(name + ", ask", [&] { remote_inspection(address, {})->lag(); });
  expect_another_service(name + ", follow", [&] { grpc_follow(address, {}, {}); });
  ServerOptions replica = replica_for_test(scratch.path(), 0, 1, 1);
  replica.follow = address;
  expect_another_service(name + ", replica", [&] { EmbedServer(replica).wait(); });
  RemoteServersOptions remote;
  remote.addresses = {address};
  remote.features = options_for_test("", 0, 1, 1).features;
  expect_another_service(name + ", train", [&] { make_remote_servers(remote)->await(0); });
}

TEST(GrpcStrangers, ClientNamesAnotherServiceAtTheAddress) {
  const std::string rubbish("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff what?", 17);
  const struct {
    const char* name;
    std::string bytes;
    grpc::Status status;
  } kinds[] = {
      {"none of the calls", "", {grpc::StatusCode::UNIMPLEMENTED, ""}},
      {"an empty answer", "", grpc::Status::OK},
      {"an answer in words", "\n\4this", grpc::Status::OK},
      {"rubbish", rubbish, grpc::Status::OK},
      {"a refusal with details", "", {grpc::StatusCode::INVALID_ARGUMENT, "no", "details"}},
      {"a crash", "", {grpc::StatusCode::INTERNAL, "oops", std::string("\0\1", 2)}},
  };
  for (const auto& kind : kinds) {
    const OtherService service(kind.bytes, kind.status);
    expect_another_service_at(service.address(), kind.name);
  }
}

TEST(GrpcStrangers, ClientNamesWebServerAtTheAddress) {
  HostAddress any = resolve("127.0.0.1", 0, std::chrono::steady_clock::now()).front();
  const Socket listening = listen_at(any);
  std::jthread pages([&](const std::stop_token& ended) {
    while (!ended.stop_requested()) {
      const Socket client(::accept(listening.get(), nullptr, nullptr));
      const std::string page = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
      if (client) client.send(page.data(), page.size());
    }
  });
  const std::string address = "127.0.0.1:" + std::to_string(listening.port());
  expect_another_service_at(address, "pages");
  pages.request_stop();
  listening.shut_down();
}

// ---- Clients that are none of ours

class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }
  std::shared_ptr<grpc::Channel> channel() const { return channel_; }

 private:
  std::shared_ptr<grpc::Channel> channel_;
};

// A session that sends nothing of itself.
class SilentSession {
 public:
  explicit SilentSession(const Stranger& from, const std::string& metadata = "") {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    if (!metadata.empty()) context_.AddMetadata("strata-first-frame-bin", metadata);
    const grpc::internal::RpcMethod method("/strata.embed.v1.Rows/Session",
                                           grpc::internal::RpcMethod::BIDI_STREAMING);
    using Factory = grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>;
    channel_ = from.channel();
    stream_.reset(Factory::Create(channel_.get(), method, &context_));
  }
  bool write(std::size_t bytes) {
    const grpc::Slice slice(std::string(bytes, 'x'));
    return stream_->Write(grpc::ByteBuffer(&slice, 1));
  }
  // Waits for the server to end the call.
  grpc::StatusCode end() {
    grpc::ByteBuffer answer;
    while (stream_->Read(&answer)) continue;
    return stream_->Finish().error_code();
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream_;
};

std::ptrdiff_t threads_here() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

ServerOptions tcp_for_test(const std::string& folder) {
  ServerOptions options = options_for_test(folder, 0, 1, 1);
  options.listen = "127.0.0.1:0";
  return options;
}

TEST(GrpcStrangers, ServerEndsSilentSessionsWithoutThreads) {
  const ScratchFolder scratch;
  const EmbedServer server(tcp_for_test(scratch.path()));
  const std::ptrdiff_t before = threads_here();
  std::vector<std::unique_ptr<Stranger>> strangers;
  std::vector<std::unique_ptr<SilentSession>> sessions;
  for (int i = 0; i < 10; ++i) {
    strangers.push_back(std::make_unique<Stranger>(server.address()));
    for (int k = 0; k < 30; ++k)
      sessions.push_back(std::make_unique<SilentSession>(*strangers.back()));
  }
  for (const auto& session : sessions) EXPECT_EQ(session->end(), grpc::StatusCode::OK);
  EXPECT_LT(threads_here(), before + 150);
  EXPECT_EQ(grpc_health(server.address(), {}), "SERVING");
}

TEST(GrpcStrangers, ServerRefusesLongFirstFrame) {
  const ScratchFolder scratch;
  EmbedServer server(tcp_for_test(scratch.path()));
  const Stranger stranger(server.address());
  {
    SilentSession session(stranger, std::string(100 << 10, 'x'));
    EXPECT_NE(session.end(), grpc::StatusCode::OK) << "100 KiB of metadata";
  }
  {
    SilentSession session(stranger);
    while (session.write(64 << 20)) continue;
    EXPECT_NE(session.end(), grpc::StatusCode::DEADLINE_EXCEEDED) << "no process reads that";
  }
  const std::vector<std::uint64_t> many(1 << 20);
  EXPECT_THROW(remote_inspection(server.address(), {})->rows("user", many), Error);
  EXPECT_FALSE(server.inspection().lag());
}

TEST(GrpcStrangers, ServerRefusesMessageBeyondLimit) {
  const ScratchFolder scratch;
  const EmbedServer server(tcp_for_test(scratch.path()));
  const Stranger stranger(server.address());
  for (const char* call : {"Challenge", "Row", "ReadRows", "Metrics"}) {
    grpc::ClientContext context;
    const std::string name = std::string("/strata.embed.v1.Rows/") + call;
    const grpc::internal::RpcMethod method(name.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
    const grpc::Slice slice(std::string(5 << 20, 'x'));
    grpc::ByteBuffer answer;
    const grpc::Status status = grpc::internal::BlockingUnaryCall(
        stranger.channel().get(), method, &context, grpc::ByteBuffer(&slice, 1), &answer);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
        << call << ": " << status.error_message();
  }
}

TEST(GrpcStrangers, ServerBoundsWaitingQuestions) {
  const ScratchFolder scratch;
  ServerOptions options = tcp_for_test(scratch.path());
  EmbedServer server(options);
  RemoteServersOptions remote;
  remote.addresses = {server.address()};
  remote.features = options.features, remote.seed = 3;
  const auto trainer = make_remote_servers(remote);  // while a rank trains, a version may come
  trainer->await(0);
  constexpr int kRequested = 150;
  std::atomic<int> too_many = 0, others = 0;
  std::vector<std::jthread> asking;
  for (int i = 0; i < kRequested; ++i)
    asking.emplace_back([&] {
      try {
        remote_inspection(server.address(), {}, {.seconds = 60})->digest_at(1);
      } catch (const Error& error) {
        const bool refused =
            std::string(error.what()).find("too many questions") != std::string::npos;
        ++(refused ? too_many : others);
      }
    });
  while (too_many + others < kRequested - 64) std::this_thread::yield();
  EXPECT_EQ(too_many, kRequested - 64);
  trainer->update(1, {}, 1.0);
  asking.clear();
  EXPECT_EQ(others, 0);
}

// ---- Frames of many messages

TEST(GrpcStrangers, FramesOfSeveralMessagesArriveWhole) {
  const ScratchFolder scratch;
  ServerOptions options = tcp_for_test(scratch.path());
  options.features.resize(1);
  options.features[0].width = 256;
  EmbedServer server(options);
  RemoteServersOptions remote;
  remote.addresses = {server.address()};
  remote.features = options.features, remote.seed = 3;
  const auto trainer = make_remote_servers(remote);
  constexpr std::size_t kIds = 10'000;  // of 1 KiB each, in fp32
  FeatureRows gradients{.feature = 0, .version = 0, .ids = {}, .values = {}};
  for (std::uint64_t id = 0; id < kIds; ++id) gradients.ids.push_back(3 * id);
  for (std::size_t i = 0; i < kIds * 256; ++i)
    gradients.values.push_back(static_cast<float>(i % 1009));
  RowTable same(options.features, {.seed = 3});
  const auto expect_same = [&](std::int64_t version) {
    const std::vector<FeatureRows> rows =
        trainer->read({{.feature = 0, .version = version, .ids = gradients.ids}})->wait();
    std::vector<float> expected(kIds * 256);
    same.read(0, gradients.ids, expected);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_TRUE(rows[0].values == expected) << version;
  };
  expect_same(0);
  trainer->update(1, {gradients}, 1.0);
  same.update(1, 0, gradients.ids, gradients.values, 1.0);
  expect_same(1);
}

}  // namespace
}  // namespace strata
