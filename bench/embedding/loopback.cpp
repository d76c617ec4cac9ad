// Reads and updates rows of a server that runs on this machine. Fills its rows, checks that updates
// are Adagrad's, then runs the work that each line of its input names and prints a line of JSON for
// it. Or moves as many bytes through a plain socket to a server of its own, as a lower bound of the
// cost.
//
//   read      distinct ids of batches, one request under way
//   update    the same ids, one update under way
//   numbers   reads and updates of whole samples whose ids are row numbers
//   hashes    the same, with 64-bit hashes as ids
//
// Seconds are the processor's, of this process and of the server, and of the server alone.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "strata/base/enum_names.h"
#include "strata/base/philox.h"
#include "strata/rowserver/feature_file.h"
#include "strata/rowserver/wire/remote_servers.h"

namespace {

using namespace strata;
using Ids = std::vector<std::uint64_t>;
using IdsByFeature = std::vector<Ids>;  // distinct and ascending

constexpr std::size_t kFill = 16384;
constexpr float kGradient = 0.25f;
constexpr double kLearningRate = 0.05, kFirstSquares = 0.01;
constexpr std::size_t kSamples = 1024, kSampleSteps = 8;
const std::string kUnix = "unix:";

std::uint64_t id_of(std::uint64_t number) { return mix_key(number, 99); }

// One row server of either program.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual void read(const IdsByFeature& ids, std::vector<float>& values) = 0;
  /// `gradients`: as many as the most rows have. Returns when the server has applied it.
  virtual void update(const IdsByFeature& ids, const std::vector<float>& gradients) = 0;
  /// False: bytes go and come, and that is all.
  virtual bool has_rows() const { return true; }
  /// How much the second update of a row with kGradient changes it.
  virtual double second_change() const = 0;
};

class StrataServer : public Contestant {
 public:
  StrataServer(const std::string& address, const std::string& features, WirePrecision precision) {
    RemoteServersOptions options;
    options.addresses = {address};
    options.features = read_features(features);
    options.wire = {.rows = precision, .gradients = precision};
    width_ = static_cast<std::size_t>(options.features.front().width);
    servers_ = make_remote_servers(options);
  }
  void read(const IdsByFeature& ids, std::vector<float>& values) override {
    std::vector<FeatureRead> reads;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (!ids[i].empty())
        reads.push_back({.feature = static_cast<int>(i), .version = version_, .ids = ids[i]});
    values.clear();
    std::vector<FeatureRows> rows = servers_->read(std::move(reads))->wait();
    if (rows.size() == 1) {
      values = std::move(rows.front().values);
      return;
    }
    for (const FeatureRows& of : rows)
      values.insert(values.end(), of.values.begin(), of.values.end());
  }
  void update(const IdsByFeature& ids, const std::vector<float>& gradients) override {
    std::vector<FeatureRows> parts;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i].empty()) continue;
      const auto end = gradients.begin() + static_cast<std::ptrdiff_t>(ids[i].size() * width_);
      parts.push_back({.feature = static_cast<int>(i),
                       .version = version_,
                       .ids = ids[i],
                       .values = {gradients.begin(), end}});
    }
    servers_->update(++version_, std::move(parts), 1.0);
    servers_->await(version_);
  }
  double second_change() const override {
    return kLearningRate * kGradient / std::sqrt(kFirstSquares + 2 * kGradient * kGradient);
  }

 private:
  std::size_t width_;
  std::unique_ptr<RowServers> servers_;
  std::int64_t version_ = 0;
};

// A socket of "127.0.0.1:PORT" or "unix:PATH": listens there, or connects.
int open_socket(const std::string& address, bool listens) {
  const bool local = address.starts_with(kUnix);
  const int opened = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
  sockaddr_in inet{};
  sockaddr_un path{};
  sockaddr* name = reinterpret_cast<sockaddr*>(&inet);
  socklen_t size = sizeof(inet);
  if (local) {
    path.sun_family = AF_UNIX;
    std::strncpy(path.sun_path, address.c_str() + kUnix.size(), sizeof(path.sun_path) - 1);
    name = reinterpret_cast<sockaddr*>(&path);
    size = sizeof(path);
  } else {
    const int on = 1;
    setsockopt(opened, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    inet.sin_family = AF_INET;
    inet.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  const bool done = listens ? bind(opened, name, size) == 0 && listen(opened, 1) == 0
                            : connect(opened, name, size) == 0;
  if (!done) throw std::runtime_error("no process listens at " + address);
  return opened;
}

void send_all(int to, const char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t sent = send(to, bytes, count, MSG_NOSIGNAL);
    if (sent <= 0) throw std::runtime_error("a server has gone");
    bytes += sent, count -= static_cast<std::size_t>(sent);
  }
}

bool receive_all(int from, char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t got = recv(from, bytes, count, 0);
    if (got <= 0) return false;
    bytes += got, count -= static_cast<std::size_t>(got);
  }
  return true;
}

