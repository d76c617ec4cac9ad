/// Carries whole messages between a rank and a server, in order, until it breaks.
///
/// gRPC implements it (grpc_client.h); tests implement streams that lose and repeat messages.
///
/// Threads  one sends, one receives; cancel() and alive() from any.
#pragma once

#include <functional>
#include <memory>

#include "strata/rowserver/wire/wire_messages.h"

namespace strata {

class FrameStream {
 public:
  virtual ~FrameStream() = default;
  virtual bool send(const WireFrame& frame) = 0;  ///< false: broken
  /// The same, but may keep the fields instead of copying them.
  virtual bool send_pieces(const FramePieces& pieces) { return send(pieces.joined()); }
  virtual bool receive(WireFrame& frame) = 0;  ///< waits; false: broken, or nothing comes any more
  virtual void cancel() = 0;                   ///< breaks it
  virtual bool alive() = 0;
};

/// Throws a SystemError if no server answers, after which a caller may retry, and a UserError if a
/// retry is useless.
using ConnectStream = std::function<std::unique_ptr<FrameStream>()>;

}  // namespace strata
