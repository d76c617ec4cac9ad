// Each block computes a row. One pass computes maximum and sum: each thread keeps its own maximum
// and the sum of exponentials relative to it; when two are combined, the sum with the smaller
// maximum is scaled down. Exponentials are not stored, because 16 bits would round them: the
// gradient computes them again from logits that are still in the cache.
//
// Losses are fp64, so that their sum depends only on their order.
#include "strata/device/simt/simt_math.h"
#include "strata/device/simt/simt_vector.h"
#include "strata/device/step_scalars.h"
#include "strata/nn/kernels/cuda_kernels.h"

namespace strata::cuda {
namespace {

using kernels::CrossEntropy;
using kernels::LogitColumns;
using kernels::SoftmaxSums;
using simt::Block;
using simt::kWide;
using simt::load;
using simt::Whole;
using simt::zeros;

constexpr int kRowThreads = 512;
constexpr int kBlockThreads = 256;

STRATA_DEVICE float minus_infinity() { return simt::bits_as<float>(0xFF800000u); }

/// The sum of exp(z - top).
struct Exponentials {
  float top, sum;

  STRATA_DEVICE void add(float more, float its_top) {
    const float higher = fmaxf(top, its_top);
    sum = scaled(sum, top, higher) + scaled(more, its_top, higher);
    top = higher;
  }
  // 0 for a top of -infinity, which is an empty sum.
  STRATA_DEVICE static float scaled(float sum, float top, float higher) {
    return top == higher ? sum : sum * simt::exp(top - higher);
  }
};

struct Together {
  STRATA_DEVICE Exponentials operator()(Exponentials a, Exponentials b) const {
    a.add(b.sum, b.top);
    return a;
  }
};

/// The values for a row's loss: top, and the sums relative to it.
struct RowSums {
  float top, exponentials, at_target, shifted;
};

// Column of a target's class, or -1 if another rank has it.
STRATA_DEVICE std::int64_t column_of(std::int64_t target, const LogitColumns& at) {
  const std::int64_t column = target - at.first;
  return column >= 0 && column < at.valid ? column : -1;
}

/// Calls body(vector, column, left) for the thread's vectors of logits[0, columns). Several are
/// read before the first is used, because the compiler may not read ahead if a body writes or
/// branches.
template <typename T, typename Body>
STRATA_DEVICE void each_vector_of_row(int thread, const T* logits, std::int64_t columns,
                                      Body body) {
  constexpr int kAhead = 4;
  constexpr std::int64_t kStep = kRowThreads * kWide<T>;
  std::int64_t column = std::int64_t{thread} * kWide<T>;
  if (simt::lie_whole(logits)) {
    for (; column + (kAhead - 1) * kStep + kWide<T> <= columns; column += kAhead * kStep) {
      simt::Packed<T, kWide<T>> read[kAhead];
      STRATA_UNROLL
      for (int k = 0; k < kAhead; ++k)
        read[k] = simt::fetch<kWide<T>>(logits + column + k * kStep, Whole(columns - column));
      STRATA_UNROLL
      for (int k = 0; k < kAhead; ++k)
        body(simt::widened(read[k]), column + k * kStep, Whole(columns - column));
    }
  }
  for (; column < columns; column += kStep)
    body(load<kWide<T>>(logits + column, columns - column), column, columns - column);
}

template <typename T>
STRATA_DEVICE RowSums sums_of_row(Block<kRowThreads>& block, const T* logits, std::int64_t target,
                                  const CrossEntropy& what) {
  auto found = block.per_thread(Exponentials{minus_infinity(), 0});
  auto plain = block.per_thread(0.0f);
  block.each([&](int thread) {
    Exponentials mine{minus_infinity(), 0};
    float sum = 0;
    each_vector_of_row(thread, logits, what.at.valid, [&](const auto& z, std::int64_t, auto left) {
      float top = z[0];
      STRATA_UNROLL
      for (int k = 1; k < kWide<T>; ++k)
        if (k < left) top = fmaxf(top, z[k]);
      if (top > mine.top) mine.add(0, top);
      STRATA_UNROLL
      for (int k = 0; k < kWide<T>; ++k) {
        if (k >= left) continue;
        mine.sum += simt::exp(z[k] - mine.top);
        sum += z[k];
      }
    });
    found[thread] = mine;
    plain[thread] = sum;
  });
  const Exponentials all = block.reduce(found, Together());
  const std::int64_t column = column_of(target, what.at);
  RowSums sums{all.top, all.sum, 0, 0};
  if (column >= 0) sums.at_target = simt::widen(logits[column]);
  if (what.smoothing > 0 && what.at.valid > 0)
    sums.shifted = block.sum(plain) - static_cast<float>(what.at.valid) * all.top;
  return sums;
}

STRATA_DEVICE double loss_of(const RowSums& sums, const CrossEntropy& what) {
  const double log_sum = log(static_cast<double>(sums.exponentials));
  const double loss = log_sum + sums.top - sums.at_target;
  if (!(what.smoothing > 0)) return loss;
  const double mean = log_sum - double{sums.shifted} / static_cast<double>(what.at.classes);
  return (1 - double{what.smoothing}) * loss + double{what.smoothing} * mean;
}

// Replaces logits by their gradient.
template <typename T>
STRATA_DEVICE void gradient_of_row(Block<kRowThreads>& block, T* logits, std::int64_t target,
                                   float top, float exponentials, const CrossEntropy& what,
                                   const StepScalars* scalars) {
  const bool ignored = target == what.ignored;
  const std::int64_t valid = ignored ? 0 : what.at.valid;
  const std::int64_t own = ignored ? -1 : column_of(target, what.at);
  const float scale = scalars
                          ? static_cast<float>(scalars->loss_scale * scalars->inverse_valid_tokens)
                          : what.scale;
  const float factor = scale / exponentials;
  const float everywhere = scale * what.smoothing / static_cast<float>(what.at.classes);
  const float at_target = scale * (1 - what.smoothing);
  block.each([&](int thread) {
    each_vector_of_row(
        thread, logits, what.at.columns, [&](auto z, std::int64_t column, auto left) {
          // In 32 bits, because the loop computes it for every logit.
          const auto count = static_cast<int>(simt::least(valid - column, kWide<T>));
          const int own_here =
              own >= column && own - column < kWide<T> ? static_cast<int>(own - column) : -1;
          STRATA_UNROLL
          for (int k = 0; k < kWide<T>; ++k) {
            float gradient = simt::exp(z[k] - top) * factor - everywhere;
            if (k == own_here) gradient -= at_target;
            z[k] = k < count ? gradient : 0.0f;
          }
          simt::store(z, logits + column, left);
        });
  });
}

template <typename T>
struct SumRows {
  static constexpr int kThreads = kRowThreads;
  const T* logits;
  const std::int64_t* targets;
  CrossEntropy what;
  float* top;
  SoftmaxSums to;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const std::int64_t row = block.index(), target = targets[row];
    RowSums sums{0, 0, 0, 0};
    if (target != what.ignored)
      sums = sums_of_row(block, logits + row * what.at.columns, target, what);
    block.each([&](int thread) {
      if (thread != 0) return;
      top[row] = sums.top;
      to.exponentials[row] = sums.exponentials;
      to.at_target[row] = sums.at_target;
      if (what.smoothing > 0) to.shifted[row] = sums.shifted;
    });
  }
};

struct Rescale {
  static constexpr int kThreads = kBlockThreads;
  const float* own_top;
  const float* top;
  CrossEntropy what;
  SoftmaxSums sums;
  std::int64_t rows;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    block.each([&](int thread) {
      const std::int64_t row = block.index() * kThreads + thread;
      if (row >= rows || what.at.valid == 0) return;
      sums.exponentials[row] = Exponentials::scaled(sums.exponentials[row], own_top[row], top[row]);
      if (what.smoothing > 0)
        sums.shifted[row] += static_cast<float>(what.at.valid) * (own_top[row] - top[row]);
    });
  }
};

