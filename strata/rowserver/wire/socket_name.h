/// Gives the path of a unix socket to one server at a time, as the system does with a TCP port.
///
/// The system frees a port when its server dies. A path remains, and a new socket may replace it
/// only if no server answers there. gRPC removes the file at its path when it starts and when it
/// ends, so gRPC listens at another path, and the socket is renamed to the requested one.
///
/// Threads  any; servers that begin or end in one folder wait for each other.
#pragma once

#include <memory>
#include <string>

namespace strata {

class FolderTurn;

class SocketName {
 public:
  /// Null if a server answers there, the path is not a socket, or the folder does not exist.
  static std::unique_ptr<SocketName> reserve(const std::string& path);
  ~SocketName();  ///< removes the socket, unless another has its path by now
  SocketName(const SocketName&) = delete;
  SocketName& operator=(const SocketName&) = delete;

  std::string listen_path() const;  ///< where to listen before take()
  /// Renames the socket to its path and sets mode 600; false if that fails.
  bool take();

 private:
  SocketName(const std::string& path, std::unique_ptr<FolderTurn> turn);

  std::string path_;
  std::unique_ptr<FolderTurn> turn_;  // until take()
  std::string identity_;              // of our socket; empty until take()
};

}  // namespace strata
