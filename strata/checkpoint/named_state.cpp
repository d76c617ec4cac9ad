// Each owner exports the range of bytes that its runs span and, before it, the positions of the
// runs in it. The assembling rank reads one state at a time, so it holds no more than what it
// writes. It counts the filled elements, which detects gaps and overlaps.
#include "strata/checkpoint/named_state.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "strata/base/errors.h"
#include "strata/comm/group.h"
#include "strata/device/account.h"
#include "strata/device/device.h"
#include "strata/device/pinned.h"
#include "strata/optim/master_weights.h"

namespace strata {
namespace {

constexpr const char* kAssembleOperation = "checkpoint.assemble";
constexpr std::int32_t kRunsTag = -1;  // states use tags from 0 on

MessageTag tag_of(std::int64_t state) { return {.value = static_cast<std::int32_t>(state)}; }

// The elements of `local` that the runs span, as one buffer to export.
at::Tensor spanned(const NamedState& state) {
  const Run &first = state.runs.front(), &last = state.runs.back();
  return MasterWeights{state.local, state.remainder}
      .narrow(first.local, last.local + last.numel - first.local)
      .whole();
}

// For each state of rank `writer`: the number of runs, then the runs relative to spanned().
at::Tensor describe_runs(const std::vector<NamedState>& states, const std::vector<int>& writers,
                         int writer) {
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (writers[i] != writer) continue;
    numbers.push_back(static_cast<std::int64_t>(states[i].runs.size()));
    for (const Run& run : states[i].runs)
      numbers.insert(numbers.end(),
                     {run.local - states[i].runs.front().local, run.global, run.numel});
  }
  at::Tensor described =
      at::empty({static_cast<std::int64_t>(numbers.size())}, host_options(at::kLong));
  std::copy(numbers.begin(), numbers.end(), described.mutable_data_ptr<std::int64_t>());
  return described;
}

// Reads what describe_runs() wrote, state by state.
class RunReader {
 public:
  explicit RunReader(at::Tensor described)
      : described_(std::move(described)), next_(described_.const_data_ptr<std::int64_t>()) {}

  std::vector<Run> take() {
    std::vector<Run> runs(static_cast<std::size_t>(*next_++));
    for (Run& run : runs) {
      run = {next_[0], next_[1], next_[2]};
      next_ += 3;
    }
    return runs;
  }

 private:
  at::Tensor described_;
  const std::int64_t* next_;
};

// Assembles one state and counts its elements.
class WholeState {
 public:
  explicit WholeState(const NamedState& state) : state_(state) {}

  void add(const at::Tensor& local, const std::vector<Run>& runs) {
    if (!whole_.defined()) whole_ = at::empty(state_.shape, host_options(local.scalar_type()));
    STRATA_CHECK(local.is_contiguous() && local.scalar_type() == whole_.scalar_type(),
                 kAssembleOperation);
    const auto size = static_cast<std::int64_t>(local.element_size());
    const auto* from = static_cast<const std::byte*>(local.const_data_ptr());
    auto* to = static_cast<std::byte*>(whole_.mutable_data_ptr());
    for (const Run& run : runs) {
      STRATA_CHECK(run.local >= 0 && run.local + run.numel <= local.numel() && run.global >= 0 &&
                       run.global + run.numel <= whole_.numel(),
                   kAssembleOperation);
      std::memcpy(to + run.global * size, from + run.local * size,
                  static_cast<std::size_t>(run.numel * size));
      filled_ += run.numel;
    }
  }

  bool is_all(const std::vector<Run>& runs) const {
    return runs.size() == 1 && runs[0].global == 0 && runs[0].numel == state_.numel();
  }

  // Uses `local` itself, if it holds the whole state and is not shared.
  void become(const at::Tensor& local) {
    whole_ = local.view(state_.shape);
    filled_ += local.numel();
  }

  at::Tensor take() {
    if (filled_ != state_.numel()) {
      throw InternalError({.operation = kAssembleOperation,
                           .where = state_.name,
                           .what = "the ranks together don't own every element once",
                           .expected = std::to_string(state_.numel()),
                           .got = std::to_string(filled_),
                           .fix = ""});
    }
    return whole_.defined() ? whole_ : at::empty(state_.shape, host_options(at::kFloat));
  }

 private:
  const NamedState& state_;
  at::Tensor whole_;
  std::int64_t filled_ = 0;
};

// Exports to every other rank the runs of the states that it assembles.
void export_runs(Group& group, const std::vector<NamedState>& states,
                 const std::vector<int>& writers) {
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank())
      group.export_buffer(peer, tag_of(kRunsTag), describe_runs(states, writers, peer));
  for (std::size_t i = 0; i < states.size(); ++i)
    if (writers[i] != group.rank() && !states[i].runs.empty())
      group.export_buffer(writers[i], tag_of(static_cast<std::int64_t>(i)), spanned(states[i]));
}

}  // namespace

