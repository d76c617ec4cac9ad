#include "strata/transport/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::size_t kLeast = 16, kMost = 4096;  // characters

// No message quotes a secret, not even a rejected one.
constexpr ErrorSource kSecretErrors{"transport.secret"};

std::string required_length(std::string secret, const std::string& where) {
  if (secret.size() >= kLeast && secret.size() <= kMost) return secret;
  throw kSecretErrors.user(where, "the secret has a wrong length", "16 to 4096 characters",
                           std::to_string(secret.size()), "make one with: openssl rand -hex 32");
}

std::string read_secret(const std::string& path, const std::string& where) {
  // Non-blocking, because opening a pipe would wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    throw kSecretErrors.user(where, "the secret cannot be read", "a file", std::strerror(errno),
                             "name a file that this process may read");
  struct stat about{};
  ::fstat(descriptor, &about);
  std::string text(kMost + 2, '\0');
  const ssize_t got = S_ISREG(about.st_mode) ? ::read(descriptor, text.data(), text.size()) : 0;
  ::close(descriptor);
  if (!S_ISREG(about.st_mode))
    throw kSecretErrors.user(where, "the secret is not in a regular file", "a file of mode 600",
                             "something else", "name a file");
  if (about.st_mode & (S_IRWXG | S_IRWXO))
    throw kSecretErrors.user(where, "others may read or write the secret's file", "mode 600",
                             "mode " + std::to_string((about.st_mode >> 6) & 7) +
                                 std::to_string((about.st_mode >> 3) & 7) +
                                 std::to_string(about.st_mode & 7),
                             "chmod 600 " + path);
  if (about.st_uid != ::geteuid() && about.st_uid != 0)
    throw kSecretErrors.user(
        where, "the secret's file is another user's", "a file of this user or of root",
        "one of user " + std::to_string(about.st_uid), "name a file of your own");
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return required_length(std::move(text), where);
}

void fill_random(unsigned char* bytes, std::size_t count) {
  if (RAND_bytes(bytes, static_cast<int>(count)) == 1) return;
  throw SystemError({.operation = "transport.secret",
                     .what = "the system gives no random numbers",
                     .fix = "look at /dev/urandom"});
}

// The folder of the user who runs this process.
std::string config_folder(const Variables& variables) {
  for (const auto& [name, below] : {std::pair{"XDG_CONFIG_HOME", ""}, {"HOME", "/.config"}})
    if (const char* folder = variables(name); folder && *folder)
      return std::string(folder) + below + "/strata";
  std::array<char, 4096> names{};
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(::geteuid(), &entry, names.data(), names.size(), &found);
  return std::string(found ? found->pw_dir : "") + "/.config/strata";
}

// The file appears under its name only when complete, so processes that start together read the
// same secret.
void make_own_secret(const std::string& path) {
  const std::string part = path + "." + std::to_string(::getpid()) + "-" + hex_text(make_nonce());
  const auto fail = [&] {
    throw kSecretErrors.user(path, "the secret of this user cannot be kept", "a folder to write to",
                             std::strerror(errno), "export STRATA_SECRET=$(openssl rand -hex 32)");
  };
  try {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  } catch (const std::filesystem::filesystem_error& error) {
    errno = error.code().value();
    fail();
  }
  const int descriptor = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) fail();
  const std::string text = make_secret() + "\n";
  const bool written =
      ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(descriptor) == 0;
  const bool named = written && (::link(part.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  ::close(descriptor);
  ::unlink(part.c_str());
  errno = error;
  if (!named) fail();
}

}  // namespace

std::string own_secret(const Variables& variables) {
  const std::string path = config_folder(variables) + "/secret";
  if (::access(path.c_str(), F_OK) != 0) make_own_secret(path);
  return read_secret(path, path);
}

std::string secret_from(const Variables& variables) {
  const char* text = variables("STRATA_SECRET");
  const char* path = variables("STRATA_SECRET_FILE");
  if (text && path)
    throw kSecretErrors.user("STRATA_SECRET", "the secret is set twice",
                             "STRATA_SECRET or STRATA_SECRET_FILE", "both", "unset one of them");
  if (path) return read_secret(path, "STRATA_SECRET_FILE=" + std::string(path));
  return text ? required_length(text, "STRATA_SECRET") : "";
}

std::string make_secret() { return hex_text(make_nonce()); }

std::string hex_text(const Digest& digest) {
  std::string text;
  for (const unsigned char byte : digest) {
    text.push_back("0123456789abcdef"[byte >> 4]);
    text.push_back("0123456789abcdef"[byte & 15]);
  }
  return text;
}

std::optional<Digest> parse_hex(std::string_view text) {
  Digest digest{};
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const char* const end = text.data() + 2 * i + 2;
    const auto [read, error] = std::from_chars(end - 2, end, digest[i], 16);
    if (error != std::errc() || read != end) return std::nullopt;
  }
  return digest;
}

Digest proof_of(const HandshakeKey& key, std::string_view role, std::uint32_t process,
                const Nonce& of_listener, const Nonce& of_process) {
  std::string text = std::string(role) + '\0' + key.purpose + '\0' + std::to_string(process) + '\0';
  text.append(of_listener.begin(), of_listener.end());
  text.append(of_process.begin(), of_process.end());
  return keyed_hash(key.secret, text);
}

Nonce make_nonce() {
  Nonce nonce;
  fill_random(nonce.data(), nonce.size());
  return nonce;
}

Digest keyed_hash(std::string_view key, std::string_view text) {
  Digest digest{};
  unsigned int size = 0;
  const unsigned char* done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &size);
  STRATA_CHECK(done != nullptr && size == digest.size(), "transport.keyed_hash");
  return digest;
}

bool equal_in_constant_time(const Digest& a, const Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace strata
