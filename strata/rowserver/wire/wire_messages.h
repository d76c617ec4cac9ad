/// Writes and reads the messages between ranks and servers of rows.
///
/// A message is its kind, its number in its stream, its fields and the XXH3 of all of them. The
/// fields of control messages are protobuf (rows.proto). Rows and gradients have formats of our own
/// (rows_codec.h), and so have ids (byte_codec.h).
///
/// Three things never change, so that every version of the program can name another one: the frame,
/// the 4 bytes of the wire version that open a Hello's fields, and a kRefused, whose fields are a
/// zero byte and encode_error() with its length. Nothing else of a Hello is read before its version
/// fits.
///
/// Errors  SystemError: a message that is cut off, damaged, or lies about its lengths.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/process_identity.h"
#include "strata/rowserver/codec/wire_values.h"
#include "strata/rowserver/shard/run_number.h"
#include "strata/rowserver/shard/update_part.h"

namespace strata {

using WireFrame = std::vector<std::byte>;

inline constexpr std::uint32_t kWireVersion = 7;

enum class MessageKind : std::uint8_t {
  kHello = 1,  ///< rank to server
  kRead,
  kPart,
  kReached,
  kSave,
  kBye,
  kAlive,         ///< from a rank that has nothing else to say
  kWelcome = 64,  ///< server to rank
  kRows,
  kDone,
  kFailed,  ///< one request
  kStatus,
  kRefused  ///< the whole stream
};

/// Opens a stream, the first one and every one after a loss.
struct Hello {
  std::uint32_t wire_version = kWireVersion;
  std::uint64_t fingerprint = 0;  ///< of the recipe's features and seed
  std::int32_t shard = 0, shards = 1, rank = 0, ranks = 1;
  RunName run = 0;
  /// The number of the run that this server had when this run began, which it follows; 0: none.
  std::uint64_t follows = 0;
  std::int64_t begin = 0;     ///< the version at which the run began
  std::int64_t durable = 0;   ///< the last version that the server reported as durable
  std::int64_t requests = 0;  ///< requests without an answer, which are sent again
  std::int64_t oldest = -1;   ///< version that one of them names; -1: none
  WireOptions wire = {};
  /// Earlier runs of this trainer without a checkpoint: no run uses the rows that they saved.
  std::vector<std::uint64_t> abandoned = {};
  ProcessIdentity holder = {};  ///< process 0 of the run
  /// What `fingerprint` is of, packed (feature_changes.h): a server of other tables names what
  /// differs. Empty: too long for a first frame.
  std::vector<std::byte> tables = {};
};

struct Welcome {
  std::int64_t version = 0;
  std::int64_t last_part = 0;  ///< of this rank
  std::int64_t durable = 0;
};

/// A read, or a wait until a version is reached or saved.
struct Request {
  std::uint64_t id = 0;              ///< ascending
  std::uint64_t answered_below = 0;  ///< requests with lower ids have their answers
  std::int64_t version = 0;          ///< kReached, kSave
  std::vector<FeatureRead> reads;    ///< kRead
};

struct PartMessage {
  std::int64_t version = 0;
  UpdatePart part;
};

struct Status {
  std::int64_t durable = 0;
  std::int64_t received = 0;  ///< messages of the stream
};

/// Precedes the fields of every message.
struct MessageHead {
  MessageKind kind;
  std::int64_t number;  ///< from 0 on, of the stream
};

/// A whole message in pieces; its body shares the fields.
struct FramePieces {
  std::vector<std::byte> head;
  std::shared_ptr<const std::vector<std::byte>> fields;
  std::array<std::byte, 8> checksum;

  std::size_t size() const { return head.size() + fields->size() + checksum.size(); }
  WireFrame joined() const;
};

/// A message without its number, which the stream gives it.
class MessageBody {
 public:
  static MessageBody of(const Hello& hello);
  static MessageBody of(const Welcome& welcome);
  static MessageBody of(MessageKind kind, const Request& request);
  static MessageBody of_part(std::int64_t version, const UpdatePart& part,
                             const std::vector<FeatureSpec>& features, WirePrecision gradients);
  static MessageBody of_rows(std::uint64_t id, const std::vector<FeatureRows>& rows,
                             const std::vector<FeatureSpec>& features, WirePrecision precision);
  static MessageBody done(std::uint64_t id);
  static MessageBody failed(std::uint64_t id, const std::exception& error);
  static MessageBody of(const Status& status);
  static MessageBody refused(const std::exception& error);
  static MessageBody bye();
  static MessageBody alive();

  MessageKind kind() const { return kind_; }
  std::size_t bytes() const { return fields_->size(); }
  FramePieces pieces(std::int64_t number) const;
  WireFrame frame(std::int64_t number) const { return pieces(number).joined(); }

 private:
  explicit MessageBody(MessageKind kind, std::vector<std::byte> fields = {})
      : kind_(kind), fields_(std::make_shared<const std::vector<std::byte>>(std::move(fields))) {}
  MessageKind kind_;
  std::shared_ptr<const std::vector<std::byte>> fields_;
};

/// A received message. The frame outlives it.
class WireMessage {
 public:
  explicit WireMessage(std::span<const std::byte> frame);
  MessageKind kind() const { return head_.kind; }
  std::int64_t number() const { return head_.number; }

  Hello hello() const;
  Welcome welcome() const;
  Request request() const;
  /// `frame`: the one that holds this message, if the part is to keep it.
  PartMessage part(const std::vector<FeatureSpec>& features,
                   std::shared_ptr<const WireFrame> frame = nullptr) const;
  /// The request's id in kRows, kDone and kFailed.
  std::uint64_t id() const;
  /// The answer to `asked`, whose ids move into the result if the answer fits.
  std::vector<FeatureRows> rows(const std::vector<FeatureSpec>& features,
                                std::span<FeatureRead> requested) const;
  Status status() const;
  std::exception_ptr error() const;  ///< of kFailed, kRefused

 private:
  MessageHead head_{};
  std::span<const std::byte> fields_;
};

}  // namespace strata
