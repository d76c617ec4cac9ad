// Reads and updates rows of a server on loopback that somebody else has started. Fills its rows, checks that
// updates are Adagrad's, then does what lines of its input name and answers each with a line of JSON.
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

#include "strata/base/philox.h"
#include "strata/embed/feature_file.h"
#include "strata/embed/remote_servers.h"

namespace {

using namespace strata;
using Ids = std::vector<std::uint64_t>;
using IdsByFeature = std::vector<Ids>;  // distinct and ascending

constexpr std::size_t kFill = 16384;
constexpr float kGradient = 0.25f;
constexpr double kLearningRate = 0.05, kFirstSquares = 0.01;
constexpr std::size_t kSamples = 1024, kSampleSteps = 8;

std::uint64_t id_of(std::uint64_t number) { return mix_key(number, 99); }

// One server of rows, whoever made it.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual void read(const IdsByFeature& ids, std::vector<float>& values) = 0;
  /// `gradients`: as many as the most rows have. Returns when the server has applied it.
  virtual void update(const IdsByFeature& ids, const std::vector<float>& gradients) = 0;
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

// PERSIA's server over its HTTP: bodies are little-endian numbers, lists with their length before them.
// A socket and its bytes, nothing more: its own client does no less.
class PersiaServer : public Contestant {
 public:
  PersiaServer(int port, int width) : width_(static_cast<std::size_t>(width)) {
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
      throw std::runtime_error("PERSIA's server does not answer");
    // First values uniform in +-0.01, everyone admitted, no bound of weights.
    put<std::uint32_t>(1), put(-0.01f), put(0.01f), put(1.0f), put(10.0f), put<std::uint8_t>(0);
    call("configure");
    // Adagrad: learning rate, decay, momentum of squares, first squares, epsilon, a square an element.
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
  void send_all(const char* bytes, std::size_t count) {
    while (count > 0) {
      const ssize_t sent = send(socket_, bytes, count, MSG_NOSIGNAL);
      if (sent <= 0) throw std::runtime_error("PERSIA's server has gone");
      bytes += sent, count -= static_cast<std::size_t>(sent);
    }
  }
  // Sends the body and waits; the answer begins with 1 where there is no error.
  void call(const std::string& method) {
    const std::string head =
        "POST /" + method +
        "_web_api HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: " + std::to_string(body_.size()) +
        "\r\n\r\n";
    send_all(head.data(), head.size());
    send_all(body_.data(), body_.size());
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
    while (have < answer_.size()) {
      const ssize_t got = recv(socket_, answer_.data() + have, answer_.size() - have, 0);
      if (got <= 0) throw std::runtime_error("PERSIA's server has gone");
      have += static_cast<std::size_t>(got);
    }
    if (answer_.empty() || answer_[0] != 1) throw std::runtime_error("PERSIA fails: " + method);
  }

  std::size_t width_;
  int socket_ = -1;
  std::vector<char> body_, answer_;
};

class Bench {
 public:
  Bench(std::unique_ptr<Contestant> contestant, pid_t server, std::size_t rows, std::size_t width,
        const std::string& batches, std::size_t batch, double seconds)
      : contestant_(std::move(contestant)), rows_(rows), width_(width), seconds_(seconds) {
    if (clock_getcpuclockid(server, &server_clock_) != 0)
      throw std::runtime_error("there is no process " + std::to_string(server));
    fill();
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
  for (const auto precision : {WirePrecision::kFp32, WirePrecision::kFp16,
                               WirePrecision::kScaledFp16, WirePrecision::kScaledInt8})
    if (name == name_of(precision)) return precision;
  throw std::runtime_error("no precision " + name);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 10) {
    std::cerr << "loopback_bench strata:PRECISION|persia PORT SERVER_PID ROWS WIDTH BATCHES BATCH "
                 "SECONDS FEATURES\n";
    return 2;
  }
  try {
    const std::string kind = argv[1];
    std::unique_ptr<Contestant> contestant;
    if (kind == "persia")
      contestant = std::make_unique<PersiaServer>(std::stoi(argv[2]), std::stoi(argv[5]));
    else
      contestant = std::make_unique<StrataServer>("127.0.0.1:" + std::string(argv[2]), argv[9],
                                                  precision_named(kind.substr(kind.find(':') + 1)));
    Bench bench(std::move(contestant), std::stoi(argv[3]), std::stoull(argv[4]),
                std::stoull(argv[5]), argv[6], std::stoull(argv[7]), std::stod(argv[8]));
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);) std::cout << bench.run(line) << std::endl;
  } catch (const std::exception& error) {
    std::cerr << "loopback_bench: " << error.what() << '\n';
    return 1;
  }
}
