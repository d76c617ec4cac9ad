// Each rule becomes an automaton with empty steps (Thompson 1968), whose empty steps and dead ends
// are then removed. A call of a rule that may be empty is also an empty step.
#include "strata/grammar/automaton.h"

#include <algorithm>
#include <map>

#include "strata/base/error_source.h"
#include "strata/base/user_text.h"
#include "strata/grammar/derivation.h"

namespace strata {
namespace {

constexpr ErrorSource kCompileErrors{"grammar.compile", "ask for less structure"};

using Kind = Grammar::Kind;

// States and edges of one rule. State 0 is the start, state 1 the end.
struct RuleEdges {
  struct Letter {
    std::uint32_t from, value, to;
  };
  std::vector<Letter> bytes, calls;
  std::vector<std::vector<std::uint32_t>> empty_steps = std::vector<std::vector<std::uint32_t>>(2);

  std::uint32_t new_state() {
    empty_steps.emplace_back();
    return static_cast<std::uint32_t>(empty_steps.size() - 1);
  }
};

class Compiler {
 public:
  explicit Compiler(const Grammar& grammar)
      : grammar_(grammar),
        some_text_(derive(grammar, Derivation::kSomeText)),
        empty_text_(derive(grammar, Derivation::kEmptyText)) {
    result_.states.push_back({.accepts = true});  // kEnd
    result_.sets = grammar.sets();
  }

  Automaton compile(Grammar::Rule root) {
    number_of(static_cast<std::uint32_t>(root));
    const auto body = static_cast<std::uint32_t>(rule(0).body);
    if (!some_text_[body])
      throw kCompileErrors.user("", "no text matches the grammar", "a text that matches", "none",
                                "remove the contradiction");
    result_.root_may_be_empty = empty_text_[body];
    for (std::uint32_t number = 0; number < reached_.size(); ++number) compile_rule(number);
    order_rules();
    find_classes();
    return std::move(result_);
  }

 private:
  const Grammar::RuleBody& rule(std::uint32_t number) const {
    return grammar_.rules()[reached_[number]];
  }

  std::uint32_t number_of(std::uint32_t rule) {
    if (!grammar_.rules()[rule].defined)
      throw kCompileErrors.user(quote(grammar_.rules()[rule].name), "the rule is not defined",
                                "a definition", "none", "define the rule");
    const auto [found, is_new] =
        numbers_.emplace(rule, static_cast<std::uint32_t>(reached_.size()));
    if (is_new) reached_.push_back(rule);
    return found->second;
  }

  void compile_rule(std::uint32_t number) {
    const Grammar::RuleBody& body = rule(number);
    if (body.counts) return compile_counter(body);
    RuleEdges edges;
    build(edges, body.body, 0, 1);
    result_.starts.push_back(static_cast<std::uint32_t>(result_.states.size()));
    remove_empty_steps(edges);
  }

  void compile_counter(const Grammar::RuleBody& body) {
    const auto call = static_cast<std::uint32_t>(body.body);
    result_.starts.push_back(static_cast<std::uint32_t>(result_.states.size()));
    result_.states.push_back({.accepts = true});
    if (!some_text_[call]) return;
    result_.states.back().counter = static_cast<std::uint32_t>(result_.counters.size());
    result_.counters.push_back({.rule = number_of(grammar_.nodes()[call].first),
                                .least = empty_text_[call] ? 0 : body.least,
                                .most = body.most});
  }

  // Adds the texts of an expression as paths between two states.
  void build(RuleEdges& edges, Grammar::Expression expression, std::uint32_t from,
             std::uint32_t to) {
    const auto index = static_cast<std::uint32_t>(expression);
    if (!some_text_[index]) return;
    const Grammar::Node& node = grammar_.nodes()[index];
    switch (node.kind) {
      case Kind::kBytes:
        edges.bytes.push_back({from, node.first, to});
        break;
      case Kind::kCall:
        edges.calls.push_back({from, number_of(node.first), to});
        if (empty_text_[index]) edges.empty_steps[from].push_back(to);
        break;
      case Kind::kSequence:
        for (std::uint32_t i = 0; i < node.count; ++i) {
          const std::uint32_t next = i + 1 < node.count ? edges.new_state() : to;
          build(edges, grammar_.parts(node)[i], from, next);
          from = next;
        }
        if (node.count == 0) edges.empty_steps[from].push_back(to);
        break;
      case Kind::kChoice:
        for (const Grammar::Expression part : grammar_.parts(node)) build(edges, part, from, to);
        break;
      case Kind::kLoop: {
        const std::uint32_t begin = edges.new_state(), end = edges.new_state();
        edges.empty_steps[from].push_back(begin);
        build(edges, static_cast<Grammar::Expression>(node.first), begin, end);
        edges.empty_steps[end].push_back(begin);
        edges.empty_steps[end].push_back(to);
        break;
      }
    }
  }

