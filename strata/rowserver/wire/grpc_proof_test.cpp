// The server answers no call whose caller does not prove the secret.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "rows.grpc.pb.h"
#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/wire/embed_server.h"
#include "strata/rowserver/wire/shard_sessions.h"
#include "strata/rowserver/wire/update_stream.h"

namespace strata {
namespace {

using Rows = embed::v1::Rows;

class CallWithoutProof : public testing::Test {
 protected:
  static ServerOptions options(const std::string& folder) {
    ServerOptions made;
    made.features = {{.name = "user", .width = 4}};
    made.folder = folder;
    made.listen = "127.0.0.1:0";
    made.access.secret = "the secret of the test's run";
    return made;
  }
  void prove_something_else(grpc::ClientContext& context) {
    context.AddMetadata("strata-proof", "1 2 " + std::string(64, 'a') + " " + std::string(64, 'b') +
                                            " " + std::string(64, 'c'));
  }
  void expect_secret(const Error& error) {
    EXPECT_EQ(error.text().operation, "embed.secret") << error.what();
    const std::string shown = error.what();
    EXPECT_EQ(shown.find(std::to_string(fingerprint_of(features, 1))), std::string::npos) << shown;
  }

  const ScratchFolder scratch;
  const std::vector<FeatureSpec> features = options("").features;
  EmbedServer server{options(scratch.path("rows"))};
  const std::unique_ptr<Rows::Stub> stub =
      Rows::NewStub(grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials()));
};

TEST_F(CallWithoutProof, GetsNoAnswer) {
  const embed::v1::NoArguments none;
  const auto expect_refused = [&](const char* name, auto reply, const auto& call) {
    SCOPED_TRACE(name);
    grpc::ClientContext silent;
    const grpc::Status status = call(silent, reply);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(reply.ByteSizeLong(), 0u);
    expect_secret(decode_error(status.error_details()));
    grpc::ClientContext liar;
    prove_something_else(liar);
    EXPECT_FALSE(call(liar, reply).ok());
    EXPECT_EQ(reply.ByteSizeLong(), 0u);
  };
  using grpc::ClientContext;
  expect_refused("Metrics", embed::v1::MetricsReply(),
                 [&](ClientContext& to, auto& out) { return stub->Metrics(&to, none, &out); });
  expect_refused("Digest", embed::v1::DigestReply(),
                 [&](ClientContext& to, auto& out) { return stub->Digest(&to, {}, &out); });
  embed::v1::RowRequest row;
  row.set_feature("user");
  expect_refused("Row", embed::v1::RowReply(),
                 [&](ClientContext& to, auto& out) { return stub->Row(&to, row, &out); });
  embed::v1::RowsRequest rows;
  rows.set_feature("user"), rows.add_ids(1);
  expect_refused("ReadRows", embed::v1::RowsReply(),
                 [&](ClientContext& to, auto& out) { return stub->ReadRows(&to, rows, &out); });
  embed::v1::HotRequest hot;
  hot.set_feature("user"), hot.set_count(3);
  expect_refused("Hot", embed::v1::HotReply(),
                 [&](ClientContext& to, auto& out) { return stub->Hot(&to, hot, &out); });
  expect_refused("Sizes", embed::v1::SizesReply(),
                 [&](ClientContext& to, auto& out) { return stub->Sizes(&to, none, &out); });
  expect_refused("Lag", embed::v1::LagReply(),
                 [&](ClientContext& to, auto& out) { return stub->Lag(&to, none, &out); });
  expect_refused("Run", embed::v1::RunReply(),
                 [&](ClientContext& to, auto& out) { return stub->Run(&to, none, &out); });
}

TEST_F(CallWithoutProof, OpensNoSession) {
  grpc::ClientContext context;
  const auto stream = stub->Session(&context);
  Hello hello;
  hello.fingerprint = fingerprint_of(features, 1) + 1;
  hello.run = 5;
  const WireFrame frame = MessageBody::of(hello).frame(0);
  embed::v1::Frame sent, got;
  sent.set_data(frame.data(), frame.size());
  stream->Write(sent);
  ASSERT_TRUE(stream->Read(&got));
  const WireMessage message(std::as_bytes(std::span(got.data())));
  ASSERT_EQ(message.kind(), MessageKind::kRefused);
  try {
    std::rethrow_exception(message.error());
  } catch (const Error& error) {
    expect_secret(error);
  }
  EXPECT_FALSE(stream->Read(&got));
  stream->WritesDone();
  stream->Finish();
}

TEST_F(CallWithoutProof, FollowsNothing) {
  grpc::ClientContext context;
  embed::v1::FollowRequest request;
  request.set_wire_version(kWireVersion);
  request.set_fingerprint(fingerprint_of(features, 1));
  const auto stream = stub->Follow(&context, request);
  embed::v1::Frame got;
  ASSERT_TRUE(stream->Read(&got));
  const auto bytes = std::as_bytes(std::span(got.data()));
  const StreamFrame frame =
      decode_stream_frame(std::make_shared<WireFrame>(bytes.begin(), bytes.end()));
  ASSERT_EQ(frame.kind, StreamKind::kRefused);
  const std::span<const std::byte> text = frame.bytes.bytes;
  expect_secret(decode_error({reinterpret_cast<const char*>(text.data()), text.size()}));
  EXPECT_FALSE(stream->Read(&got));
  stream->Finish();
}

}  // namespace
}  // namespace strata
