#include "strata/rowserver/wire/socket_name.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace strata {

// Locks the folder itself, because a lock file would remain after the server.
class FolderTurn {
 public:
  explicit FolderTurn(const std::string& path) {
    const std::string folder = std::filesystem::path(path).parent_path();
    descriptor_ = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (has() && ::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) continue;
  }
  ~FolderTurn() {
    if (has()) ::close(descriptor_);
  }
  FolderTurn(const FolderTurn&) = delete;
  FolderTurn& operator=(const FolderTurn&) = delete;

  bool has() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

namespace {

bool answers(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return true;
  const bool connected =
      ::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int error = errno;
  ::close(descriptor);
  // A live server that is too busy to accept causes another error.
  return connected || error != ECONNREFUSED;
}

bool is_free_to_bind(const std::string& path) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) return errno == ENOENT;
  return S_ISSOCK(found.st_mode) && !answers(path);
}

std::string identity_of(const std::string& path) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) return "";
  return std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino);
}

}  // namespace

SocketName::SocketName(const std::string& path, std::unique_ptr<FolderTurn> turn)
    : path_(path), turn_(std::move(turn)) {}

std::unique_ptr<SocketName> SocketName::reserve(const std::string& path) {
  auto turn = std::make_unique<FolderTurn>(path);
  if (!turn->has() || !is_free_to_bind(path)) return nullptr;
  return std::unique_ptr<SocketName>(new SocketName(path, std::move(turn)));
}

std::string SocketName::listen_path() const { return path_ + "." + std::to_string(::getpid()); }

bool SocketName::take() {
  const std::string mine = identity_of(listen_path());
  // Excludes other users, whatever the umask is.
  if (mine.empty() || ::chmod(listen_path().c_str(), S_IRUSR | S_IWUSR) != 0) return false;
  if (std::rename(listen_path().c_str(), path_.c_str()) != 0) return false;
  identity_ = mine;
  turn_.reset();
  return true;
}

SocketName::~SocketName() {
  if (identity_.empty()) return;
  const FolderTurn turn(path_);
  if (identity_of(path_) == identity_) ::unlink(path_.c_str());
}

}  // namespace strata
