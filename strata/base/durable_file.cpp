// A write is durable in three steps: fsync of the file for its bytes, fsync of its folder for its
// name, and an atomic rename if the name replaces another. A new folder is a name in its parent, so
// each level is synced when it is created. All calls go through FileSystem in exactly this order:
// tests of power cuts record it.
#include "strata/base/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw_error(file_error("base.write", path, what, errno));
}

std::string folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

bool is_folder(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_directory(path, none);
}

}  // namespace

DurableFile::DurableFile(std::string path, FileSystem& files)
    : path_(std::move(path)), files_(files), descriptor_(files.create(path_)) {
  if (descriptor_ < 0) refuse(path_, "the file cannot be made");
}

DurableFile::~DurableFile() {
  if (descriptor_ >= 0) files_.close(descriptor_);
}

void DurableFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ::ssize_t written = files_.write(descriptor_, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) refuse(path_, "the file cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void DurableFile::close() {
  if (files_.sync(descriptor_) != 0) refuse(path_, "the file cannot be written");
  if (files_.close(std::exchange(descriptor_, -1)) != 0) refuse(path_, "the file cannot be closed");
}

void write_file(const std::string& path, std::string_view text) {
  DurableFile file(path);
  file.write(text);
  file.close();
}

void sync_folder(const std::string& folder, FileSystem& files) {
  if (files.sync_folder(folder) != 0) refuse(folder, "the folder cannot be written");
}

void make_folders_durably(const std::string& folder, FileSystem& files) {
  const std::filesystem::path path(folder);
  std::filesystem::path made;
  for (const std::filesystem::path& part : path) {
    made /= part;
    if (part.empty() || is_folder(made)) continue;
    if (files.make_folder(made) != 0 && (errno != EEXIST || !is_folder(made)))
      refuse(made, "the folder cannot be made");
    sync_folder(folder_of(made), files);
  }
}

void rename_durably(const std::string& from, const std::string& to, FileSystem& files) {
  if (files.rename(from, to) != 0) refuse(to, "'" + from + "' cannot be renamed");
  sync_folder(folder_of(to), files);
}

void replace_folder_durably(const std::string& fresh, const std::string& folder,
                            const std::string& old, FileSystem& files) {
  if (files.exchange(fresh, folder) == 0) {
    sync_folder(folder_of(folder), files);
    return remove_folder(fresh, files);
  }
  rename_durably(folder, old, files);
  rename_durably(fresh, folder, files);
  remove_folder(old, files);
}

void remove_folder(const std::string& folder, FileSystem& files) {
  if (files.remove_all(folder) != 0) refuse(folder, "the folder cannot be removed");
}

void require_writable_folder(const std::string& path, const std::string& field) {
  namespace fs = std::filesystem;
  std::error_code none;
  fs::path there = fs::absolute(path, none);
  while (!fs::exists(there, none) && there.has_relative_path()) there = there.parent_path();
  const int error = !fs::is_directory(there, none)              ? ENOTDIR
                    : ::access(there.c_str(), W_OK | X_OK) != 0 ? errno
                                                                : 0;
  if (error != 0)
    throw_error(file_error("base.write", field + " " + path,
                           "the folder cannot be made or written to", error));
}

void require_writable_file(const std::string& path, const std::string& option) {
  const auto refuse_option = [&](const std::string& what) {
    throw_error(file_error("base.write", option + " " + path, what, errno));
  };
  const std::string folder = folder_of(path);
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  errno = failed.value();
  if (failed) refuse_option("the folder cannot be made");
  // Do not truncate: a run that is refused for another reason keeps the results of the last run.
  // Remove the file only if it was created here; otherwise it belongs to another run.
  const auto open = [&](int flags) {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | flags, 0644);
  };
  int descriptor = open(O_EXCL);
  const bool made = descriptor >= 0;
  if (!made && errno == EEXIST) descriptor = open(0);
  if (descriptor < 0) refuse_option("the file cannot be written");
  ::close(descriptor);
  if (made) ::unlink(path.c_str());
}

int FileSystem::create(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

::ssize_t FileSystem::write(int descriptor, std::span<const std::byte> bytes) {
  return ::write(descriptor, bytes.data(), bytes.size());
}

// posix_fallocate() writes zeros if the file system cannot reserve space.
int FileSystem::allocate(int descriptor, std::int64_t bytes) {
  errno = ::posix_fallocate(descriptor, 0, bytes);
  return errno == 0 ? 0 : -1;
}

int FileSystem::sync(int descriptor) {
  return ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : -1;
}

int FileSystem::close(int descriptor) { return ::close(descriptor); }

int FileSystem::make_folder(const std::string& path) { return ::mkdir(path.c_str(), 0755); }

int FileSystem::rename(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str());
}

int FileSystem::exchange(const std::string& a, const std::string& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
}

int FileSystem::sync_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return -1;
  // EINVAL: some file systems cannot sync a folder and do not need it.
  const int error = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  ::close(descriptor);
  errno = error;
  return error == 0 ? 0 : -1;
}

int FileSystem::remove_all(const std::string& path) {
  std::error_code failed;
  std::filesystem::remove_all(path, failed);
  errno = failed.value();
  return failed ? -1 : 0;
}

FileSystem& posix_file_system() {
  static FileSystem files;
  return files;
}

}  // namespace strata