struct Losses {
  static constexpr int kThreads = kBlockThreads;
  const float* top;
  const std::int64_t* targets;
  CrossEntropy what;
  SoftmaxSums sums;
  double* losses;
  std::int64_t rows;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    block.each([&](int thread) {
      const std::int64_t row = block.index() * kThreads + thread;
      if (row >= rows) return;
      const float shifted = what.smoothing > 0 ? sums.shifted[row] : 0.0f;
      const RowSums of{top[row], sums.exponentials[row], sums.at_target[row], shifted};
      losses[row] = targets[row] == what.ignored ? 0.0 : loss_of(of, what);
    });
  }
};

template <typename T>
struct Gradient {
  static constexpr int kThreads = kRowThreads;
  T* logits;
  const float* top;
  const std::int64_t* targets;
  CrossEntropy what;
  SoftmaxSums sums;
  const StepScalars* scalars;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const std::int64_t row = block.index();
    gradient_of_row(block, logits + row * what.at.columns, targets[row], top[row],
                    sums.exponentials[row], what, scalars);
  }
};

template <typename T>
struct Alone {
  static constexpr int kThreads = kRowThreads;
  T* logits;
  const std::int64_t* targets;
  CrossEntropy what;
  double* losses;
  bool gradient;
  const StepScalars* scalars;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    const std::int64_t row = block.index(), target = targets[row];
    T* of_row = logits + row * what.at.columns;
    RowSums sums{0, 0, 0, 0};
    double loss = 0;
    if (target != what.ignored) {
      sums = sums_of_row<T>(block, of_row, target, what);
      loss = loss_of(sums, what);
    }
    block.each([&](int thread) {
      if (thread == 0) losses[row] = loss;
    });
    // The phase above also keeps the target's logit unchanged until every thread has read it.
    if (gradient)
      gradient_of_row(block, of_row, target, sums.top, sums.exponentials, what, scalars);
  }
};