  // Appends the states of a rule that are its start or follow a byte or a call.
  void remove_empty_steps(const RuleEdges& edges) {
    const std::size_t count = edges.empty_steps.size();
    constexpr std::uint32_t kNone = UINT32_MAX;
    std::vector<std::uint32_t> kept_as(count, kNone), kept = {0};
    kept_as[0] = 0;
    std::vector<std::vector<Automaton::ByteEdge>> bytes(count);
    std::vector<std::vector<Automaton::CallEdge>> calls(count);
    const auto keep = [&](std::uint32_t state) {
      if (kept_as[state] == kNone) {
        kept_as[state] = static_cast<std::uint32_t>(kept.size());
        kept.push_back(state);
      }
      return kept_as[state];
    };
    for (const auto& [from, value, to] : edges.bytes) bytes[from].push_back({value, keep(to)});
    for (const auto& [from, value, to] : edges.calls) calls[from].push_back({value, keep(to)});

    std::vector<Automaton::State> states(kept.size());
    std::vector<std::uint32_t> reached, seen(count, kNone);
    for (std::uint32_t i = 0; i < kept.size(); ++i) {
      Automaton::State& state = states[i];
      reached = {kept[i]};
      seen[kept[i]] = i;
      for (std::size_t at = 0; at < reached.size(); ++at) {
        const std::uint32_t from = reached[at];
        state.accepts |= from == 1;
        state.bytes.insert(state.bytes.end(), bytes[from].begin(), bytes[from].end());
        state.calls.insert(state.calls.end(), calls[from].begin(), calls[from].end());
        for (const std::uint32_t to : edges.empty_steps[from])
          if (std::exchange(seen[to], i) != i) reached.push_back(to);
      }
      edges_ += reached.size() + state.bytes.size() + state.calls.size();
      if (edges_ > Automaton::kMaxEdges)
        throw kCompileErrors.user("", "the grammar has too many edges",
                                  "at most " + std::to_string(Automaton::kMaxEdges), "more");
      std::ranges::sort(state.bytes);
      state.bytes.erase(std::ranges::unique(state.bytes).begin(), state.bytes.end());
      std::ranges::sort(state.calls);
      state.calls.erase(std::ranges::unique(state.calls).begin(), state.calls.end());
    }
    append_live(std::move(states));
  }

  // Leaves out edges to states from which the rule cannot end.
  void append_live(std::vector<Automaton::State> states) {
    std::vector<std::vector<std::uint32_t>> sources(states.size());
    std::vector<std::uint32_t> todo;
    std::vector<bool> live(states.size());
    for (std::uint32_t i = 0; i < states.size(); ++i) {
      for (const auto& edge : states[i].bytes) sources[edge.target].push_back(i);
      for (const auto& edge : states[i].calls) sources[edge.target].push_back(i);
      if (!states[i].accepts) continue;
      live[i] = true;
      todo.push_back(i);
    }
    while (!todo.empty()) {
      const std::uint32_t state = todo.back();
      todo.pop_back();
      for (const std::uint32_t source : sources[state]) {
        if (live[source]) continue;
        live[source] = true;
        todo.push_back(source);
      }
    }
    const auto base = static_cast<std::uint32_t>(result_.states.size());
    for (Automaton::State& state : states) {
      std::erase_if(state.bytes, [&](const auto& edge) { return !live[edge.target]; });
      std::erase_if(state.calls, [&](const auto& edge) { return !live[edge.target]; });
      for (auto& edge : state.bytes) edge.target += base;
      for (auto& edge : state.calls) edge.target += base;
      result_.states.push_back(std::move(state));
    }
  }

