#include "strata/grammar/state_sets.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "strata/base/error_source.h"

namespace strata {
namespace {

constexpr ErrorSource kFollowErrors{"grammar.follow", "write a grammar that is less ambiguous"};

}  // namespace

StateSets::Lists::Lists() : known_(16, Hash{this}, Equal{this}) {}

std::size_t StateSets::Lists::Hash::operator()(std::uint32_t list) const {
  std::uint64_t hash = 0x9E3779B97F4A7C15U;
  for (const Way& way : lists->at(list))
    for (const std::uint32_t part : {way.frame, way.state, way.count}) {
      hash = (hash ^ part) * 0xFF51AFD7ED558CCDU;
      hash ^= hash >> 32;
    }
  return hash;
}

bool StateSets::Lists::Equal::operator()(std::uint32_t a, std::uint32_t b) const {
  return std::ranges::equal(lists->at(a), lists->at(b));
}

// Appends the list, and takes it back if it is known.
std::uint32_t StateSets::Lists::add(std::vector<Way>& ways) {
  std::ranges::sort(ways);
  ways.erase(std::ranges::unique(ways).begin(), ways.end());
  const std::size_t before = ways_.size();
  ways_.insert(ways_.end(), ways.begin(), ways.end());
  begins_.push_back(ways_.size());
  const auto [found, is_new] = known_.insert(static_cast<std::uint32_t>(size() - 1));
  if (!is_new) {
    ways_.resize(before);
    begins_.pop_back();
  }
  return *found;
}

StateSets::StateSets(std::shared_ptr<const Automaton> automaton)
    : automaton_(std::move(automaton)),
      classes_(automaton_->class_bytes.size()),
      calls_(automaton_->starts.size()) {
  clear();
}

void StateSets::begin() {
  work_ = 0;
  max_work_ = kMaxWork;
  if (broken_) clear();
}

StateSets::State StateSets::keep(State state) {
  if (bytes() <= kMaxBytes / 2) return state;
  const auto before = std::move(frames_);
  std::vector<Way> ways(ways_->at(state).begin(), ways_->at(state).end());
  std::set<std::uint32_t> needed;
  std::vector<Way> todo = ways;
  while (!todo.empty()) {
    const std::uint32_t frame = todo.back().frame;
    todo.pop_back();
    if (!needed.insert(frame).second) continue;
    const std::span<const Way> callers = before->at(frame);
    todo.insert(todo.end(), callers.begin(), callers.end());
  }
  clear();
  std::map<std::uint32_t, std::uint32_t> renamed = {{0, 0}};  // the frame of the text itself
  const auto rename = [&](std::vector<Way>& all) {
    for (Way& way : all) way.frame = renamed.at(way.frame);
  };
  for (const std::uint32_t frame : needed) {  // a frame's ways are in frames of lower number
    std::vector<Way> callers(before->at(frame).begin(), before->at(frame).end());
    rename(callers);
    renamed[frame] = frames_->add(callers);
  }
  rename(ways);
  found_ = std::move(ways);
  return add_found();
}

std::size_t StateSets::bytes() const {
  return frames_->bytes() + ways_->bytes() + steps_.size() * sizeof(State);
}

void StateSets::clear() {
  ++age_;
  broken_ = true;  // until the start is found
  frames_ = std::make_unique<Lists>();
  ways_ = std::make_unique<Lists>();
  steps_.clear();
  may_end_.clear();
  reached_ = {};
  called_ = {};
  for (auto& calls : calls_) calls.clear();
  close(false);  // kDead
  std::vector<Way> end = {{.frame = 0, .state = Automaton::kEnd}};
  frames_->add(end);
  add_call(automaton_->root, end.front());
  start_ = close(automaton_->root_may_be_empty);
  broken_ = false;
}

StateSets::State StateSets::find_step(State state, std::uint32_t byte_class) {
  const unsigned char byte = automaton_->class_bytes[byte_class];
  std::size_t tested = 0;
  for (const Way& way : ways_->at(state)) {
    const std::vector<Automaton::ByteEdge>& edges = automaton_->states[way.state].bytes;
    tested += edges.size();
    for (const Automaton::ByteEdge& edge : edges)
      if (automaton_->sets[edge.set][byte])
        reached_.push({.frame = way.frame, .state = edge.target});
  }
  work_ += tested / kEdgesOfAWay;
  const State target = close(false);
  steps_[state * classes_ + byte_class] = target;
  return target;
}

// Follows the ends and calls of rules from the ways that were reached, until bytes are needed.
StateSets::State StateSets::close(bool may_end) {
  found_.clear();
  if (may_end) found_.push_back({.frame = 0, .state = Automaton::kEnd});
  while (!reached_.empty()) {
    const Way way = reached_.top();
    while (!reached_.empty() && reached_.top() == way) reached_.pop();
    add_way(way, false);
  }
  while (!called_.empty()) {
    const std::uint32_t rule = called_.top();
    called_.pop();
    const std::uint32_t frame = frames_->add(calls_[rule]);
    calls_[rule].clear();
    add_way({.frame = frame, .state = automaton_->starts[rule]}, true);
  }
  return add_found();
}

StateSets::State StateSets::add_found() {
  const State state = ways_->add(found_);
  if (state == may_end_.size()) {
    may_end_.push_back(!found_.empty() && found_.front().state == Automaton::kEnd);
    steps_.resize(steps_.size() + classes_, state == kDead ? kDead : kUnknown);
  }
  check_limits();
  return state;
}

// `is_new`: the rule was called just now. That it may be empty is an edge of the caller.
void StateSets::add_way(const Way& way, bool is_new) {
  ++work_;
  check_limits();
  const Automaton::State& state = automaton_->states[way.state];
  if (way.state == Automaton::kEnd || !state.bytes.empty()) found_.push_back(way);
  if (way.state == Automaton::kEnd) return;
  bool ends = state.accepts;
  for (const Automaton::CallEdge& edge : state.calls)
    add_call(edge.rule, {.frame = way.frame, .state = edge.target});
  if (state.counter != Automaton::kNoCounter) {
    const Automaton::Counter& counter = automaton_->counters[state.counter];
    ends = way.count >= counter.least;
    const std::uint32_t next = counter.most == Grammar::kUnbounded
                                   ? std::min(way.count + 1, counter.least)
                                   : way.count + 1;
    if (way.count < counter.most)
      add_call(counter.rule, {.frame = way.frame, .state = way.state, .count = next});
  }
  if (!ends || is_new) return;
  for (const Way& resumed : frames_->at(way.frame)) reached_.push(resumed);
  work_ += frames_->at(way.frame).size();
}

void StateSets::add_call(std::uint32_t rule, const Way& resume) {
  std::vector<Way>& calls = calls_[rule];
  if (calls.empty()) called_.push(rule);
  if (only_ends(resume)) {
    const std::span<const Way> outer = frames_->at(resume.frame);
    calls.insert(calls.end(), outer.begin(), outer.end());
    work_ += outer.size();
  } else {
    calls.push_back(resume);
  }
  ++work_;
  check_limits();
}

bool StateSets::only_ends(const Way& way) const {
  const Automaton::State& state = automaton_->states[way.state];
  if (state.counter != Automaton::kNoCounter)
    return way.count >= automaton_->counters[state.counter].most;
  return state.bytes.empty() && state.calls.empty();
}

void StateSets::check_limits() {
  const std::size_t used = bytes();
  if (work_ <= max_work_ && used <= kMaxBytes) return;
  broken_ = true;
  const bool is_work = work_ > max_work_;
  throw kFollowErrors.user("", "the grammar allows too many ways to continue the text",
                           "at most " + std::to_string(is_work ? max_work_ : kMaxBytes) +
                               (is_work ? " of them a step" : " bytes of them"),
                           "more");
}

}  // namespace strata
