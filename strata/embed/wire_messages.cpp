#include "strata/embed/wire_messages.h"

#include <cstring>
#include <string>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/embed/byte_codec.h"

namespace strata {
namespace {

// Of answers; parts have their ids.
std::uint32_t checksum_of(std::span<const std::uint64_t> ids) {
  return static_cast<std::uint32_t>(checksum(std::as_bytes(ids)));
}

enum class Ids : bool { kLeftOut, kSent };

void write_rows(ByteWriter& to, const std::vector<FeatureRows>& all,
                const std::vector<FeatureSpec>& features, WirePrecision precision, Ids ids) {
  std::size_t most = 16;
  for (const FeatureRows& rows : all) {
    const int width = features[static_cast<std::size_t>(rows.feature)].width;
    most += 32 + values_bytes(precision, rows.ids.size(), width);
    if (ids == Ids::kSent) most += most_bytes_of_ids(rows.ids);
  }
  to.out().reserve(to.out().size() + most);
  to.varint(static_cast<std::uint64_t>(precision));
  to.varint(all.size());
  for (const FeatureRows& rows : all) {
    to.varint(static_cast<std::uint64_t>(rows.feature));
    to.varint(static_cast<std::uint64_t>(rows.version));
    if (ids == Ids::kSent)
      to.ids(rows.ids);
    else
      to.fixed32(checksum_of(rows.ids));
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

std::vector<float> read_values(ByteReader& from, WirePrecision precision, std::size_t rows,
                               int width) {
  return decoded_values(precision, from.bytes(values_bytes(precision, rows, width)), width);
}

std::vector<FeatureRows> read_gradients(ByteReader& from,
                                        const std::vector<FeatureSpec>& features) {
  const WirePrecision precision = read_precision(from);
  const std::uint64_t count = from.varint();
  if (count > from.left()) from.refuse("it is cut off");
  std::vector<FeatureRows> all(static_cast<std::size_t>(count));
  for (FeatureRows& rows : all) {
    rows.feature = read_feature(from, features);
    rows.version = from.number();
    rows.ids = from.ids();
    rows.values = read_values(from, precision, rows.ids.size(),
                              features[static_cast<std::size_t>(rows.feature)].width);
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
  to.varint(hello.abandoned.size());
  for (const std::uint64_t run : hello.abandoned) to.fixed64(run);
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
  hello.run = from.fixed64();
  for (std::int64_t* number : {&hello.begin, &hello.durable, &hello.requests, &hello.oldest})
    *number = from.number();
  --hello.oldest;
  hello.wire.rows = read_precision(from);
  hello.wire.gradients = read_precision(from);
  const std::uint64_t abandoned = from.varint();
  if (abandoned > from.left() / 8) from.refuse("it is cut off");
  for (std::uint64_t i = 0; i < abandoned; ++i) hello.abandoned.push_back(from.fixed64());
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

std::vector<std::byte> encode_part(std::int64_t version, const UpdatePart& part,
                                   const std::vector<FeatureSpec>& features,
                                   WirePrecision gradients) {
  ByteWriter to;
  to.varint(static_cast<std::uint64_t>(version));
  to.real(part.rate_factor);
  write_rows(to, part.gradients, features, gradients, Ids::kSent);
  return to.take();
}

MessageBody MessageBody::of_part(std::int64_t version, const UpdatePart& part,
                                 const std::vector<FeatureSpec>& features,
                                 WirePrecision gradients) {
  return MessageBody(MessageKind::kPart, encode_part(version, part, features, gradients));
}

UpdatePart decode_part(std::span<const std::byte> fields, std::int64_t version,
                       const std::vector<FeatureSpec>& features,
                       std::shared_ptr<const WireFrame> message) {
  ByteReader from(fields, "a part of update " + std::to_string(version));
  if (from.number() != version) from.refuse("it belongs to another update");
  UpdatePart part;
  part.rate_factor = from.real();
  part.gradients = read_gradients(from, features);
  from.require_end();
  if (message) part.wire = {.message = std::move(message), .bytes = fields};
  return part;
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
  write_rows(to, rows, features, precision, Ids::kLeftOut);
  return MessageBody(MessageKind::kRows, to.take());
}

std::vector<FeatureRows> WireMessage::rows(const std::vector<FeatureSpec>& features,
                                           std::span<FeatureRead> asked) const {
  ByteReader from(fields_, place(head_.kind));
  from.varint();
  const WirePrecision precision = read_precision(from);
  const auto refuse_others = [] {
    throw SystemError({.operation = "embed.answer",
                       .what = "a server answers with other rows than it was asked for",
                       .fix = "start servers and trainers with the same program"});
  };
  if (from.varint() != asked.size()) refuse_others();
  std::vector<FeatureRows> all(asked.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    FeatureRows& rows = all[i];
    rows.feature = read_feature(from, features);
    rows.version = from.number();
    if (rows.feature != asked[i].feature || rows.version != asked[i].version ||
        from.fixed32() != checksum_of(asked[i].ids))
      refuse_others();
    rows.values = read_values(from, precision, asked[i].ids.size(),
                              features[static_cast<std::size_t>(rows.feature)].width);
  }
  from.require_end();
  for (std::size_t i = 0; i < all.size(); ++i) all[i].ids = std::move(asked[i].ids);
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