  // The rules that a rule calls before its first byte.
  std::vector<std::uint32_t> first_calls(std::uint32_t number) const {
    const Automaton::State& start = result_.states[result_.starts[number]];
    if (start.counter != Automaton::kNoCounter) return {result_.counters[start.counter].rule};
    std::vector<std::uint32_t> rules;
    for (const auto& edge : start.calls) rules.push_back(edge.rule);
    std::ranges::sort(rules);
    rules.erase(std::ranges::unique(rules).begin(), rules.end());
    return rules;
  }

  // Numbers the rules so that a rule calls later ones before its first byte.
  void order_rules() {
    const std::size_t count = reached_.size();
    std::vector<std::uint32_t> callers(count), order;
    for (std::uint32_t i = 0; i < count; ++i)
      for (const std::uint32_t called : first_calls(i)) ++callers[called];
    for (std::uint32_t i = 0; i < count; ++i)
      if (callers[i] == 0) order.push_back(i);
    for (std::size_t at = 0; at < order.size(); ++at)
      for (const std::uint32_t called : first_calls(order[at]))
        if (--callers[called] == 0) order.push_back(called);
    if (order.size() < count) refuse_left_recursion(callers);
    std::vector<std::uint32_t> places(count), starts;
    for (std::uint32_t i = 0; i < count; ++i) {
      places[order[i]] = i;
      starts.push_back(result_.starts[order[i]]);
    }
    for (Automaton::State& state : result_.states)
      for (auto& edge : state.calls) edge.rule = places[edge.rule];
    for (Automaton::Counter& counter : result_.counters) counter.rule = places[counter.rule];
    result_.starts = std::move(starts);
    result_.root = places[0];
  }

  // `callers[i]` is nonzero for rules in a cycle and rules that a cycle calls.
  [[noreturn]] void refuse_left_recursion(const std::vector<std::uint32_t>& callers) const {
    std::vector<std::uint32_t> caller(callers.size());
    std::uint32_t at = 0;
    for (std::uint32_t i = 0; i < callers.size(); ++i) {
      if (callers[i] == 0) continue;
      at = i;
      for (const std::uint32_t called : first_calls(i)) caller[called] = i;
    }
    for (std::size_t step = 0; step < 2 * callers.size(); ++step) {
      at = caller[at];
      if (step >= callers.size() && !rule(at).name.empty()) break;
    }
    throw kCompileErrors.user(quote(rule(at).name), "the rule begins with itself",
                              "a rule that matches a byte before it calls itself", "left recursion",
                              "let the rule end with itself, or use *");
  }

  // Bytes that no set tells apart are one class.
  void find_classes() {
    std::array<std::uint16_t, 256> classes = {};
    std::uint16_t count = 1;
    for (const ByteSet& set : result_.sets) {
      std::map<std::pair<std::uint16_t, bool>, std::uint16_t> parts;
      for (std::size_t byte = 0; byte < 256; ++byte) {
        const auto part = parts.emplace(std::pair(classes[byte], set[byte]),
                                        static_cast<std::uint16_t>(parts.size()));
        classes[byte] = part.first->second;
      }
      count = static_cast<std::uint16_t>(parts.size());
      if (count == 256) break;
    }
    result_.classes = classes;
    result_.class_bytes.resize(count);
    for (std::size_t byte = 0; byte < 256; ++byte)
      result_.class_bytes[classes[byte]] = static_cast<unsigned char>(byte);
  }

  const Grammar& grammar_;
  const std::vector<bool> some_text_, empty_text_;  // by node
  std::map<std::uint32_t, std::uint32_t> numbers_;  // of rules
  std::vector<std::uint32_t> reached_;              // rules by number
  std::size_t edges_ = 0;
  Automaton result_;
};

}  // namespace

Automaton Automaton::compile(Grammar& grammar, Grammar::Expression root) {
  const Grammar::Rule rule = grammar.declare("the grammar");
  grammar.define(rule, root);
  return Compiler(grammar).compile(rule);
}

}  // namespace strata
