/// Gives the path of a unix socket to one server at a time, as a TCP port goes to one.
///
/// The system frees a port when its server dies; a path stays, and a new socket must take its place only
/// where nobody answers any more. gRPC removes whatever has the path, when it begins and when it ends:
/// it gets another path to listen on, and the socket is renamed to the one that was asked for.
///
/// Threads  any; servers that begin or end in one folder wait for each other.
#pragma once

#include <memory>
#include <string>

namespace strata {

class FolderTurn;

class SocketName {
 public:
  /// Null where a server answers, what is there is no socket, or there is no such folder.
  static std::unique_ptr<SocketName> reserve(const std::string& path);
  ~SocketName();  ///< removes the socket, unless another has its path by now
  SocketName(const SocketName&) = delete;
  SocketName& operator=(const SocketName&) = delete;

  std::string listen_path() const;  ///< where to listen before take()
  /// The socket has its path from now on, and mode 600; false if it cannot.
  bool take();

 private:
  SocketName(const std::string& path, std::unique_ptr<FolderTurn> turn);

  std::string path_;
  std::unique_ptr<FolderTurn> turn_;  // until take()
  std::string identity_;              // of our socket; empty until take()
};

}  // namespace strata
