#include "strata/rowserver/wire/wire_messages.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/rowserver/codec/byte_codec.h"
#include "strata/rowserver/codec/rows_codec.h"

namespace strata {
namespace {

std::int32_t read_small(ByteReader& from) {
  const std::uint64_t value = from.varint();
  if (value > 1'000'000) from.refuse("a number is too large");
  return static_cast<std::int32_t>(value);
}

void write_identity(ByteWriter& to, const ProcessIdentity& identity) {
  to.text(identity.host);
  to.varint(static_cast<std::uint64_t>(identity.process));
  to.varint(static_cast<std::uint64_t>(identity.since));
  to.text(identity.machine);
  to.varint(identity.started);
}

std::string read_name(ByteReader& from) {
  std::string name = from.text();
  if (name.size() > 256) from.refuse("a name is too long");
  // Errors show it.
  if (std::ranges::any_of(name, [](unsigned char c) { return c < ' ' || c == 0x7f; }))
    from.refuse("a name has other characters than a name");
  return name;
}

ProcessIdentity read_identity(ByteReader& from) {
  ProcessIdentity identity;
  identity.host = read_name(from);
  identity.process = from.number();
  identity.since = from.number();
  identity.machine = read_name(from);
  identity.started = from.varint();
  return identity;
}

std::string place(MessageKind kind) {
  return "message of kind " + std::to_string(static_cast<int>(kind));
}

}  // namespace

MessageBody MessageBody::of(const Hello& hello) {
  ByteWriter to;
  to.fixed32(hello.wire_version);  // first, for all versions to come
  to.fixed64(hello.fingerprint);
  for (const std::int32_t number : {hello.shard, hello.shards, hello.rank, hello.ranks})
    to.varint(static_cast<std::uint64_t>(number));
  to.fixed32(hello.run);
  to.fixed64(hello.follows);
  for (const std::int64_t number : {hello.begin, hello.durable, hello.requests, hello.oldest + 1})
    to.varint(static_cast<std::uint64_t>(number));
  write_precision(to, hello.wire.rows);
  write_precision(to, hello.wire.gradients);
  to.varint(hello.abandoned.size());
  for (const std::uint64_t run : hello.abandoned) to.fixed64(run);
  write_identity(to, hello.holder);
  to.blob(hello.tables);
  return MessageBody(MessageKind::kHello, to.take());
}

Hello WireMessage::hello() const {
  ByteReader from(fields_, place(head_.kind));
  Hello hello;
  hello.wire_version = from.fixed32();
  if (hello.wire_version != kWireVersion) return hello;
  hello.fingerprint = from.fixed64();
  for (std::int32_t* number : {&hello.shard, &hello.shards, &hello.rank, &hello.ranks})
    *number = read_small(from);
  hello.run = from.fixed32();
  hello.follows = from.fixed64();
  for (std::int64_t* number : {&hello.begin, &hello.durable, &hello.requests, &hello.oldest})
    *number = from.number();
  --hello.oldest;
  hello.wire.rows = read_precision(from);
  hello.wire.gradients = read_precision(from);
  const std::uint64_t abandoned = from.varint();
  if (abandoned > from.left() / 8) from.refuse("it is cut off");
  for (std::uint64_t i = 0; i < abandoned; ++i) hello.abandoned.push_back(from.fixed64());
  hello.holder = read_identity(from);
  const std::span<const std::byte> tables = from.blob();
  hello.tables.assign(tables.begin(), tables.end());
  from.require_end();
  return hello;
}

MessageBody MessageBody::of(const Welcome& welcome) {
  ByteWriter to;
  for (const std::int64_t number : {welcome.version, welcome.last_part, welcome.durable})
    to.varint(static_cast<std::uint64_t>(number));
  return MessageBody(MessageKind::kWelcome, to.take());
}

Welcome WireMessage::welcome() const {
  ByteReader from(fields_, place(head_.kind));
  Welcome welcome;
  for (std::int64_t* number : {&welcome.version, &welcome.last_part, &welcome.durable})
    *number = from.number();
  from.require_end();
  return welcome;
}

MessageBody MessageBody::of(MessageKind kind, const Request& request) {
  ByteWriter to;
  to.varint(request.id);
  to.varint(request.answered_below);
  to.varint(static_cast<std::uint64_t>(request.version));
  to.varint(request.reads.size());
  for (const FeatureRead& read : request.reads) {
    to.varint(static_cast<std::uint64_t>(read.feature));
    to.varint(static_cast<std::uint64_t>(read.version));
    to.ids(read.ids);
  }
  return MessageBody(kind, to.take());
}

Request WireMessage::request() const {
  ByteReader from(fields_, place(head_.kind));
  Request request;
  request.id = from.varint();
  request.answered_below = from.varint();
  request.version = from.number();
  const std::uint64_t count = from.varint();
  if (count > from.left()) from.refuse("it is cut off");
  request.reads.resize(static_cast<std::size_t>(count));
  for (FeatureRead& read : request.reads) {
    read.feature = read_small(from);
    read.version = from.number();
    read.ids = from.ids();
  }
  from.require_end();
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
                                           std::span<FeatureRead> asked) const {
  ByteReader from(fields_, place(head_.kind));
  from.varint();
  std::vector<FeatureRows> all = read_answer(from, features, asked);
  from.require_end();
  return all;
}

MessageBody MessageBody::done(std::uint64_t id) {
  ByteWriter to;
  to.varint(id);
  return MessageBody(MessageKind::kDone, to.take());
}

MessageBody MessageBody::failed(std::uint64_t id, const std::exception& error) {
  ByteWriter to;
  to.varint(id);
  to.text(encode_error(to_error(error)));
  return MessageBody(MessageKind::kFailed, to.take());
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
  ByteWriter to;
  to.varint(static_cast<std::uint64_t>(status.durable));
  to.varint(static_cast<std::uint64_t>(status.received));
  return MessageBody(MessageKind::kStatus, to.take());
}

Status WireMessage::status() const {
  ByteReader from(fields_, place(head_.kind));
  Status status;
  status.durable = from.number();
  status.received = from.number();
  from.require_end();
  return status;
}

std::uint64_t WireMessage::id() const { return ByteReader(fields_, place(head_.kind)).varint(); }

std::exception_ptr WireMessage::error() const {
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
