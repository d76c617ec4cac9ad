#include "strata/transport/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::size_t kLeast = 16, kMost = 4096;  // characters

// No message quotes a secret, not even one that is refused.
[[noreturn]] void refuse(const std::string& where, const std::string& what,
                         const std::string& expected, const std::string& got,
                         const std::string& fix) {
  throw UserError({.operation = "transport.secret",
                   .where = where,
                   .what = what,
                   .expected = expected,
                   .got = got,
                   .fix = fix});
}

std::string required_length(std::string secret, const std::string& where) {
  if (secret.size() >= kLeast && secret.size() <= kMost) return secret;
  refuse(where, "the secret has a wrong length", "16 to 4096 characters",
         std::to_string(secret.size()), "make one with: openssl rand -hex 32");
}

std::string read_secret(const char* path) {
  // Non-blocking: a pipe would keep the open waiting for a writer.
  const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const std::string where = "STRATA_SECRET_FILE=" + std::string(path);
  if (descriptor < 0)
    refuse(where, "the secret cannot be read", "a file", std::strerror(errno),
           "name a file that this process may read");
  struct stat about{};
  ::fstat(descriptor, &about);
  std::string text(kMost + 2, '\0');
  const ssize_t got = S_ISREG(about.st_mode) ? ::read(descriptor, text.data(), text.size()) : 0;
  ::close(descriptor);
  if (!S_ISREG(about.st_mode))
    refuse(where, "the secret is not in a regular file", "a file of mode 600", "something else",
           "name a file");
  if (about.st_mode & (S_IRWXG | S_IRWXO))
    refuse(where, "others may read or write the secret's file", "mode 600",
           "mode " + std::to_string((about.st_mode >> 6) & 7) +
               std::to_string((about.st_mode >> 3) & 7) + std::to_string(about.st_mode & 7),
           "chmod 600 " + std::string(path));
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

}  // namespace

std::string secret_from(const Variables& variables) {
  const char* text = variables("STRATA_SECRET");
  const char* path = variables("STRATA_SECRET_FILE");
  if (text && path)
    refuse("STRATA_SECRET", "the secret is given twice", "STRATA_SECRET or STRATA_SECRET_FILE",
           "both", "unset one of them");
  if (path) return read_secret(path);
  return text ? required_length(text, "STRATA_SECRET") : "";
}

std::string make_secret() {
  std::array<unsigned char, 32> bytes;
  fill_random(bytes.data(), bytes.size());
  std::string text;
  for (const unsigned char byte : bytes) {
    text.push_back("0123456789abcdef"[byte >> 4]);
    text.push_back("0123456789abcdef"[byte & 15]);
  }
  return text;
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
