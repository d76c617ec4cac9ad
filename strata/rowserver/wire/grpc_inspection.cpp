#include "strata/rowserver/wire/grpc_inspection.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "rows.grpc.pb.h"
#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/base/utf8.h"
#include "strata/rowserver/wire/grpc_answers.h"
#include "strata/rowserver/wire/grpc_peer.h"

namespace strata {
namespace {

using namespace rows_over_grpc;
using proto::Rows;

constexpr std::chrono::milliseconds kPoll{20};  // of the request to stop

class GrpcInspection : public RowInspection {
 public:
  GrpcInspection(const std::string& address, const ServerAccess& access,
                 RemoteInspectionOptions options)
      : peer_(reach(address, access)), stub_(Rows::NewStub(peer_.channel)), options_(options) {}

  std::string metrics() override { return call(&Rows::Stub::Metrics, {}).text(); }
  RowsDigest digest() override { return result_of(call(&Rows::Stub::Digest, {})); }
  RowsDigest digest_at(std::int64_t version) override {
    proto::DigestRequest request;
    request.set_version(version);
    return result_of(call(&Rows::Stub::Digest, request));
  }
  RowDescription row(const std::string& feature, std::uint64_t id) override {
    proto::RowRequest request;
    request.set_feature(required_utf8(feature));
    request.set_id(id);
    return result_of(call(&Rows::Stub::Row, request));
  }
  RowValues rows(const std::string& feature, const std::vector<std::uint64_t>& ids) override {
    proto::RowsRequest request;
    request.set_feature(required_utf8(feature));
    request.mutable_ids()->Add(ids.begin(), ids.end());
    RowValues read = result_of(call(&Rows::Stub::ReadRows, request));
    if (read.width > 0 && read.values.size() == ids.size() * static_cast<std::size_t>(read.width))
      return read;
    throw SystemError({.operation = "embed.decode",
                       .where = peer_.name,
                       .what = "the server's answer has another number of values",
                       .expected = std::to_string(ids.size()) + " rows",
                       .got = std::to_string(read.values.size()) + " values of rows of width " +
                              std::to_string(read.width),
                       .fix = "start server and caller with the same program"});
  }
  HotRows hot(const std::string& feature, int count) override {
    proto::HotRequest request;
    request.set_feature(required_utf8(feature));
    request.set_count(static_cast<std::uint32_t>(std::max(count, 0)));
    return result_of(call(&Rows::Stub::Hot, request));
  }
  std::vector<TableCounts> sizes() override { return result_of(call(&Rows::Stub::Sizes, {})); }
  std::optional<ReplicaLag> lag() override { return result_of(call(&Rows::Stub::Lag, {})); }
  std::uint64_t run() override { return call(&Rows::Stub::Run, {}).number(); }

 private:
  template <typename Request, typename Reply>
  Reply call(grpc::Status (Rows::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
             const std::type_identity_t<Request>& request) {
    grpc::ClientContext context;
    context.set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::milliseconds(static_cast<std::int64_t>(1000 * options_.seconds)));
    std::jthread watching;
    if (options_.stop)
      watching = std::jthread([&context, stop = options_.stop](const std::stop_token& ended) {
        while (!ended.stop_requested() && !*stop) std::this_thread::sleep_for(kPoll);
        if (*stop) context.TryCancel();
      });
    prove_call(peer_, context);
    Reply reply;
    const grpc::Status status = ((*stub_).*method)(&context, request, &reply);
    require_answer(peer_, status, context);
    return reply;
  }

  const std::string& required_utf8(const std::string& name) const {
    if (utf8_bytes(name) == name.size()) return name;
    throw UserError({.operation = "embed.ask",
                     .where = peer_.name,
                     .what = "the feature's name is not UTF-8",
                     .expected = "UTF-8",
                     .got = quote(name),
                     .fix = "write it in UTF-8; `locale` says what the terminal writes"});
  }

  const Peer peer_;
  const std::unique_ptr<Rows::Stub> stub_;
  const RemoteInspectionOptions options_;
};

}  // namespace

std::unique_ptr<RowInspection> remote_inspection(const std::string& address,
                                                 const ServerAccess& access,
                                                 RemoteInspectionOptions options) {
  return std::make_unique<GrpcInspection>(address, access, options);
}

}  // namespace strata
