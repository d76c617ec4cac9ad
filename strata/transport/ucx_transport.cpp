// One thread makes all calls into UCX; other threads put messages into a queue and wake it. It
// sleeps on UCX's descriptor instead of spinning, because ranks compute on the same cores.
//
// The library is loaded on demand instead of linked: its constructors read the environment, install
// signal handlers and replace malloc's system calls, which would otherwise affect every run of the
// program.
//
// Large messages overtake small ones in UCX, so a last message waits until all others to its peer
// are complete. Every message carries its sender's number in its header; receives are matched by
// nothing else.
#include "strata/transport/transport.h"

#include <dlfcn.h>
#include <poll.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strata/base/error_source.h"
#include "strata/transport/join.h"
#include "strata/transport/peer_memory.h"

namespace strata {
namespace {

// larger messages are read from the sender's memory by the network
constexpr std::uint64_t kRendezvousBytes = 1 << 15;
constexpr int kSleep = 1000;        // milliseconds, if no event wakes the thread
constexpr unsigned kMessageId = 0;  // id of UCX's active messages

constexpr ErrorSource kUcxErrors{"transport.ucx",
                                 "look at UCX_LOG_LEVEL=info, or set mesh.transport=sockets"};

// clang-format off: it does not settle on a form of this list.
#define STRATA_UCX_FUNCTIONS(X) \
  X(ucp_config_read) \
  X(ucp_config_modify) \
  X(ucp_config_release) \
  X(ucp_init_version) \
  X(ucp_cleanup) \
  X(ucp_worker_create) \
  X(ucp_worker_destroy) \
  X(ucp_worker_get_address) \
  X(ucp_worker_release_address) \
  X(ucp_worker_get_efd) \
  X(ucp_worker_arm) \
  X(ucp_worker_signal) \
  X(ucp_worker_progress) \
  X(ucp_worker_set_am_recv_handler) \
  X(ucp_ep_create) \
  X(ucp_ep_close_nbx) \
  X(ucp_ep_flush_nbx) \
  X(ucp_am_send_nbx) \
  X(ucp_am_recv_data_nbx) \
  X(ucp_am_data_release) \
  X(ucp_request_free) \
  X(ucp_request_check_status) \
  X(ucs_status_string)
// clang-format on

struct Ucx {
#define STRATA_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  STRATA_UCX_FUNCTIONS(STRATA_UCX_MEMBER)
#undef STRATA_UCX_MEMBER
};

struct LoadedUcx {
  Ucx functions;
  std::string failure;  // empty: none
};

const LoadedUcx& loaded_ucx() {
  static const LoadedUcx loaded = []() -> LoadedUcx {
    ::setenv("UCX_ERROR_SIGNALS", "", 0);
    ::setenv("UCX_MEM_EVENTS", "n", 0);
    void* const library = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) return {.functions = {}, .failure = ::dlerror()};
    Ucx it;
#define STRATA_UCX_LOAD(name)                                             \
  it.name = reinterpret_cast<decltype(&::name)>(::dlsym(library, #name)); \
  if (!it.name) return {.functions = {}, .failure = "libucp.so.0 lacks " #name};
    STRATA_UCX_FUNCTIONS(STRATA_UCX_LOAD)
#undef STRATA_UCX_LOAD
    return {.functions = it, .failure = ""};
  }();
  return loaded;
}

const Ucx& ucx() { return loaded_ucx().functions; }

void require(ucs_status_t status, const std::string& what) {
  if (status != UCS_OK)
    throw kUcxErrors.system("mesh.transport", what, "a working UCX",
                            ucx().ucs_status_string(status));
}

struct UcxHeader {
  std::int32_t from = 0;
  MessageHeader header;
};

class UcxTransport final : public Transport {
 public:
  explicit UcxTransport(Bootstrap& bootstrap)
      : process_(bootstrap.process()), peers_(static_cast<std::size_t>(bootstrap.processes())) {
    create_worker(names_loopback(bootstrap.own_address()));
    connect(bootstrap.all_gather(address()));
    same_host_ = find_same_host_peers(bootstrap);
  }
  ~UcxTransport() override {
    abort();
    ucx().ucp_cleanup(context_);
  }

  int process() const override { return process_; }
  int processes() const override { return static_cast<int>(peers_.size()); }

  void start(TransportReceiver& receiver) override {
    receiver_ = &receiver;
    thread_ = std::thread([this] { run(); });
  }

  void send(int peer, OutgoingMessage message) override {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    queued_.emplace_back(peer, std::move(message));
    ucx().ucp_worker_signal(worker_);
  }

  bool reads_in_place(int peer) const override { return same_host_[peer] != 0; }
  bool read(int peer, std::uint64_t address, std::size_t count, void* to) override {
    return read_memory(same_host_[peer], address, count, to);
  }

  void abort() override {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_.exchange(true)) return;
      ucx().ucp_worker_signal(worker_);
    }
    if (thread_.joinable()) thread_.join();
    close_all();
    ucx().ucp_worker_destroy(worker_);  // the peers detect only now that this process has ended
  }

 private:
  struct Peer {
    UcxTransport* transport = nullptr;
    int process = 0;
    ucp_ep_h endpoint = nullptr;
    std::deque<OutgoingMessage> waiting;  // the last message and nothing after it
    int pending = 0;                      // sends that are not complete
    bool lost = false, reported = false, last_sent = false, flushed = false;
  };
  struct PendingSend {  // kept until it is complete
    Peer* peer;
    OutgoingMessage message;
    UcxHeader wire;
  };
  struct Arrival {
    int from;
    MessageHeader header;
    void* data;
    std::size_t bytes;
    bool rendezvous, kept;
  };

  // Receives a message's bytes into the caller's buffer, without a copy if all are received at
  // once.
  class Payload final : public IncomingPayload {
   public:
    Payload(UcxTransport& transport, Arrival& arrival) : transport_(transport), arrival_(arrival) {}
    void receive(void* to, std::size_t count) override {
      STRATA_CHECK(done_ + count <= arrival_.bytes, "transport.receive");
      if (count == arrival_.bytes && arrival_.rendezvous) {
        transport_.receive_rendezvous(arrival_, to);
      } else {
        if (arrival_.rendezvous && done_ == 0) {
          copy_.resize(arrival_.bytes);
          transport_.receive_rendezvous(arrival_, copy_.data());
        }
        const char* from = copy_.empty() ? static_cast<const char*>(arrival_.data) : copy_.data();
        std::memcpy(to, from + done_, count);
      }
      done_ += count;
    }

   private:
    UcxTransport& transport_;
    Arrival& arrival_;
    std::vector<char> copy_;
    std::size_t done_ = 0;
  };

  void create_worker(bool loopback) {
    ucp_config_t* config = nullptr;
    require(ucx().ucp_config_read(nullptr, nullptr, &config), "UCX refuses its configuration");
    if (loopback && !std::getenv("UCX_NET_DEVICES"))
      ucx().ucp_config_modify(config, "NET_DEVICES", "lo");
    const ucp_params_t params{.field_mask = UCP_PARAM_FIELD_FEATURES,
                              .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    const ucs_status_t made =
        ucx().ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    ucx().ucp_config_release(config);
    require(made, "UCX finds no network");
    const ucp_worker_params_t worker{.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                     .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    require(ucx().ucp_worker_create(context_, &worker, &worker_), "UCX finds no network");
    require(ucx().ucp_worker_get_efd(worker_, &descriptor_), "UCX cannot wait for events");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessageId;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
    handler.cb = &UcxTransport::on_message;
    handler.arg = this;
    require(ucx().ucp_worker_set_am_recv_handler(worker_, &handler), "UCX takes no messages");
  }

  std::string address() const {
    ucp_address_t* own = nullptr;
    std::size_t size = 0;
    require(ucx().ucp_worker_get_address(worker_, &own, &size), "UCX has no address");
    std::string text(reinterpret_cast<const char*>(own), size);
    ucx().ucp_worker_release_address(worker_, own);
    return text;
  }

  void connect(const std::vector<std::string>& addresses) {
    for (int i = 0; i < processes(); ++i) {
      Peer& peer = peers_[i];
      peer.transport = this;
      peer.process = i;
      if (i == process_) continue;
      ucp_ep_params_t params{};
      params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                          UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
      params.address = reinterpret_cast<const ucp_address_t*>(addresses[i].data());
      params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      params.err_handler = {.cb = &UcxTransport::on_error, .arg = &peer};
      require(ucx().ucp_ep_create(worker_, &params, &peer.endpoint),
              "UCX cannot reach process " + std::to_string(i));
    }
  }

  static void on_error(void* peer, ucp_ep_h, ucs_status_t) {
    static_cast<Peer*>(peer)->lost = true;
  }

  static ucs_status_t on_message(void* self, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes, const ucp_am_recv_param_t* param) {
    auto& it = *static_cast<UcxTransport*>(self);
    UcxHeader wire;
    if (header_bytes != sizeof wire) return UCS_OK;
    std::memcpy(&wire, header, sizeof wire);
    if (wire.from < 0 || wire.from >= it.processes() || wire.from == it.process_) return UCS_OK;
    const bool rendezvous = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV, kept = bytes > 0;
    it.arrivals_.push_back({wire.from, wire.header, data, bytes, rendezvous, kept});
    return kept ? UCS_INPROGRESS : UCS_OK;
  }

  static ucp_request_param_t request_param() {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    return param;
  }

  void run() {
    while (!aborted_) {
      start_sends();
      while (ucx().ucp_worker_progress(worker_) != 0) {
      }
      if (deliver() || tell()) continue;
      sleep();
    }
  }

  void sleep() const {
    if (ucx().ucp_worker_arm(worker_) != UCS_OK) return;  // an event arrived meanwhile
    pollfd waiting{.fd = descriptor_, .events = POLLIN};
    ::poll(&waiting, 1, kSleep);
  }

  void start_sends() {
    std::deque<std::pair<int, OutgoingMessage>> queued;
    {
      const std::lock_guard lock(mutex_);
      queued.swap(queued_);
    }
    for (auto& [process, message] : queued) {
      Peer& peer = peers_[process];
      if (peer.lost || peer.last_sent || !peer.waiting.empty()) continue;
      if (message.last) {
        peer.waiting.push_back(std::move(message));
      } else {
        start_send(peer, std::move(message));
      }
    }
  }

  void start_send(Peer& peer, OutgoingMessage message) {
    auto send = std::make_unique<PendingSend>(PendingSend{&peer, std::move(message), {}});
    send->wire.from = process_;
    send->wire.header = send->message.header;
    ucp_request_param_t param = request_param();
    param.op_attr_mask |=
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = send->message.payload_bytes >= kRendezvousBytes ? UCP_AM_SEND_FLAG_RNDV
                                                                  : UCP_AM_SEND_FLAG_EAGER;
    param.cb.send = [](void* request, ucs_status_t, void* data) {
      const std::unique_ptr<PendingSend> done(static_cast<PendingSend*>(data));
      --done->peer->pending;
      ucx().ucp_request_free(request);
    };
    param.user_data = send.get();
    ++peer.pending;
    const ucs_status_ptr_t request =
        ucx().ucp_am_send_nbx(peer.endpoint, kMessageId, &send->wire, sizeof send->wire,
                              send->message.payload, send->message.payload_bytes, &param);
    if (UCS_PTR_IS_ERR(request)) peer.lost = true;
    if (UCS_PTR_IS_PTR(request)) {
      send.release();  // the callback owns it now
    } else {
      --peer.pending;
    }
  }

  bool deliver() {
    bool any = false;
    for (; !arrivals_.empty() && !aborted_; any = true) {
      Arrival arrival = arrivals_.front();
      arrivals_.pop_front();
      Payload payload(*this, arrival);
      try {
        receiver_->arrived(arrival.from, arrival.header, payload);
      } catch (const TransportBroken&) {
        peers_[arrival.from].lost = true;
      }
      if (arrival.kept) ucx().ucp_am_data_release(worker_, arrival.data);
    }
    return any;
  }

  void receive_rendezvous(Arrival& arrival, void* to) {
    const ucp_request_param_t param = request_param();
    arrival.kept = false;  // UCX owns its descriptor again
    const ucs_status_ptr_t request =
        ucx().ucp_am_recv_data_nbx(worker_, arrival.data, to, arrival.bytes, &param);
    if (!complete(request, peers_[arrival.from])) throw TransportBroken("UCX");
  }

  // Waits as long as the peer is connected: UCX ends the requests of a lost peer, and of an
  // endpoint that is closed by force, with an error.
  bool complete(ucs_status_ptr_t request, Peer& peer) {
    if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_STATUS(request) == UCS_OK;
    ucs_status_t status = UCS_INPROGRESS;
    while ((status = ucx().ucp_request_check_status(request)) == UCS_INPROGRESS) {
      if (aborted_ && peer.endpoint) close(peer);
      if (ucx().ucp_worker_progress(worker_) == 0) sleep();
    }
    ucx().ucp_request_free(request);
    return status == UCS_OK;
  }

  void close(Peer& peer) {
    peer.lost = true;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    complete(ucx().ucp_ep_close_nbx(std::exchange(peer.endpoint, nullptr), &param), peer);
  }

  // Reports last messages, flushes and losses that are due. A flush makes progress, so a peer's
  // messages and its loss may be detected in one round; the messages are delivered first.
  bool tell() {
    bool any = false;
    for (Peer& peer : peers_) {
      if (!arrivals_.empty()) return true;
      if (peer.lost && !peer.reported) {
        peer.reported = any = true;
        receiver_->lost(peer.process);
      }
      if (peer.lost || peer.pending > 0) continue;
      if (!peer.waiting.empty()) {
        flush(peer);
        OutgoingMessage last = std::move(peer.waiting.front());
        peer.waiting.clear();
        peer.last_sent = any = true;
        start_send(peer, std::move(last));
      } else if (peer.last_sent && !peer.flushed) {
        peer.flushed = any = true;
        if (flush(peer)) receiver_->flushed(peer.process);
      }
    }
    return any;
  }

  bool flush(Peer& peer) {
    const ucp_request_param_t param{};
    const bool done = complete(ucx().ucp_ep_flush_nbx(peer.endpoint, &param), peer);
    if (!done) peer.lost = true;
    return done;
  }

  void close_all() {
    for (const Arrival& arrival : arrivals_)
      if (arrival.kept) ucx().ucp_am_data_release(worker_, arrival.data);
    arrivals_.clear();
    for (Peer& peer : peers_)
      if (peer.endpoint) close(peer);
    // Pending requests end with an error some rounds later.
    constexpr int kRounds = 1000;
    const auto pending = [&] {
      return std::any_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.pending > 0; });
    };
    for (int i = 0; i < kRounds && pending(); ++i) ucx().ucp_worker_progress(worker_);
  }

  int process_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::vector<pid_t> same_host_;
  TransportReceiver* receiver_ = nullptr;
  std::mutex mutex_;
  std::deque<std::pair<int, OutgoingMessage>> queued_;
  // Only the thread uses the rest.
  std::vector<Peer> peers_;
  std::deque<Arrival> arrivals_;
  std::atomic<bool> aborted_ = false;
  std::thread thread_;
};

}  // namespace

std::optional<MissingUcx> missing_ucx() {
  const std::string& failure = loaded_ucx().failure;
  if (failure.empty()) return std::nullopt;
  return MissingUcx{.reason = "UCX cannot be loaded: " + failure, .fix = "apt-get install libucx0"};
}

std::unique_ptr<Transport> connect_ucx(Bootstrap& bootstrap) {
  if (const std::string& failure = loaded_ucx().failure; !failure.empty())
    throw kUcxErrors.system("mesh.transport", "UCX cannot be loaded", "a working UCX", failure);
  return std::make_unique<UcxTransport>(bootstrap);
}

}  // namespace strata
