// TLS clients by OpenSSL, whose certificates the test makes, and clients that do not speak TLS.
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <atomic>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/http/certificates_test.h"
#include "strata/http/http_client_test.h"
#include "strata/http/http_server.h"

namespace strata {
namespace {

class HttpTlsServer : public testing::Test {
 protected:
  HttpListen listen() const {
    HttpListen listen;
    listen.tls = files_.tls();
    return listen;
  }
  std::string path(const char* name) const { return files_.path(name); }
  X509* root() const { return files_.root.certificate.get(); }

  const TestCertificates files_;
};

class TlsClient {
 public:
  TlsClient(const HttpServer& server, X509* root, int highest = TLS1_3_VERSION)
      : client_(server),
        context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
        session_(nullptr, SSL_free) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), root);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_min_proto_version(context_.get(), 0);
    SSL_CTX_set_max_proto_version(context_.get(), highest);
    SSL_CTX_set_security_level(context_.get(), 0);  // the refusal of old versions is the server's
    session_.reset(SSL_new(context_.get()));
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session_.get()), "127.0.0.1");
    SSL_set_fd(session_.get(), client_.socket());
    connected = SSL_connect(session_.get()) == 1;
  }
  void send(const std::string& text) {
    EXPECT_GT(SSL_write(session_.get(), text.data(), static_cast<int>(text.size())), 0);
  }
  std::string receive_all() {
    std::string all;
    char some[4096];
    for (int bytes = 0; (bytes = SSL_read(session_.get(), some, sizeof(some))) > 0;)
      all.append(some, static_cast<std::size_t>(bytes));
    // Without the server's close_notify an attacker could have cut the answer.
    ended = (SSL_get_shutdown(session_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
    return all;
  }
  void leave() { SSL_shutdown(session_.get()); }
  std::string version() const { return SSL_get_version(session_.get()); }
  bool connected = false, ended = false;

 private:
  Client client_;
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  std::unique_ptr<SSL, void (*)(SSL*)> session_;
};

TEST_F(HttpTlsServer, AnswersClientsThatKnowTheRoot) {
  HttpRoutes routes = test_routes();
  routes.push_back({"GET", "/long", [](const HttpRequest&) {
                      return HttpAnswer{.body = std::string(4 << 20, 'x')};
                    }});
  const HttpServer server(listen(), routes);
  for (const int highest : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server, root(), highest);
    ASSERT_TRUE(client.connected);
    EXPECT_EQ(client.version(), highest == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
    client.send("GET /health HTTP/1.1\r\n\r\n" + get("/long"));
    const std::string answers = client.receive_all();
    EXPECT_TRUE(client.ended);
    EXPECT_NE(answers.find("SERVING\n"), std::string::npos);
    EXPECT_TRUE(answers.ends_with(std::string(4 << 20, 'x')));
  }
  const Identity other = identity("other", nullptr, true);
  EXPECT_FALSE(TlsClient(server, other.certificate.get()).connected);
  wait_for_connections(server, 0);
}

TEST_F(HttpTlsServer, RefusesOldVersions) {
  const HttpServer server(listen(), test_routes());
  EXPECT_FALSE(TlsClient(server, root(), TLS1_1_VERSION).connected);
}

TEST_F(HttpTlsServer, StreamsAndNoticesClientsThatLeave) {
  std::atomic<int> closed = 0;
  std::promise<std::shared_ptr<HttpStream>> streams[3];
  std::atomic<int> next = 0;
  HttpRoutes routes = {{.method = "GET", .path = "/stream", .handler = [&](const HttpRequest&) {
                          return HttpAnswer{.stream = [&](std::shared_ptr<HttpStream> stream) {
                            stream->on_closed([&] { ++closed; });
                            streams[next++].set_value(std::move(stream));
                          }};
                        }}};
  const HttpServer server(listen(), routes);
  for (int i = 0; i < 3; ++i) {
    auto client = std::make_unique<TlsClient>(server, root());
    client->send(get("/stream"));
    const auto stream = streams[i].get_future().get();
    EXPECT_TRUE(stream->write("piece"));
    if (i == 0) {
      stream->finish();
      EXPECT_TRUE(client->receive_all().ends_with("5\r\npiece\r\n0\r\n\r\n"));
      EXPECT_TRUE(client->ended);
    }
    if (i == 1) client->leave();
    if (i == 2) client.reset();
    EXPECT_TRUE(becomes_true([&] { return closed == i + 1; })) << i;
  }
  wait_for_connections(server, 0);
}

TEST_F(HttpTlsServer, ClosesConnectionsThatDoNotSpeakTls) {
  HttpListen quick = listen();
  quick.limits.request = 200ms;
  const HttpServer server(quick, test_routes());
  EXPECT_EQ(ask(server, get("/health")).find("HTTP/1.1 2"), std::string::npos);
  Client silent(server), half(server);
  half.send(std::string("\x16\x03\x01\x02\x00\x01", 6));  // begins a handshake
  EXPECT_EQ(silent.receive_all(), "");
  EXPECT_EQ(half.receive_all(), "");
  Client endless(server);
  std::size_t sent = 0;
  const std::string garbage = std::string("\x16\x03\x01\xff\xff", 5) + std::string(1 << 16, '\x01');
  while (sent < 64 << 20 && endless.send(garbage)) sent += garbage.size();
  EXPECT_LT(sent, std::size_t{64} << 20);
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    Client client(server);
    std::string bytes(1 + random() % 300, '\x16');
    for (std::size_t i = round % 4; i < bytes.size(); ++i) bytes[i] = static_cast<char>(random());
    client.send(bytes);
    client.end_sending();
    client.receive_all();
  }
  wait_for_connections(server, 0);
  TlsClient client(server, root());
  ASSERT_TRUE(client.connected);
  client.send(get("/health"));
  EXPECT_EQ(body_of(client.receive_all()), "SERVING\n");
}

TEST_F(HttpTlsServer, RefusesFilesThatItCannotUse) {
  const auto refused = [](const HttpListen& listen, const std::string& where) {
    try {
      const HttpServer server(listen, test_routes());
      ADD_FAILURE() << "the server uses " << where;
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().operation, "http.tls");
      EXPECT_EQ(error.text().where, where);
    }
  };
  HttpListen other = listen();
  other.tls->certificate_file = path("missing.pem");
  refused(other, path("missing.pem"));
  other = listen();
  other.tls->key_file = path("chain.pem");  // no key
  refused(other, path("chain.pem"));
  const Identity stranger = identity("stranger", nullptr, false);
  files_.write_key("other.pem", stranger);
  other.tls->key_file = path("other.pem");  // another certificate's
  refused(other, path("other.pem"));
  files_.write_key("locked.pem", stranger, EVP_aes_256_cbc());
  other.tls->key_file = path("locked.pem");
  refused(other, path("locked.pem"));
}

}  // namespace
}  // namespace strata
