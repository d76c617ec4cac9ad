#include "strata/rowserver/wire/tls_probe.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "strata/base/errors.h"
#include "strata/transport/socket.h"

namespace strata {
namespace {

constexpr std::chrono::seconds kPatience{2};
constexpr std::chrono::milliseconds kBetween{50};
constexpr unsigned char kHttp2[] = {2, 'h', '2'};

using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
using Session = std::unique_ptr<SSL, decltype(&SSL_free)>;

HostAddress socket_address(const std::string& path) {
  HostAddress address;
  auto* unix_address = reinterpret_cast<sockaddr_un*>(&address.storage);
  unix_address->sun_family = AF_UNIX;
  std::memcpy(unix_address->sun_path, path.c_str(), path.size());
  address.length = sizeof *unix_address;
  return address;
}

Socket connect(const ServerAddress& address, Deadline deadline) {
  if (address.is_socket()) return connect_to({socket_address(address.path)}, deadline);
  try {
    return connect_to(resolve(address.host, address.port, deadline), deadline);
  } catch (const Error&) {
    return {};
  }
}

// Does not verify the server's certificate, because gRPC has done so.
Context context_of(const TlsFiles& tls) {
  Context context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  SSL_CTX_set_alpn_protos(context.get(), kHttp2, sizeof kHttp2);
  if (!tls.on()) return context;
  SSL_CTX_use_certificate_chain_file(context.get(), tls.certificate.c_str());
  SSL_CTX_use_PrivateKey_file(context.get(), tls.key.c_str(), SSL_FILETYPE_PEM);
  return context;
}

// One connection whose bytes pass through memory buffers, because OpenSSL's own writes would raise
// SIGPIPE.
class Handshake {
 public:
  Handshake(SSL_CTX* context, Socket socket, Deadline deadline)
      : session_(SSL_new(context), &SSL_free), socket_(std::move(socket)), deadline_(deadline) {
    SSL_set_bio(session_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(session_.get());
  }

  bool complete() {
    while (SSL_do_handshake(session_.get()) != 1) {
      const bool wants_more = SSL_want_read(session_.get());
      if (!send_all() || !wants_more || !receive_some()) return false;
    }
    return send_all();
  }
  /// Whether the server closed the connection without a byte after its part of the handshake.
  bool closed_silently() {
    if (BIO_ctrl_pending(SSL_get_rbio(session_.get())) > 0) return false;
    return !receive_some() && closed_;
  }

 private:
  bool send_all() {
    char bytes[4096];
    for (int count = 0; (count = BIO_read(SSL_get_wbio(session_.get()), bytes, sizeof bytes)) > 0;)
      if (!socket_.send(bytes, static_cast<std::size_t>(count), deadline_)) return false;
    return true;
  }
  // Also returns false at the deadline.
  bool receive_some() {
    pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, milliseconds_until(deadline_)) != 1) return false;
    char bytes[4096];
    const int count = socket_.receive_some(bytes, sizeof bytes);
    closed_ = count < 0;
    return count > 0 && BIO_write(SSL_get_rbio(session_.get()), bytes, count) == count;
  }

  Session session_;
  Socket socket_;
  Deadline deadline_;
  bool closed_ = false;
};

TlsObjection find_once(const ServerAddress& address, const TlsFiles& tls) {
  const Deadline deadline = std::chrono::steady_clock::now() + kPatience;
  Socket socket = connect(address, deadline);
  if (!socket) return TlsObjection::kNothing;
  ERR_clear_error();
  const Context context = context_of(tls);
  Handshake handshake(context.get(), std::move(socket), deadline);
  if (!handshake.complete()) return TlsObjection::kNothing;
  if (!tls.on()) return TlsObjection::kServerHasTls;
  return handshake.closed_silently() ? TlsObjection::kServerClosed : TlsObjection::kNothing;
}

}  // namespace

TlsObjection find_tls_objection(const ServerAddress& address, const TlsFiles& tls) {
  const TlsObjection first = find_once(address, tls);
  if (first == TlsObjection::kNothing) return first;
  std::this_thread::sleep_for(kBetween);
  return find_once(address, tls) == first ? first : TlsObjection::kNothing;
}

}  // namespace strata