// What a plain socket is asked: so many bytes follow, so many are the answer.
struct PlainHead {
  std::uint64_t sent, answered;
};

// The server of plain sockets: for one client, until it goes.
void serve_plain(const std::string& address) {
  const int listening = open_socket(address, true);
  const int client = accept(listening, nullptr, nullptr);
  std::vector<char> in, out;
  PlainHead head{};
  while (receive_all(client, reinterpret_cast<char*>(&head), sizeof(head))) {
    in.resize(std::max<std::size_t>(in.size(), head.sent));
    out.resize(std::max<std::size_t>(out.size(), head.answered));
    if (!receive_all(client, in.data(), head.sent)) break;
    send_all(client, out.data(), head.answered);
  }
  close(client);
  close(listening);
}

// The bytes of ids, rows and gradients, and nothing done with them.
class PlainSocket : public Contestant {
 public:
  PlainSocket(const std::string& address, std::size_t width)
      : width_(width), socket_(open_socket(address, false)) {}
  ~PlainSocket() override { close(socket_); }
  PlainSocket(const PlainSocket&) = delete;
  PlainSocket& operator=(const PlainSocket&) = delete;

  bool has_rows() const override { return false; }
  void read(const IdsByFeature& ids, std::vector<float>& values) override {
    values.resize(ids.front().size() * width_);
    call(ids.front().data(), 8 * ids.front().size(), nullptr, 0, values.data(), 4 * values.size());
  }
  void update(const IdsByFeature& ids, const std::vector<float>& gradients) override {
    char answer = 0;
    call(ids.front().data(), 8 * ids.front().size(), gradients.data(),
         4 * width_ * ids.front().size(), &answer, 1);
  }
  double second_change() const override { return 0; }

 private:
  void call(const void* first, std::size_t first_bytes, const void* second,
            std::size_t second_bytes, void* answer, std::size_t answer_bytes) {
    const PlainHead head{first_bytes + second_bytes, answer_bytes};
    send_all(socket_, reinterpret_cast<const char*>(&head), sizeof(head));
    send_all(socket_, static_cast<const char*>(first), first_bytes);
    send_all(socket_, static_cast<const char*>(second), second_bytes);
    if (!receive_all(socket_, static_cast<char*>(answer), answer_bytes))
      throw std::runtime_error("the plain server has gone");
  }

  std::size_t width_;
  int socket_;
};

// PERSIA's server over its HTTP: bodies are little-endian numbers, lists with their length before
// them. A socket and its bytes, nothing more: its own client does no less.
class PersiaServer : public Contestant {
 public:
  PersiaServer(const std::string& address, std::size_t width)
      : width_(width), socket_(open_socket(address, false)) {
    // First values uniform in +-0.01, everyone admitted, no bound of weights.
    put<std::uint32_t>(1), put(-0.01f), put(0.01f), put(1.0f), put(10.0f), put<std::uint8_t>(0);
    call("configure");
    // Adagrad: learning rate, decay, momentum of squares, first squares, epsilon, a square an
    // element.
    put<std::uint32_t>(2), put(static_cast<float>(kLearningRate)), put(0.0f), put(1.0f);
    put(static_cast<float>(kFirstSquares)), put(1e-10f), put<std::uint8_t>(0);
    call("register_optimizer");
  }
  ~PersiaServer() override { close(socket_); }
  PersiaServer(const PersiaServer&) = delete;
  PersiaServer& operator=(const PersiaServer&) = delete;

