// Compares means in one bit an element with plain loops over whole vectors.
#include "strata/comm/one_bit_mean.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <thread>
#include <vector>

#include "strata/comm/rank_cases_test.h"
#include "strata/comm/ranks.h"
#include "strata/comm/sign_bits.h"
#include "strata/device/thread_pool.h"
#include "strata/transport/faulty_transport.h"

namespace strata {
namespace {

using Vector = std::vector<float>;

Vector vector_of(const at::Tensor& x) {
  return {x.const_data_ptr<float>(), x.const_data_ptr<float>() + x.numel()};
}

// The oracle: compresses [begin, end) of x and leaves the error there.
Vector compressed(Vector& x, std::int64_t begin, std::int64_t end) {
  double sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += std::fabs(x[static_cast<std::size_t>(i)]);
  const auto scale = static_cast<float>(end > begin ? sum / static_cast<double>(end - begin) : 0);
  Vector sent;
  for (std::int64_t i = begin; i < end; ++i) {
    float& value = x[static_cast<std::size_t>(i)];
    sent.push_back(value < 0 ? -scale : scale);
    value -= sent.back();
  }
  return sent;
}

// All ranks' state in one place.
struct Oracle {
  std::vector<Vector> worker_errors;
  Vector server_errors;

  Vector mean(const std::vector<Vector>& values, const Shards& parts) {
    Vector mean(server_errors.size());
    for (std::size_t rank = 0; rank < values.size(); ++rank)
      for (std::size_t i = 0; i < mean.size(); ++i) worker_errors[rank][i] += values[rank][i];
    for (const FlatRange& part : parts) {
      for (Vector& errors : worker_errors) {
        const Vector sent = compressed(errors, part.begin, part.end);
        for (std::size_t i = 0; i < sent.size(); ++i)
          server_errors[static_cast<std::size_t>(part.begin) + i] +=
              sent[i] / static_cast<float>(values.size());
      }
      const Vector sent = compressed(server_errors, part.begin, part.end);
      std::copy(sent.begin(), sent.end(), mean.begin() + part.begin);
    }
    return mean;
  }
};

void expect_close(const at::Tensor& got, const Vector& expected) {
  const Vector values = vector_of(got);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], 1e-5f * (1 + std::fabs(expected[i]))) << i;
}

at::Tensor values_of(int rank, int step, std::int64_t numel) {
  return example_values(rank + 7 * step, numel) * 1e-3f;
}

// Several steps, because errors are carried.
void expect_means_of_oracle(Group& group, const Shards& parts) {
  const std::int64_t numel = parts.back().end;
  const auto ranks = static_cast<std::size_t>(group.size());
  Oracle oracle{std::vector<Vector>(ranks, Vector(static_cast<std::size_t>(numel))),
                Vector(static_cast<std::size_t>(numel))};
  const auto alone = single_rank();
  const FlatRange own = parts[static_cast<std::size_t>(group.rank())];
  const at::Tensor worker = at::zeros({numel}), server = at::zeros({own.size()});
  for (int step = 0; step < 4; ++step) {
    std::vector<Vector> all;
    for (int rank = 0; rank < group.size(); ++rank)
      all.push_back(vector_of(values_of(rank, step, numel)));
    const Vector expected = oracle.mean(all, parts);
    worker.add_(values_of(group.rank(), step, numel));
    OneBitMean sum = OneBitMean::start(group, *alone, worker, parts);
    sum.add_average(server);
    sum.send_average(server);
    const at::Tensor mean = at::zeros({numel});
    sum.finish(mean);
    expect_close(mean, expected);
    expect_close(worker, oracle.worker_errors[static_cast<std::size_t>(group.rank())]);
    expect_close(server, Vector(oracle.server_errors.begin() + own.begin,
                                oracle.server_errors.begin() + own.end));
  }
}

TEST(OneBitMean, IsThatOfPlainLoops) {
  for (const int ranks : {1, 2, 3, 5})
    for (const std::int64_t numel : {16, 1000, 40000}) {
      Shards parts;
      const std::int64_t size = (numel / 8 + ranks - 1) / ranks * 8;
      for (int rank = 0; rank < ranks; ++rank)
        parts.push_back({std::min(rank * size, numel),
                         rank + 1 == ranks ? numel : std::min((rank + 1) * size, numel)});
      run_thread_ranks({.ranks = ranks},
                       [&](Group& group, MemoryAccount&) { expect_means_of_oracle(group, parts); });
    }
}

TEST(OneBitMean, IsTheSameBetweenProcesses) {
  FaultyNetwork network(2,
                        {.seed = 3, .most_delay = std::chrono::milliseconds(1), .reorder = true});
  run_on_two_processes(network, 2, [&](Group& group, MemoryAccount&) {
    expect_means_of_oracle(group, {{0, 2048}, {2048, 5000}});
  });
}

