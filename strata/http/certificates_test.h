/// Makes certificates for tests of TLS: a root, an authority below it, and a server's certificate
/// for 127.0.0.1 below that, as PEM files in a folder that ends with the object.
#pragma once

#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "strata/http/http_server.h"

namespace strata {

struct Identity {
  std::shared_ptr<EVP_PKEY> key;
  std::shared_ptr<X509> certificate;
};

/// `issuer`: null for one that signs itself.
inline Identity identity(const char* name, const Identity* issuer, bool is_authority) {
  const std::shared_ptr<EVP_PKEY> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::shared_ptr<X509> certificate(X509_new(), X509_free);
  X509* const made = certificate.get();
  X509_set_version(made, 2);
  static long serial = 0;
  ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(made), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made), 3600);
  X509_set_pubkey(made, key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509* const parent = issuer ? issuer->certificate.get() : made;
  X509_set_issuer_name(made, X509_get_subject_name(parent));
  const auto extend = [&](int kind, const char* value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
    X509_add_ext(made, extension, -1);
    X509_EXTENSION_free(extension);
  };
  extend(NID_basic_constraints, is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
  if (!is_authority) extend(NID_subject_alt_name, "IP:127.0.0.1");
  EXPECT_GT(X509_sign(made, issuer ? issuer->key.get() : key.get(), EVP_sha256()), 0);
  return {key, certificate};
}

class TestCertificates {
 public:
  TestCertificates() {
    std::filesystem::create_directories(folder_);
    const Identity middle = identity("middle", &root, true);
    const Identity leaf = identity("server", &middle, false);
    write("root.pem", [&](FILE* file) { PEM_write_X509(file, root.certificate.get()); });
    write("chain.pem", [&](FILE* file) {
      PEM_write_X509(file, leaf.certificate.get());
      PEM_write_X509(file, middle.certificate.get());
    });
    write_key("key.pem", leaf);
  }
  ~TestCertificates() { std::filesystem::remove_all(folder_); }
  TestCertificates(const TestCertificates&) = delete;
  TestCertificates& operator=(const TestCertificates&) = delete;

  /// A cipher locks the key with a password.
  void write_key(const char* name, const Identity& owner,
                 const EVP_CIPHER* cipher = nullptr) const {
    const unsigned char password[] = "secret";
    write(name, [&](FILE* file) {
      PEM_write_PrivateKey(file, owner.key.get(), cipher, cipher ? password : nullptr,
                           cipher ? 6 : 0, nullptr, nullptr);
    });
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  HttpTls tls() const {
    return {.certificate_file = path("chain.pem"), .key_file = path("key.pem")};
  }

  const Identity root = identity("root", nullptr, true);

 private:
  template <typename Write>
  void write(const char* name, Write write_to) const {
    FILE* const file = std::fopen(path(name).c_str(), "w");
    ASSERT_NE(file, nullptr);
    write_to(file);
    std::fclose(file);
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("strata_tls_test_" + std::to_string(::getpid()));
};

}  // namespace strata
