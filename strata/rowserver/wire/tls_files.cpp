#include "strata/rowserver/wire/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdlib>
#include <memory>

#include "strata/base/errors.h"
#include "strata/base/random_access_file.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

constexpr std::uint64_t kLargestFile = 1 << 20;
constexpr const char* kNameAPemFile = "name a file in PEM";

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Text = std::unique_ptr<BIO, decltype(&BIO_free)>;

[[noreturn]] void refuse(const std::string& path, const std::string& what,
                         const std::string& expected, const std::string& fix) {
  char words[160] = "no such block in the file";
  if (const unsigned long error = ERR_get_error()) ERR_error_string_n(error, words, sizeof words);
  throw UserError({.operation = "embed.tls",
                   .where = path,
                   .what = what,
                   .expected = expected,
                   .got = words,
                   .fix = fix});
}

std::string read_pem(const std::string& path, const std::string& what) {
  if (path.empty())
    throw UserError({.operation = "embed.tls",
                     .what = "TLS lacks " + what,
                     .expected = "certificate, key and authority",
                     .got = "no file for it",
                     .fix = "give all three files, or none"});
  return read_file(path, {.operation = "embed.tls", .fix = kNameAPemFile}, kLargestFile);
}

Text reader_of(const std::string& text) {
  ERR_clear_error();
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

Certificate certificate_in(const std::string& path, const std::string& text) {
  const Text reader = reader_of(text);
  Certificate first(PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr), &X509_free);
  if (!first) refuse(path, "the file has no certificate", "a certificate in PEM", kNameAPemFile);
  return first;
}

// Returns no passphrase: a server starts unattended.
int no_passphrase(char*, int, int, void*) { return -1; }

void require_key(const TlsFiles& tls, const TlsTexts& texts, X509* certificate) {
  const Text reader = reader_of(texts.key);
  const Key key(PEM_read_bio_PrivateKey(reader.get(), nullptr, &no_passphrase, nullptr),
                &EVP_PKEY_free);
  if (!key)
    refuse(tls.key, "the file has no private key that can be read",
           "a private key in PEM without a passphrase", kNameAPemFile);
  if (X509_check_private_key(certificate, key.get()) != 1)
    refuse(tls.key, "the private key does not belong to the certificate",
           "the key of " + tls.certificate, "name the key that the certificate was made for");
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

ServerAddress require_tls_beyond_machine(const std::string& text, const TlsFiles& tls,
                                         FreePort free_port) {
  ServerAddress address = parse_server_address(text, free_port);
  if (tls.on() || address.local) return address;
  throw UserError({.operation = "embed.tls",
                   .where = text,
                   .what = "rows don't leave the machine without TLS",
                   .expected = "certificate, key and authority, or an address of this machine: "
                               "127.0.0.1:PORT, localhost:PORT or unix:PATH",
                   .got = "no files, and " + quote(address.host) + " may be another machine",
                   .fix = "name the three files in STRATA_TLS_CERTIFICATE, STRATA_TLS_KEY and "
                          "STRATA_TLS_AUTHORITY"});
}

TlsTexts read_tls(const TlsFiles& tls) {
  TlsTexts texts{.certificate = read_pem(tls.certificate, "a certificate"),
                 .key = read_pem(tls.key, "a key"),
                 .authority = read_pem(tls.authority, "an authority")};
  const Certificate certificate = certificate_in(tls.certificate, texts.certificate);
  require_key(tls, texts, certificate.get());
  certificate_in(tls.authority, texts.authority);
  return texts;
}

TlsFiles tls_from_environment() {
  return {.certificate = variable("STRATA_TLS_CERTIFICATE"),
          .key = variable("STRATA_TLS_KEY"),
          .authority = variable("STRATA_TLS_AUTHORITY")};
}

}  // namespace strata