struct Logistic {
  static constexpr int kThreads = kBlockThreads;
  const float* logits;
  const float* labels;
  double* losses;
  double scale;
  float* gradient;
  std::int64_t n;
  const StepScalars* scalars;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index() * kThreads + thread;
      if (i >= n) return;
      const bool counts = !(labels[i] < 0);
      const double logit = logits[i], label = labels[i], decay = ::exp(-fabs(logit));
      const double loss = (logit > 0 ? logit : 0.0) - logit * label + log1p(decay);
      losses[i] = counts ? loss : 0.0;
      if (!gradient) return;
      const double times = scalars ? scalars->loss_scale * scalars->inverse_valid_tokens : scale;
      const double probability = (logit >= 0 ? 1.0 : decay) / (1.0 + decay);
      gradient[i] = counts ? static_cast<float>(times * (probability - label)) : 0.0f;
    });
  }
};

struct AddSum {
  static constexpr int kThreads = 1024;
  const double* values;
  double* sum;
  std::int64_t n;

  STRATA_DEVICE void operator()(Block<kThreads>& block) const {
    auto partial = block.per_thread(0.0);
    block.each([&](int thread) {
      double total = 0;
      STRATA_UNROLL_4
      for (std::int64_t i = thread; i < n; i += kThreads) total += values[i];
      partial[thread] = total;
    });
    const double total = block.sum(partial);
    block.each([&](int thread) {
      if (thread == 0) *sum += total;
    });
  }
};

}  // namespace

void softmax_sums(Element element, const void* logits, const std::int64_t* targets,
                  const CrossEntropy& what, float* top, SoftmaxSums sums, std::int64_t rows,
                  void* stream) {
  STRATA_WITH_ELEMENT(
      element, simt::launch(SumRows<T>{static_cast<const T*>(logits), targets, what, top, sums},
                            rows, stream));
}

void rescale_sums(const float* own_top, const float* top, const CrossEntropy& what,
                  SoftmaxSums sums, std::int64_t rows, void* stream) {
  simt::launch(Rescale{own_top, top, what, sums, rows}, simt::blocks_for(rows, kBlockThreads),
               stream);
}

void cross_entropy(const float* top, const std::int64_t* targets, const CrossEntropy& what,
                   SoftmaxSums sums, double* losses, std::int64_t rows, void* stream) {
  simt::launch(Losses{top, targets, what, sums, losses, rows},
               simt::blocks_for(rows, kBlockThreads), stream);
}

void cross_entropy_gradient(Element element, void* logits, const float* top,
                            const std::int64_t* targets, const CrossEntropy& what, SoftmaxSums sums,
                            std::int64_t rows, const StepScalars* scalars, void* stream) {
  STRATA_WITH_ELEMENT(
      element, simt::launch(Gradient<T>{static_cast<T*>(logits), top, targets, what, sums, scalars},
                            rows, stream));
}

void cross_entropy_alone(Element element, void* logits, const std::int64_t* targets,
                         const CrossEntropy& what, double* losses, std::int64_t rows, bool gradient,
                         const StepScalars* scalars, void* stream) {
  STRATA_WITH_ELEMENT(element, simt::launch(Alone<T>{static_cast<T*>(logits), targets, what, losses,
                                                     gradient, scalars},
                                            rows, stream));
}

void logistic_loss(const float* logits, const float* labels, double* losses, double scale,
                   float* gradient, std::int64_t n, const StepScalars* scalars, void* stream) {
  simt::launch(Logistic{logits, labels, losses, scale, gradient, n, scalars},
               simt::blocks_for(n, kBlockThreads), stream);
}

void add_sum(const double* values, double* sum, std::int64_t n, void* stream) {
  simt::launch(AddSum{values, sum, n}, 1, stream);
}

}  // namespace strata::cuda
