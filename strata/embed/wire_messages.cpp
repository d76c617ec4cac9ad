#include "strata/embed/wire_messages.h"

#include <string>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/embed/byte_codec.h"

namespace strata {
namespace {

void write_rows(ByteWriter& to, const std::vector<FeatureRows>& all,
                const std::vector<FeatureSpec>& features, WirePrecision precision) {
  to.varint(static_cast<std::uint64_t>(precision));
  to.varint(all.size());
  for (const FeatureRows& rows : all) {
    to.varint(static_cast<std::uint64_t>(rows.feature));
    to.varint(static_cast<std::uint64_t>(rows.version));
    to.ids(rows.ids);
    encode_values(precision, rows.values, features[static_cast<std::size_t>(rows.feature)].width,
                  to.out());
  }
}

WirePrecision read_precision(ByteReader& from) {
  const std::uint64_t precision = from.varint();
  if (precision > static_cast<std::uint64_t>(WirePrecision::kScaledInt8))
    from.refuse("there is no such precision");
  return static_cast<WirePrecision>(precision);
}

int read_feature(ByteReader& from, const std::vector<FeatureSpec>& features) {
  const std::uint64_t feature = from.varint();
  if (feature >= features.size())
    from.refuse("it names feature " + std::to_string(feature) + " of " +
                std::to_string(features.size()));
  return static_cast<int>(feature);
}

std::vector<FeatureRows> read_rows(ByteReader& from, const std::vector<FeatureSpec>& features) {
  const WirePrecision precision = read_precision(from);
  const std::uint64_t count = from.varint();
  if (count > from.left()) from.refuse("it is cut off");
  std::vector<FeatureRows> all(static_cast<std::size_t>(count));
  for (FeatureRows& rows : all) {
    rows.feature = read_feature(from, features);
    rows.version = from.number();
    rows.ids = from.ids();
    const int width = features[static_cast<std::size_t>(rows.feature)].width;
    const auto values = from.bytes(values_bytes(precision, rows.ids.size(), width));
    rows.values.resize(rows.ids.size() * static_cast<std::size_t>(width));
    decode_values(precision, values, width, rows.values);
  }
  return all;
}

std::int32_t read_small(ByteReader& from) {
  const std::uint64_t value = from.varint();
  if (value > 1'000'000) from.refuse("a number is too large");
  return static_cast<std::int32_t>(value);
}

std::string place(MessageKind kind) {
  return "message of kind " + std::to_string(static_cast<int>(kind));
}

}  // namespace

MessageBody MessageBody::of(const Hello& hello) {
  MessageBody body(MessageKind::kHello);
  ByteWriter to;
  to.fixed32(hello.wire_version);  // first, for all versions to come
  to.fixed64(hello.fingerprint);
  for (const std::int32_t number : {hello.shard, hello.shards, hello.rank, hello.ranks})
    to.varint(static_cast<std::uint64_t>(number));
  to.fixed64(hello.run);
  for (const std::int64_t number : {hello.begin, hello.durable, hello.requests, hello.oldest + 1})
    to.varint(static_cast<std::uint64_t>(number));
  to.varint(static_cast<std::uint64_t>(hello.wire.rows));
  to.varint(static_cast<std::uint64_t>(hello.wire.gradients));
  body.fields_ = to.take();
  return body;
}

Hello WireMessage::hello() const {
  ByteReader from(fields_, place(head_.kind));
  Hello hello;
  hello.wire_version = from.fixed32();
  if (hello.wire_version != kWireVersion) return hello;
  hello.fingerprint = from.fixed64();
  for (std::int32_t* number : {&hello.shard, &hello.shards, &hello.rank, &hello.ranks})
    *number = read_small(from);
  hello.run = from.fixed64();
  for (std::int64_t* number : {&hello.begin, &hello.durable, &hello.requests, &hello.oldest})
    *number = from.number();
  --hello.oldest;
  hello.wire.rows = read_precision(from);
  hello.wire.gradients = read_precision(from);
  from.require_end();
  return hello;
}

MessageBody MessageBody::of(const Welcome& welcome) {
  MessageBody body(MessageKind::kWelcome);
  ByteWriter to;
  for (const std::int64_t number : {welcome.version, welcome.last_part, welcome.durable})
    to.varint(static_cast<std::uint64_t>(number));
  body.fields_ = to.take();
  return body;
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
  MessageBody body(kind);
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
  body.fields_ = to.take();
  return body;
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

std::vector<std::byte> encode_part(std::int64_t version, const UpdatePart& part,
                                   const std::vector<FeatureSpec>& features,
                                   WirePrecision gradients) {
  ByteWriter to;
  to.varint(static_cast<std::uint64_t>(version));
  to.real(part.rate_factor);
  write_rows(to, part.gradients, features, gradients);
  return to.take();
}

MessageBody MessageBody::of_part(std::int64_t version, const UpdatePart& part,
                                 const std::vector<FeatureSpec>& features,
                                 WirePrecision gradients) {
  MessageBody body(MessageKind::kPart);
  body.fields_ = encode_part(version, part, features, gradients);
  return body;
}

UpdatePart decode_part(std::span<const std::byte> fields, std::int64_t version,
                       const std::vector<FeatureSpec>& features) {
  ByteReader from(fields, "a part of update " + std::to_string(version));
  if (from.number() != version) from.refuse("it belongs to another update");
  UpdatePart part;
  part.rate_factor = from.real();
  part.gradients = read_rows(from, features);
  from.require_end();
  part.wire.assign(fields.begin(), fields.end());
  return part;
}

PartMessage WireMessage::part(const std::vector<FeatureSpec>& features) const {
  const std::int64_t version = ByteReader(fields_, place(head_.kind)).number();
  return {version, decode_part(fields_, version, features)};
}

MessageBody MessageBody::of_rows(std::uint64_t id, const std::vector<FeatureRows>& rows,
                                 const std::vector<FeatureSpec>& features,
                                 WirePrecision precision) {
  MessageBody body(MessageKind::kRows);
  ByteWriter to;
  to.varint(id);
  write_rows(to, rows, features, precision);
  body.fields_ = to.take();
  return body;
}

std::vector<FeatureRows> WireMessage::rows(const std::vector<FeatureSpec>& features) const {
  ByteReader from(fields_, place(head_.kind));
  from.varint();
  std::vector<FeatureRows> rows = read_rows(from, features);
  from.require_end();
  return rows;
}

MessageBody MessageBody::done(std::uint64_t id) {
  MessageBody body(MessageKind::kDone);
  ByteWriter to;
  to.varint(id);
  body.fields_ = to.take();
  return body;
}

MessageBody MessageBody::failed(std::uint64_t id, const std::exception& error) {
  MessageBody body(MessageKind::kFailed);
  ByteWriter to;
  to.varint(id);
  to.text(encode_error(to_error(error)));
  body.fields_ = to.take();
  return body;
}

MessageBody MessageBody::refused(const std::exception& error) {
  MessageBody body(MessageKind::kRefused);
  ByteWriter to;
  to.varint(0);
  to.text(encode_error(to_error(error)));
  body.fields_ = to.take();
  return body;
}

MessageBody MessageBody::bye() { return MessageBody(MessageKind::kBye); }

MessageBody MessageBody::of(const Status& status) {
  MessageBody body(MessageKind::kStatus);
  ByteWriter to;
  to.varint(static_cast<std::uint64_t>(status.durable));
  to.varint(static_cast<std::uint64_t>(status.received));
  body.fields_ = to.take();
  return body;
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

WireFrame MessageBody::frame(std::int64_t number) const {
  ByteWriter to;
  to.out().reserve(fields_.size() + 24);
  to.varint(static_cast<std::uint64_t>(kind_));
  to.varint(static_cast<std::uint64_t>(number));
  to.bytes(fields_);
  to.seal();
  return to.take();
}

WireMessage::WireMessage(std::span<const std::byte> frame) {
  ByteReader from = ByteReader::sealed(frame, "a message");
  const std::uint64_t kind = from.varint();
  const bool known = (kind >= 1 && kind <= static_cast<std::uint64_t>(MessageKind::kBye)) ||
                     (kind >= 64 && kind <= static_cast<std::uint64_t>(MessageKind::kRefused));
  if (!known) from.refuse("there is no message of kind " + std::to_string(kind));
  head_ = {static_cast<MessageKind>(kind), from.number()};
  fields_ = from.bytes(from.left());
}

std::uint64_t fingerprint_of(const std::vector<FeatureSpec>& features, std::uint64_t seed) {
  ByteWriter to;
  to.fixed64(seed);
  for (const FeatureSpec& spec : features) {
    to.text(spec.name);
    to.varint(static_cast<std::uint64_t>(spec.width));
    to.varint(static_cast<std::uint64_t>(spec.init.kind));
    to.real(spec.init.scale);
    const RowOptimizerOptions& of = spec.optimizer;
    to.varint(static_cast<std::uint64_t>(of.kind));
    for (const double value : {of.learning_rate, of.epsilon, of.initial_accumulator, of.momentum,
                               of.beta1, of.beta2, of.weight_decay, of.l1, of.l2})
      to.real(value);
    to.varint(static_cast<std::uint64_t>(spec.precision));
    to.varint(static_cast<std::uint64_t>(spec.admission.filter));
    to.varint(static_cast<std::uint64_t>(spec.admission.threshold));
    to.varint(static_cast<std::uint64_t>(spec.eviction.policy));
    to.varint(static_cast<std::uint64_t>(spec.eviction.steps_to_live));
  }
  return checksum(to.out());
}

}  // namespace strata