// What is omitted is sent later: the sums of means and of values differ by the errors.
TEST(OneBitMean, OmitsNothingForEver) {
  constexpr std::int64_t kNumel = 4096;
  run_thread_ranks({.ranks = 4}, [](Group& group, MemoryAccount&) {
    const auto alone = single_rank();
    const Shards parts = cut({0, kNumel}, 4);
    const at::Tensor worker = at::zeros({kNumel}), server = at::zeros({kNumel / 4});
    at::Tensor sent = at::zeros({kNumel}), made = at::zeros({kNumel});
    for (int step = 0; step < 30; ++step) {
      worker.add_(values_of(group.rank(), step, kNumel));
      for (int rank = 0; rank < 4; ++rank) made.add_(values_of(rank, step, kNumel), 0.25);
      OneBitMean sum = OneBitMean::start(group, *alone, worker, parts);
      sum.add_average(server);
      sum.send_average(server);
      const at::Tensor mean = at::zeros({kNumel});
      sum.finish(mean);
      sent.add_(mean);
    }
    at::Tensor errors = worker.clone();
    all_reduce_sum(group, errors);
    errors.mul_(0.25);
    errors.add_(all_gather(group, server, 0));
    const at::Tensor missing = (made - sent - errors).abs();
    EXPECT_LT(missing.max().item<float>(), 1e-3f * made.abs().max().item<float>());
  });
}

TEST(OneBitMean, SendsSixteenTimesFewerBytesThanFp16) {
  constexpr std::int64_t kNumel = 1 << 20;
  for (const int ranks : {2, 4}) {
    run_thread_ranks({.ranks = ranks}, [&](Group& group, MemoryAccount&) {
      const auto alone = single_rank();
      const Shards parts = cut({0, kNumel}, ranks);
      const at::Tensor worker = example_values(group.rank(), kNumel);
      OneBitMean sum = OneBitMean::start(group, *alone, worker, parts);
      const at::Tensor server = at::zeros({kNumel / ranks});
      sum.add_average(server);
      sum.send_average(server);
      sum.finish(worker);
      const std::int64_t fp16 = 2 * 2 * kNumel * (ranks - 1) / ranks;
      const std::int64_t scales = 2 * 4 * (ranks - 1);
      EXPECT_EQ(group.sent_bytes(), fp16 / 16 + scales);
    });
  }
}

// Tensor-parallel ranks hold other slices and some equal weights, which must stay equal.
TEST(OneBitMean, SlicesShareOneScale) {
  run_thread_ranks({.ranks = 4}, [](Group& world, MemoryAccount&) {
    MeshGroups groups = make_mesh_groups(world, {{Axis::kData, 2}, {Axis::kTensor, 2}});
    const int replica = groups[Axis::kData].rank(), slice = groups[Axis::kTensor].rank();
    const at::Tensor worker = example_values(replica, 4096);  // the first half is equal
    worker.narrow(0, 2048, 2048).copy_(example_values(10 + 2 * replica + slice, 2048));
    const at::Tensor server = at::zeros({2048}), mean = at::zeros({4096});
    OneBitMean sum = OneBitMean::start(groups[Axis::kData], groups[Axis::kTensor], worker,
                                       {{0, 2048}, {2048, 4096}});
    sum.add_average(server);
    sum.send_average(server);
    sum.finish(mean);
    const at::Tensor both = all_gather(groups[Axis::kTensor], mean.unsqueeze(0), 0);
    EXPECT_TRUE(at::equal(both[0].narrow(0, 0, 2048), both[1].narrow(0, 0, 2048)));
    EXPECT_FLOAT_EQ(both[0][4000].abs().item<float>(), both[1][4000].abs().item<float>());
  });
}

TEST(SignBits, DependOnNoThreads) {
  const at::Tensor x = example_values(1, 100003);
  const auto run = [&](int threads) {
    ThreadPool pool(threads);
    const ThreadPoolScope scope(pool);
    const at::Tensor left = x.clone(), sum = example_values(2, x.numel());
    const auto of = [](const at::Tensor& t) {
      return std::span<float>(t.data_ptr<float>(), static_cast<std::size_t>(t.numel()));
    };
    const auto scale = static_cast<float>(sum_of_magnitudes(of(left)) / 100003);
    std::vector<std::uint8_t> bits(static_cast<std::size_t>(sign_bytes(x.numel())));
    take_signs(of(left), scale, bits.data());
    add_signs(bits.data(), scale, of(sum));
    return std::pair(left, sum);
  };
  const auto [one_left, one_sum] = run(1);
  const auto [left, sum] = run(4);
  EXPECT_TRUE(at::equal(left, one_left));
  EXPECT_TRUE(at::equal(sum, one_sum));
}

TEST(SignBits, OfZeroArePositive) {
  std::vector<float> x = {0, -0.0f, -1, 2, 0, 0, 0, 0, -3};
  std::uint8_t bits[2] = {};
  take_signs(x, 1.5f, bits);
  EXPECT_EQ(bits[0], 0b100);
  EXPECT_EQ(bits[1], 0b1);
  EXPECT_EQ(x, (std::vector<float>{-1.5, -1.5, 0.5, 0.5, -1.5, -1.5, -1.5, -1.5, -1.5}));
  set_to_signs(bits, 2, x);
  EXPECT_EQ(x, (std::vector<float>{2, 2, -2, 2, 2, 2, 2, 2, -2}));
}

}  // namespace
}  // namespace strata