std::vector<int> assemblers(const std::vector<NamedState>& states, int ranks) {
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks), 0);
  std::vector<int> writers;
  for (const NamedState& state : states) {
    const int count = std::max(1, state.replicas);
    STRATA_CHECK_EQ(ranks % count, 0, "checkpoint.assemblers");
    const auto first = load.begin() + state.replica * (ranks / count);
    const auto least = std::min_element(first, first + ranks / count);
    *least += state.numel();
    writers.push_back(static_cast<int>(least - load.begin()));
  }
  return writers;
}

std::vector<at::Tensor> assemble(Group& group, const std::vector<NamedState>& states) {
  return assemble(group, states, assemblers(states, group.size()));
}

std::vector<at::Tensor> assemble(Group& group, const std::vector<NamedState>& states,
                                 const std::vector<int>& writers) {
  export_runs(group, states, writers);
  std::vector<RunReader> theirs;
  for (int peer = 0; peer < group.size(); ++peer)
    theirs.emplace_back(peer == group.rank() ? describe_runs(states, writers, peer)
                                             : group.import_buffer(peer, tag_of(kRunsTag)));
  std::vector<at::Tensor> assembled(states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (writers[i] != group.rank()) continue;
    WholeState whole(states[i]);
    for (int peer = 0; peer < group.size(); ++peer) {
      const std::vector<Run> runs = theirs[static_cast<std::size_t>(peer)].take();
      if (runs.empty()) continue;
      if (peer == group.rank() && states[i].is_copy && whole.is_all(runs)) {
        whole.become(spanned(states[i]));
        continue;
      }
      whole.add(peer == group.rank()
                    ? spanned(states[i])
                    : group.import_buffer(peer, tag_of(static_cast<std::int64_t>(i))),
                runs);
    }
    assembled[i] = whole.take();
  }
  group.barrier();  // all ranks have read the exported bytes
  return assembled;
}

// The copies run on the compute stream, so later updates cannot overtake them. All states share one
// pinned buffer, because each allocation costs driver calls.
HostStates copy_to_host(const std::vector<NamedState>& states, const Stream& compute) {
  constexpr std::int64_t kAlignment = 64;
  const auto type = compute.device().options(at::kByte).device().type();
  const auto is_device = [&](const at::Tensor& x) {
    return compute.queue() != nullptr && x.device().type() == type;
  };
  const auto room = [](const at::Tensor& x) {
    return (static_cast<std::int64_t>(x.nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::int64_t bytes = 0;
  for (const NamedState& state : states)
    for (const at::Tensor& x : {state.local, state.remainder})
      if (x.defined() && is_device(x)) bytes += room(x);
  const at::Tensor pinned =
      bytes > 0 ? pinned_bytes(bytes, compute.device(), current_memory_account()) : at::Tensor();
  std::int64_t next = 0;
  const auto copy = [&](const at::Tensor& x) {
    if (!x.defined()) return x;
    STRATA_CHECK(x.is_contiguous(), "checkpoint.copy_to_host");
    if (!is_device(x) || x.numel() == 0) return x.cpu().clone();
    const auto size = static_cast<std::int64_t>(x.nbytes());
    at::Tensor host = pinned.narrow(0, next, size).view(x.scalar_type());
    next += room(x);
    compute.queue()->copy(host.data_ptr(), x.const_data_ptr(), x.nbytes());
    return host;
  };
  HostStates copies;
  for (const NamedState& state : states) {
    NamedState& made = copies.states.emplace_back(state);
    made.local = copy(state.local);
    made.remainder = copy(state.remainder);
    made.pin = {};
    made.is_copy = true;
  }
  copies.copied = compute.record();
  return copies;
}

std::int64_t NamedState::numel() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

at::Tensor NamedState::values() const { return MasterWeights{local, remainder}.whole(); }

void NamedState::assign(const at::Tensor& values) const {
  MasterWeights{local, remainder}.assign(values);
}

at::Tensor NamedState::tensor() const {
  const bool whole = runs.size() == 1 && runs[0].global == 0 && runs[0].numel == numel();
  if (!whole) {
    throw InternalError({.operation = "checkpoint.named_state",
                         .where = name,
                         .what = "this rank holds only a part of the state",
                         .expected = "one run of " + std::to_string(numel()) + " elements",
                         .got = std::to_string(runs.size()) + " runs",
                         .fix = ""});
  }
  return values().narrow(0, runs[0].local, numel()).view(shape);
}

void assemble(const std::vector<NamedState>& states, std::map<std::string, at::Tensor>& whole) {
  for (const NamedState& state : states) {
    const auto [entry, fresh] = whole.try_emplace(state.name);
    if (fresh) entry->second = at::zeros(state.shape, host_options(at::kFloat));
    const at::Tensor flat = entry->second.view(-1);
    if (state.runs.empty()) continue;
    const at::Tensor values = state.values();
    for (const Run& run : state.runs)
      flat.narrow(0, run.global, run.numel).copy_(values.narrow(0, run.local, run.numel));
  }
}

void assign_whole(const NamedState& state, const at::Tensor& whole) {
  if (state.runs.empty()) return;
  const at::Tensor flat = whole.reshape({-1}), values = state.values();
  for (const Run& run : state.runs)
    values.narrow(0, run.local, run.numel).copy_(flat.narrow(0, run.global, run.numel));
  state.assign(values);
}

}  // namespace strata
