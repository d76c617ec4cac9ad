#include "strata/rowserver/wire/wire_messages.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

#include "rows.pb.h"
#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/rowserver/codec/byte_codec.h"
#include "strata/rowserver/codec/rows_codec.h"
#include "strata/rowserver/wire/protobuf.h"

namespace strata {
namespace {

namespace proto = embed::v1;

std::string place(MessageKind kind) {
  return "message of kind " + std::to_string(static_cast<int>(kind));
}

[[noreturn]] void refuse(MessageKind kind, const std::string& what) {
  ByteReader({}, place(kind)).refuse(what);
}

void require_name(MessageKind kind, const std::string& name) {
  if (name.size() > 256) refuse(kind, "a name is too long");
  // Errors show it.
  if (std::ranges::any_of(name, [](unsigned char c) { return c < ' ' || c == 0x7f; }))
    refuse(kind, "a name has other characters than a name");
}

proto::Process message_of(const ProcessIdentity& identity) {
  proto::Process message;
  message.set_host(identity.host);
  message.set_process(identity.process);
  message.set_since(identity.since);
  message.set_machine(identity.machine);
  message.set_started(identity.started);
  return message;
}

ProcessIdentity identity_of(const proto::Process& message) {
  require_name(MessageKind::kHello, message.host());
  require_name(MessageKind::kHello, message.machine());
  return {.host = message.host(),
          .process = message.process(),
          .since = message.since(),
          .machine = message.machine(),
          .started = message.started()};
}

WirePrecision precision_of(proto::Precision precision) {
  if (precision < proto::FP32 || precision > proto::SCALED_INT8)
    refuse(MessageKind::kHello, "there is no such precision");
  return static_cast<WirePrecision>(precision);
}

constexpr std::int64_t kMostSmall = 1'000'000;  // shards, ranks, features

void require_numbers(MessageKind kind, std::initializer_list<std::int64_t> numbers,
                     std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  for (const std::int64_t number : numbers)
    if (number < 0 || number > most) refuse(kind, "a number is out of range");
}

std::vector<std::byte> bytes_of(const google::protobuf::MessageLite& message) {
  std::vector<std::byte> bytes(message.ByteSizeLong());
  message.SerializeToArray(bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

std::vector<std::byte> outcome_bytes(std::uint64_t id, const std::string& error = {}) {
  proto::Outcome outcome;
  outcome.set_id(id);
  outcome.set_error(error);
  return bytes_of(outcome);
}

}  // namespace

MessageBody MessageBody::of(const Hello& hello) {
  proto::Hello message;
  message.set_fingerprint(hello.fingerprint);
  message.set_shard(hello.shard), message.set_shards(hello.shards);
  message.set_rank(hello.rank), message.set_ranks(hello.ranks);
  message.set_run(hello.run);
  message.set_follows(hello.follows);
  message.set_begin(hello.begin);
  message.set_durable(hello.durable);
  message.set_requests(hello.requests);
  if (hello.oldest >= 0) message.set_oldest(hello.oldest);
  message.set_rows(static_cast<proto::Precision>(hello.wire.rows));
  message.set_gradients(static_cast<proto::Precision>(hello.wire.gradients));
  message.mutable_abandoned()->Add(hello.abandoned.begin(), hello.abandoned.end());
  *message.mutable_holder() = message_of(hello.holder);
  message.set_tables(hello.tables.data(), hello.tables.size());
  ByteWriter to;
  to.fixed32(hello.wire_version);
  to.bytes(bytes_of(message));
  return MessageBody(MessageKind::kHello, to.take());
}

Hello WireMessage::hello() const {
  ByteReader from(fields_, place(head_.kind));
  Hello hello;
  hello.wire_version = from.fixed32();
  if (hello.wire_version != kWireVersion) return hello;
  const auto message = parse_message<proto::Hello>(from.bytes(from.left()), place(head_.kind));
  hello.fingerprint = message.fingerprint();
  hello.shard = message.shard(), hello.shards = message.shards();
  hello.rank = message.rank(), hello.ranks = message.ranks();
  require_numbers(head_.kind, {hello.shard, hello.shards, hello.rank, hello.ranks}, kMostSmall);
  hello.run = message.run();
  hello.follows = message.follows();
  hello.begin = message.begin(), hello.durable = message.durable();
  hello.requests = message.requests();
  require_numbers(head_.kind, {hello.begin, hello.durable, hello.requests, message.oldest()});
  hello.oldest = message.has_oldest() ? message.oldest() : -1;
  hello.wire = {precision_of(message.rows()), precision_of(message.gradients())};
  hello.abandoned = {message.abandoned().begin(), message.abandoned().end()};
  hello.holder = identity_of(message.holder());
  const std::span<const std::byte> tables = std::as_bytes(std::span(message.tables()));
  hello.tables.assign(tables.begin(), tables.end());
  return hello;
}

MessageBody MessageBody::of(const Welcome& welcome) {
  proto::Welcome message;
  message.set_version(welcome.version);
  message.set_last_part(welcome.last_part);
  message.set_durable(welcome.durable);
  return MessageBody(MessageKind::kWelcome, bytes_of(message));
}

Welcome WireMessage::welcome() const {
  const auto message = parse_message<proto::Welcome>(fields_, place(head_.kind));
  require_numbers(head_.kind, {message.version(), message.last_part(), message.durable()});
  return {message.version(), message.last_part(), message.durable()};
}

MessageBody MessageBody::of(MessageKind kind, const Request& request) {
  proto::Request message;
  message.set_id(request.id);
  message.set_answered_below(request.answered_below);
  message.set_version(request.version);
  for (const FeatureRead& read : request.reads) {
    proto::Request::Read& added = *message.add_reads();
    added.set_feature(read.feature);
    added.set_version(read.version);
    ByteWriter ids;
    ids.ids(read.ids);
    added.set_ids(ids.out().data(), ids.out().size());
  }
  return MessageBody(kind, bytes_of(message));
}

Request WireMessage::request() const {
  const auto message = parse_message<proto::Request>(fields_, place(head_.kind));
  Request request{.id = message.id(),
                  .answered_below = message.answered_below(),
                  .version = message.version(),
                  .reads = {}};
  require_numbers(head_.kind, {request.version});
  request.reads.reserve(static_cast<std::size_t>(message.reads_size()));
  for (const proto::Request::Read& read : message.reads()) {
    require_numbers(head_.kind, {read.feature()}, kMostSmall);
    require_numbers(head_.kind, {read.version()});
    ByteReader ids(std::as_bytes(std::span(read.ids())), place(head_.kind));
    request.reads.push_back(
        {.feature = read.feature(), .version = read.version(), .ids = ids.ids()});
    ids.require_end();
  }
  return request;
}

MessageBody MessageBody::of_part(std::int64_t version, const UpdatePart& part,
                                 const std::vector<FeatureSpec>& features,
                                 WirePrecision gradients) {
  return MessageBody(MessageKind::kPart, encode_part(version, part, features, gradients));
}

PartMessage WireMessage::part(const std::vector<FeatureSpec>& features,
                              std::shared_ptr<const WireFrame> frame) const {
  const std::int64_t version = ByteReader(fields_, place(head_.kind)).number();
  return {version, decode_part(fields_, version, features, std::move(frame))};
}

MessageBody MessageBody::of_rows(std::uint64_t id, const std::vector<FeatureRows>& rows,
                                 const std::vector<FeatureSpec>& features,
                                 WirePrecision precision) {
  ByteWriter to;
  to.varint(id);
  write_answer(to, rows, features, precision);
  return MessageBody(MessageKind::kRows, to.take());
}

std::vector<FeatureRows> WireMessage::rows(const std::vector<FeatureSpec>& features,
                                           std::span<FeatureRead> requested) const {
  ByteReader from(fields_, place(head_.kind));
  from.varint();
  std::vector<FeatureRows> all = read_answer(from, features, requested);
  from.require_end();
  return all;
}

MessageBody MessageBody::done(std::uint64_t id) {
  return MessageBody(MessageKind::kDone, outcome_bytes(id));
}

MessageBody MessageBody::failed(std::uint64_t id, const std::exception& error) {
  return MessageBody(MessageKind::kFailed, outcome_bytes(id, encode_error(to_error(error))));
}

MessageBody MessageBody::refused(const std::exception& error) {
  ByteWriter to;
  to.varint(0);
  to.text(encode_error(to_error(error)));
  return MessageBody(MessageKind::kRefused, to.take());
}

MessageBody MessageBody::bye() { return MessageBody(MessageKind::kBye); }
MessageBody MessageBody::alive() { return MessageBody(MessageKind::kAlive); }

MessageBody MessageBody::of(const Status& status) {
  proto::Status message;
  message.set_durable(status.durable);
  message.set_received(status.received);
  return MessageBody(MessageKind::kStatus, bytes_of(message));
}

Status WireMessage::status() const {
  const auto message = parse_message<proto::Status>(fields_, place(head_.kind));
  require_numbers(head_.kind, {message.durable(), message.received()});
  return {message.durable(), message.received()};
}

std::uint64_t WireMessage::id() const {
  if (head_.kind == MessageKind::kRows) return ByteReader(fields_, place(head_.kind)).varint();
  return parse_message<proto::Outcome>(fields_, place(head_.kind)).id();
}

std::exception_ptr WireMessage::error() const {
  if (head_.kind == MessageKind::kFailed)
    return to_exception(
        decode_error(parse_message<proto::Outcome>(fields_, place(head_.kind)).error()));
  ByteReader from(fields_, place(head_.kind));
  from.varint();
  return to_exception(decode_error(from.text()));
}

FramePieces MessageBody::pieces(std::int64_t number) const {
  ByteWriter head;
  head.varint(static_cast<std::uint64_t>(kind_));
  head.varint(static_cast<std::uint64_t>(number));
  Checksum sum;
  sum.add(head.out());
  sum.add(*fields_);
  FramePieces pieces{.head = head.take(), .fields = fields_, .checksum = {}};
  const std::uint64_t value = sum.value();
  std::memcpy(pieces.checksum.data(), &value, sizeof(value));
  return pieces;
}

WireFrame FramePieces::joined() const {
  WireFrame frame;
  frame.reserve(size());
  frame.insert(frame.end(), head.begin(), head.end());
  frame.insert(frame.end(), fields->begin(), fields->end());
  frame.insert(frame.end(), checksum.begin(), checksum.end());
  return frame;
}

WireMessage::WireMessage(std::span<const std::byte> frame) {
  ByteReader from = ByteReader::sealed(frame, "a message");
  const std::uint64_t kind = from.varint();
  const bool known = (kind >= 1 && kind <= static_cast<std::uint64_t>(MessageKind::kAlive)) ||
                     (kind >= 64 && kind <= static_cast<std::uint64_t>(MessageKind::kRefused));
  if (!known) from.refuse("there is no message of kind " + std::to_string(kind));
  head_ = {static_cast<MessageKind>(kind), from.number()};
  fields_ = from.bytes(from.left());
}

}  // namespace strata