  void read(const IdsByFeature& ids, std::vector<float>& values) override {
    put(static_cast<std::uint32_t>(count(ids)));
    for (std::size_t feature = 0; feature < ids.size(); ++feature)
      for (const std::uint64_t id : ids[feature]) put(sign_of(feature, id)), put(width_);
    put<std::uint8_t>(1);  // training
    call("lookup_mixed");
    const std::size_t bytes = count(ids) * width_ * sizeof(float);
    if (answer_.size() != 5 + bytes) throw std::runtime_error("PERSIA answers with other rows");
    values.resize(count(ids) * width_);
    std::memcpy(values.data(), answer_.data() + 5, bytes);
  }
  void update(const IdsByFeature& ids, const std::vector<float>& gradients) override {
    put(static_cast<std::uint32_t>(count(ids)));
    for (std::size_t feature = 0; feature < ids.size(); ++feature)
      for (const std::uint64_t id : ids[feature]) put(sign_of(feature, id));
    put(static_cast<std::uint32_t>(count(ids) * width_));
    for (const Ids& of : ids) append(gradients.data(), of.size() * width_ * sizeof(float));
    call("update_gradient_mixed");
  }
  // It adds the square after it has used the sum.
  double second_change() const override {
    return kLearningRate * kGradient / std::sqrt(kFirstSquares + kGradient * kGradient);
  }

 private:
  static std::size_t count(const IdsByFeature& ids) {
    std::size_t sum = 0;
    for (const Ids& of : ids) sum += of.size();
    return sum;
  }
  // Its worker puts the feature's number into the high bits.
  static std::uint64_t sign_of(std::size_t feature, std::uint64_t id) {
    return (id & ((std::uint64_t{1} << 56) - 1)) | (feature + 1) << 56;
  }
  void append(const void* bytes, std::size_t count) {
    const auto* from = static_cast<const char*>(bytes);
    body_.insert(body_.end(), from, from + count);
  }
  template <typename Number>
  void put(Number number) {
    append(&number, sizeof(number));
  }
  // Sends the body and waits; the answer begins with 1 where there is no error.
  void call(const std::string& method) {
    const std::string head =
        "POST /" + method +
        "_web_api HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: " + std::to_string(body_.size()) +
        "\r\n\r\n";
    send_all(socket_, head.data(), head.size());
    send_all(socket_, body_.data(), body_.size());
    body_.clear();
    std::string text;
    std::size_t end = std::string::npos;
    while (end == std::string::npos) {
      char buffer[4096];
      const ssize_t got = recv(socket_, buffer, sizeof(buffer), 0);
      if (got <= 0) throw std::runtime_error("PERSIA's server has gone");
      text.append(buffer, static_cast<std::size_t>(got));
      end = text.find("\r\n\r\n");
    }
    const std::size_t length = text.find("content-length: ");
    if (!text.starts_with("HTTP/1.1 200") || length > end)
      throw std::runtime_error("PERSIA's server refuses " + method + ": " + text);
    answer_.resize(std::stoul(text.substr(length + 16)));
    std::size_t have = text.size() - end - 4;
    std::memcpy(answer_.data(), text.data() + end + 4, have);
    if (!receive_all(socket_, answer_.data() + have, answer_.size() - have))
      throw std::runtime_error("PERSIA's server has gone");
    if (answer_.empty() || answer_[0] != 1) throw std::runtime_error("PERSIA fails: " + method);
  }

  std::size_t width_;
  int socket_;
  std::vector<char> body_, answer_;
};

class Bench {
 public:
  Bench(std::unique_ptr<Contestant> contestant, pid_t server, std::size_t rows, std::size_t width,
        const std::string& batches, std::size_t batch, double seconds)
      : contestant_(std::move(contestant)), rows_(rows), width_(width), seconds_(seconds) {
    if (clock_getcpuclockid(server, &server_clock_) != 0)
      throw std::runtime_error("there is no process " + std::to_string(server));
    if (contestant_->has_rows()) fill();
    load_batches(batches, batch);
  }

  std::string run(const std::string& what) {
    if (what == "numbers" || what == "hashes") return run_samples(what == "hashes");
    std::size_t done = 0;
    double seconds = 0;
    const double begin = processor_seconds(), server_begin = seconds_of(server_clock_);
    do {
      const IdsByFeature& ids = batches_[turn_++ % batches_.size()];
      if (what == "read")
        contestant_->read(ids, values_);
      else
        contestant_->update(ids, gradients_);
      done += ids.front().size();
      seconds = processor_seconds() - begin;
    } while (seconds < seconds_);
    const double server_seconds = seconds_of(server_clock_) - server_begin;
    char line[100];
    std::snprintf(line, sizeof(line), "{\"per_second\": %.0f, \"per_server_second\": %.0f}",
                  static_cast<double>(done) / seconds, static_cast<double>(done) / server_seconds);
    return line;
  }

