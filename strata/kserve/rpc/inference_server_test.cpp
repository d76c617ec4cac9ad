#include "strata/kserve/rpc/inference_server.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <future>
#include <iterator>

#include "inference.grpc.pb.h"
#include "strata/base/errors.h"
#include "strata/http/certificates_test.h"
#include "strata/http/http_client_test.h"
#include "strata/kserve/kserve_server_test.h"

namespace strata {
namespace {

using Stub = inference::GRPCInferenceService::Stub;

/// A client of a server that listens on a port of its own.
class RpcServer : public KServeServer {
 public:
  explicit RpcServer(FakeService::Options options = {}, std::shared_ptr<const Keys> keys = nullptr)
      : KServeServer(std::move(options), keys), rpc(InferenceListen{}, repository, keys, "1.2") {
    stub = inference::GRPCInferenceService::NewStub(
        grpc::CreateChannel(rpc.address(), grpc::InsecureChannelCredentials()));
  }

  grpc::Status infer(const inference::ModelInferRequest& request,
                     inference::ModelInferResponse& response, const std::string& key = "") const {
    grpc::ClientContext context;
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    return stub->ModelInfer(&context, request, &response);
  }

  InferenceServer rpc;
  std::unique_ptr<Stub> stub;
};

void add_input(inference::ModelInferRequest& request, const std::string& name,
               const std::string& datatype, const std::string& bytes, std::int64_t size = 1) {
  auto& input = *request.add_inputs();
  input.set_name(name);
  input.set_datatype(datatype);
  input.add_shape(size);
  request.add_raw_input_contents(bytes);
}

inference::ModelInferRequest text_message(const std::string& text, int tokens = 4,
                                          bool stream = false) {
  inference::ModelInferRequest request;
  request.set_model_name("m");
  request.set_id("id-" + text);
  add_input(request, "text_input", "BYTES", text_element(text));
  if (stream) add_input(request, "stream", "BOOL", std::string(1, '\1'));
  (*request.mutable_parameters())["temperature"].set_double_param(0);
  (*request.mutable_parameters())["max_tokens"].set_int64_param(tokens);
  return request;
}

std::string refusal(const RpcServer& server, const inference::ModelInferRequest& request,
                    grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT) {
  inference::ModelInferResponse response;
  const grpc::Status status = server.infer(request, response);
  EXPECT_EQ(status.error_code(), code) << status.error_message();
  return status.error_message();
}

TEST(InferenceServer, AnswersTheBytesThatHttpAnswers) {
  const RpcServer server;
  auto message = text_message("abc", 5);
  TestJson request = text_request("abc", 5);
  request["parameters"]["binary_data_output"] = true;
  for (const char* name : {"text_output", "output_ids", "log_probabilities", "finish_reason"}) {
    message.add_outputs()->set_name(name);
    request["outputs"].push_back({{"name", name}});
  }
  inference::ModelInferResponse response;
  ASSERT_TRUE(server.infer(message, response).ok());
  EXPECT_EQ(response.id(), "id-abc");
  EXPECT_EQ(response.model_version(), "1");
  const auto http = server.call("POST", "/v2/models/m/infer", request.dump());
  std::string joined;
  for (const std::string& bytes : response.raw_output_contents()) joined += bytes;
  EXPECT_EQ(http->body().substr(std::stoul(http->header(kJsonLengthHeader))), joined);
  EXPECT_EQ(joined.substr(0, 12), text_element("abcabcab"));
  EXPECT_EQ(response.outputs(1).shape(0), 5);
}

TEST(InferenceServer, ReadsTypedContents) {
  const RpcServer server;
  auto message = text_message("", 4);
  message.clear_raw_input_contents();
  auto& input = *message.mutable_inputs(0);
  input.set_name("input_ids");
  input.set_datatype("INT64");
  input.set_shape(0, 2);
  for (const int id : {104, 105}) input.mutable_contents()->add_int64_contents(id);
  inference::ModelInferResponse response;
  ASSERT_TRUE(server.infer(message, response).ok());
  EXPECT_EQ(response.raw_output_contents(0), text_element("hihihi"));
}

TEST(InferenceServer, RefusesMessagesWithWrongSizes) {
  const RpcServer server;
  auto message = text_message("abc");
  message.add_raw_input_contents("x");
  EXPECT_NE(refusal(server, message).find("raw_input_contents has 2 tensors"), std::string::npos);
  message = text_message("abc");
  message.set_raw_input_contents(0, std::string("\xff\xff\xff\xff"
                                                "abc"));
  EXPECT_NE(refusal(server, message).find("ends beyond"), std::string::npos);
  message = text_message("abc");
  message.mutable_inputs(0)->mutable_contents()->add_bytes_contents("abc");
  EXPECT_NE(refusal(server, message).find("has both contents and"), std::string::npos);
  message = text_message("abc");
  for (int i = 0; i < 3; ++i) message.mutable_inputs(0)->add_shape(INT64_MAX);
  EXPECT_NE(refusal(server, message).find("at most 2147483647 elements"), std::string::npos);
  message = text_message("abc");
  (*message.mutable_inputs(0)->mutable_parameters())["shared_memory_region"].set_string_param("r");
  EXPECT_NE(refusal(server, message).find("'shared_memory_region' is not supported"),
            std::string::npos);
  message = text_message("abc", 4, true);
  EXPECT_NE(refusal(server, message).find("a stream needs ModelStreamInfer"), std::string::npos);
  message.set_model_name("other");
  EXPECT_EQ(refusal(server, message, grpc::StatusCode::NOT_FOUND), "there is no model 'other'");
  message = text_message(std::string(17 << 20, 'x'));
  refusal(server, message, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(server.service->requests().empty());
}

TEST(InferenceServer, RefusesParametersThatAreNoNumbersOrHaveNoValue) {
  const RpcServer server;
  auto message = text_message("abc");
  auto& temperature = (*message.mutable_parameters())["temperature"];
  for (const double number : {double{NAN}, double{INFINITY}, -double{INFINITY}}) {
    temperature.set_double_param(number);
    EXPECT_EQ(refusal(server, message),
              "'temperature' must be a finite number, got " + std::to_string(number));
  }
  temperature.clear_parameter_choice();
  EXPECT_EQ(refusal(server, message), "'temperature' must be a value, got none");
  EXPECT_TRUE(server.service->requests().empty());
}

TEST(InferenceServer, StatesWhenARefusedClientMayRetry) {
  const RpcServer server({.most_requests = 0});
  grpc::ClientContext context;
  inference::ModelInferResponse response;
  const grpc::Status status = server.stub->ModelInfer(&context, text_message("abc"), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto& metadata = context.GetServerTrailingMetadata();
  ASSERT_TRUE(metadata.contains("retry-after"));
  EXPECT_EQ(metadata.find("retry-after")->second, "2");
}

TEST(InferenceServer, ChecksKeys) {
  const auto keys =
      std::make_shared<const Keys>(std::vector<KeyOptions>{{.name = "alice", .key = "sk-a"}});
  const RpcServer server({}, keys);
  inference::ModelInferResponse response;
  EXPECT_EQ(server.infer(text_message("abc"), response).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(server.infer(text_message("abc"), response, "sk-a").ok());
  EXPECT_EQ(server.service->requests().front().scope, 1U);
  grpc::ClientContext live, stream;
  inference::ServerLiveResponse is_live;
  EXPECT_TRUE(server.stub->ServerLive(&live, {}, &is_live).ok());
  EXPECT_EQ(server.stub->ModelStreamInfer(&stream)->Finish().error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST(InferenceServer, StreamsAnAnswerForEachTokenOfEachRequest) {
  const RpcServer server;
  grpc::ClientContext context;
  const auto stream = server.stub->ModelStreamInfer(&context);
  stream->Write(text_message("abc", 5, true));
  stream->Write(text_message("xy", 3, true));
  auto wrong = text_message("bad", 3, true);
  wrong.mutable_inputs(0)->set_datatype("INT8");
  stream->Write(wrong);
  stream->WritesDone();
  std::map<std::string, std::string> texts, errors;
  std::map<std::string, int> last;
  inference::ModelStreamInferResponse response;
  while (stream->Read(&response)) {
    const auto& answer = response.infer_response();
    if (!response.error_message().empty()) {
      errors[answer.id()] = response.error_message();
      continue;
    }
    texts[answer.id()] += answer.raw_output_contents(0).substr(4) + '|';
    EXPECT_EQ(last[answer.id()], 0) << "an answer after the last";
    last[answer.id()] += answer.parameters().at("triton_final_response").bool_param();
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(texts,
            (std::map<std::string, std::string>{{"id-abc", "a|b|c|a|b|"}, {"id-xy", "x|y|x|"}}));
  EXPECT_EQ(last, (std::map<std::string, int>{{"id-abc", 1}, {"id-xy", 1}}));
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_NE(errors.at("id-bad").find("tensor 'text_input'"), std::string::npos);
}

TEST(InferenceServer, EndsTheSequencesOfClientsThatLeave) {
  const RpcServer server({.context = 4096, .token_time = std::chrono::milliseconds(5)});
  grpc::ClientContext context;
  const auto stream = server.stub->ModelStreamInfer(&context);
  stream->Write(text_message("abc", 4000, true));
  inference::ModelStreamInferResponse response;
  EXPECT_TRUE(stream->Read(&response));
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  server.service->wait_until_idle();
  EXPECT_EQ(server.service->cancels(), 1);
  grpc::ClientContext hasty;
  hasty.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  inference::ModelInferResponse whole;
  EXPECT_EQ(server.stub->ModelInfer(&hasty, text_message("abc", 4000), &whole).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  server.service->wait_until_idle();
  EXPECT_EQ(server.service->cancels(), 2);
}

TEST(InferenceServer, CutsOffAStreamThatIsNotRead) {
  FakeService::Options options{.context = 1 << 20, .most_requests = 256};
  options.script.assign(1, 'x');
  const RpcServer server(options);
  grpc::ClientContext context;
  const auto stream = server.stub->ModelStreamInfer(&context);
  for (int i = 0; i < 8; ++i) stream->Write(text_message("a" + std::to_string(i), 100'000, true));
  inference::ModelStreamInferResponse response;
  EXPECT_TRUE(stream->Read(&response));
  server.service->wait_until_idle();
  EXPECT_GE(server.service->cancels(), 1);
  while (stream->Read(&response)) continue;
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(InferenceServer, SendsAllWholeAnswersThatEndInOnePass) {
  constexpr int kRequests = 64;
  const RpcServer server({.context = 16'384, .token_time = std::chrono::milliseconds(300)});
  grpc::ClientContext context;
  const auto stream = server.stub->ModelStreamInfer(&context);
  const std::string prompt(8 << 10, 'x');  // an answer begins with its prompt
  for (int i = 0; i < kRequests; ++i) EXPECT_TRUE(stream->Write(text_message(prompt, 1)));
  stream->WritesDone();
  EXPECT_TRUE(becomes_true([&] { return server.service->requests().size() == kRequests; }));
  server.service->wait_until_idle();  // answers wait in the server's queue
  int answers = 0;
  inference::ModelStreamInferResponse response;
  while (stream->Read(&response)) {
    EXPECT_EQ(response.error_message(), "");
    EXPECT_EQ(response.infer_response().raw_output_contents(0), text_element(prompt + 'x'));
    ++answers;
  }
  EXPECT_EQ(answers, kRequests);
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(InferenceServer, LetsRunningRequestsEndWhenItDrains) {
  RpcServer server({.context = 4096, .token_time = std::chrono::milliseconds(2)});
  grpc::ClientContext busy, idle;
  const auto running = server.stub->ModelStreamInfer(&busy),
             waiting = server.stub->ModelStreamInfer(&idle);
  running->Write(text_message("abc", 50, true));
  waiting->Write(text_message("abc", 1, true));
  inference::ModelStreamInferResponse response;
  EXPECT_TRUE(waiting->Read(&response));
  EXPECT_TRUE(running->Read(&response));
  const auto drained = std::async(std::launch::async, [&] {
    server.rpc.drain(std::chrono::system_clock::now() + std::chrono::seconds(30));
  });
  int answers = 1;
  while (running->Read(&response)) ++answers;
  EXPECT_EQ(answers, 50);
  EXPECT_TRUE(running->Finish().ok());
  EXPECT_FALSE(waiting->Read(&response));
  EXPECT_TRUE(waiting->Finish().ok());
  drained.wait();
  EXPECT_EQ(server.service->cancels(), 0);
}

TEST(InferenceServer, DescribesTheModel) {
  const RpcServer server;
  grpc::ClientContext first, second, third, fourth, fifth;
  inference::ModelMetadataRequest metadata_request;
  metadata_request.set_name("m");
  inference::ModelMetadataResponse metadata;
  ASSERT_TRUE(server.stub->ModelMetadata(&first, metadata_request, &metadata).ok());
  EXPECT_EQ(metadata.inputs(1).datatype(), "INT64");
  EXPECT_EQ(metadata.inputs(1).shape(0), -1);
  inference::ModelConfigRequest config_request;
  config_request.set_name("m");
  inference::ModelConfigResponse config;
  ASSERT_TRUE(server.stub->ModelConfig(&second, config_request, &config).ok());
  EXPECT_EQ(config.config().input(0).data_type(), inference::TYPE_STRING);
  EXPECT_TRUE(config.config().model_transaction_policy().decoupled());
  inference::ModelStatisticsResponse statistics;
  ASSERT_TRUE(server.stub->ModelStatistics(&third, {}, &statistics).ok());
  EXPECT_EQ(statistics.model_stats(0).inference_stats().success().count(), 0U);
  inference::RepositoryIndexResponse index;
  ASSERT_TRUE(server.stub->RepositoryIndex(&fourth, {}, &index).ok());
  EXPECT_EQ(index.models(0).state(), "READY");
  inference::Refused answer;
  const grpc::Status refused = server.stub->SystemSharedMemoryStatus(&fifth, {}, &answer);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(refused.error_message(), "the server reads no shared memory");
}

TEST(InferenceServer, SpeaksTlsWithTheCertificateOfHttp) {
  const TestCertificates files;
  std::ifstream file(files.path("root.pem"));
  const std::string root{std::istreambuf_iterator<char>(file), {}};
  const KServeServer models;
  InferenceListen listen;
  listen.tls = files.tls();
  const InferenceServer server(listen, models.repository, nullptr, "1.2");
  const auto code = [&](const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    const auto stub = inference::GRPCInferenceService::NewStub(
        grpc::CreateChannel(server.address(), credentials));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    inference::ModelInferResponse response;
    return stub->ModelInfer(&context, text_message("abc"), &response).error_code();
  };
  EXPECT_EQ(code(grpc::SslCredentials({root, "", ""})), grpc::StatusCode::OK);
  EXPECT_EQ(code(grpc::SslCredentials({})), grpc::StatusCode::UNAVAILABLE);  // another root
  EXPECT_EQ(code(grpc::InsecureChannelCredentials()), grpc::StatusCode::UNAVAILABLE);
}

TEST(InferenceServer, RefusesAnAddressThatAnotherServerHas) {
  const RpcServer server;
  const std::string address = server.rpc.address();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  EXPECT_THROW(InferenceServer({.address = {.host = "127.0.0.1", .port = port}}, server.repository,
                               nullptr, "1.2"),
               UserError);
}

}  // namespace
}  // namespace strata