 private:
  static double seconds_of(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double processor_seconds() const {
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID) + seconds_of(server_clock_);
  }

  // Every row is read, updated, and checked at its second update.
  void fill() {
    std::vector<std::uint32_t> order(rows_);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
    gradients_.assign(kFill * width_, kGradient);
    std::vector<float> after;
    for (std::size_t begin = 0; begin < rows_; begin += kFill) {
      IdsByFeature ids(1);
      for (std::size_t i = begin; i < std::min(rows_, begin + kFill); ++i)
        ids[0].push_back(id_of(order[i]));
      std::sort(ids[0].begin(), ids[0].end());
      contestant_->read(ids, values_);
      contestant_->update(ids, gradients_);
      contestant_->read(ids, values_);
      contestant_->update(ids, gradients_);
      contestant_->read(ids, after);
      for (std::size_t i = 0; i < after.size(); ++i) {
        const double change = values_[i] - after[i];
        if (std::abs(change - contestant_->second_change()) > 0.01 * contestant_->second_change())
          throw std::runtime_error("an update changes a row by " + std::to_string(change));
      }
    }
  }

  void load_batches(const std::string& path, std::size_t batch) {
    std::ifstream file(path, std::ios::binary);
    Ids ids(batch);
    std::size_t most = kFill;
    while (file.read(reinterpret_cast<char*>(ids.data()),
                     static_cast<std::streamsize>(batch * sizeof(std::uint64_t)))) {
      Ids distinct;
      for (const std::uint64_t number : ids) distinct.push_back(id_of(number));
      std::sort(distinct.begin(), distinct.end());
      distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
      most = std::max(most, distinct.size());
      batches_.push_back({std::move(distinct)});
    }
    if (batches_.empty()) throw std::runtime_error("no batches in " + path);
    gradients_.assign(most * width_, kGradient);
  }

  // Samples of 26 features, an id each, half of them distinct within the batch.
  std::string run_samples(bool hashed) {
    std::mt19937_64 random(7);
    for (std::size_t step = 0; step < kSampleSteps; ++step) {
      IdsByFeature ids(26);
      for (Ids& of : ids)
        while (of.size() < kSamples / 2) {
          const std::uint64_t number = random() % rows_;
          of.push_back(hashed ? id_of(number) : number);
          if (of.size() < kSamples / 2) continue;
          std::sort(of.begin(), of.end());
          of.erase(std::unique(of.begin(), of.end()), of.end());
        }
      contestant_->read(ids, values_);
      contestant_->update(ids, gradients_);
    }
    return "{\"samples\": " + std::to_string(kSamples * kSampleSteps) + "}";
  }

  std::unique_ptr<Contestant> contestant_;
  std::size_t rows_, width_, turn_ = 0;
  double seconds_;
  clockid_t server_clock_{};
  std::vector<IdsByFeature> batches_;
  std::vector<float> values_, gradients_;
};

WirePrecision precision_named(const std::string& name) {
  if (const auto precision = value_named<WirePrecision>(name)) return *precision;
  throw std::runtime_error("no precision " + name);
}

}  // namespace

int main(int argc, char** argv) {
  const bool serves = argc == 3 && std::string(argv[1]) == "plain-server";
  if (argc != 10 && !serves) {
    std::cerr
        << "loopback_bench strata:PRECISION|persia|plain ADDRESS SERVER_PID ROWS WIDTH BATCHES "
           "BATCH SECONDS FEATURES, or plain-server ADDRESS\n";
    return 2;
  }
  try {
    const std::string kind = argv[1], address = argv[2];
    if (serves) return serve_plain(address), 0;
    const std::size_t width = std::stoull(argv[5]);
    std::unique_ptr<Contestant> contestant;
    if (kind == "persia")
      contestant = std::make_unique<PersiaServer>(address, width);
    else if (kind == "plain")
      contestant = std::make_unique<PlainSocket>(address, width);
    else
      contestant = std::make_unique<StrataServer>(address, argv[9],
                                                  precision_named(kind.substr(kind.find(':') + 1)));
    Bench bench(std::move(contestant), std::stoi(argv[3]), std::stoull(argv[4]), width, argv[6],
                std::stoull(argv[7]), std::stod(argv[8]));
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);) std::cout << bench.run(line) << std::endl;
  } catch (const std::exception& error) {
    std::cerr << "loopback_bench: " << error.what() << '\n';
    return 1;
  }
}
