#include "strata/rowserver/options.h"

#include "strata/base/enum_names.h"
#include "strata/rowserver/row_servers.h"

namespace strata {
namespace {

constexpr double kMostStale = 4096;
// Rows and their updates are fp32 or 16 bit: with larger numbers steps become infinite.
constexpr double kLargest = 1e6;
constexpr double kLargestValue = 1e4;
// A decay of 1 never forgets, and Adam's bias correction would divide by zero in the first steps.
constexpr double kBelowOne = 0.999999;
// Without an epsilon an element whose gradients are all 0 is divided by 0.
constexpr double kSmallestEpsilon = 1e-30;
constexpr double kMostSteps = 1e12;

void describe(OptionSet& set, const std::string& prefix, RowInit& init) {
  set.add(prefix + ".kind", &init.kind, all_named<RowInit::Kind>(),
          {.help = "How the first values of a row are drawn, keyed by its id."});
  set.add(prefix + ".scale", &init.scale,
          {.help = "Their largest magnitude (uniform) or standard deviation (normal).",
           .minimum = 0,
           .maximum = kLargestValue});
}

void describe(OptionSet& set, const std::string& prefix, RowOptimizerOptions& options) {
  set.add(prefix + ".kind", &options.kind, all_named<RowOptimizerKind>(),
          {.help = "What a gradient does to a row; its states are stored with the row."});
  const auto number = [&](const char* name, double* target, const char* help) {
    set.add(prefix + "." + name, target, {.help = help, .minimum = 0, .maximum = kLargest});
  };
  const auto share = [&](const char* name, double* target, const char* help) {
    set.add(prefix + "." + name, target,
            {.help = help, .unit = "ratio", .minimum = 0, .maximum = kBelowOne});
  };
  number("learning_rate", &options.learning_rate, "Step size of rows.");
  set.add(prefix + ".epsilon", &options.epsilon,
          {.help = "Added to roots of squares.", .minimum = kSmallestEpsilon, .maximum = kLargest});
  number("initial_accumulator", &options.initial_accumulator, "First squares of Adagrad and FTRL.");
  share("momentum", &options.momentum, "Share of the last step that the next one keeps.");
  share("beta1", &options.beta1, "Decay of Adam's means.");
  share("beta2", &options.beta2, "Decay of Adam's squares.");
  number("weight_decay", &options.weight_decay,
         "L2 penalty; of adamw, decay apart from gradients.");
  number("l1", &options.l1, "FTRL's L1 penalty.");
  number("l2", &options.l2, "FTRL's L2 penalty.");
}

void describe_staleness(OptionSet& set, const std::string& path, RowOptions& options) {
  set.add(path, &options.staleness,
          {.help = "Rows of a step may lack the updates of so many steps before it, less one; 1: "
                   "none are lacking.",
           .unit = "steps",
           .minimum = 1,
           .maximum = kMostStale});
}

}  // namespace

const char* name_of(EmbeddingMode mode) {
  using enum EmbeddingMode;
  static constexpr EnumNames<EmbeddingMode> kNames{
      {kSynchronous, "synchronous"}, {kHybrid, "hybrid"}, {kAsynchronous, "asynchronous"}};
  return kNames[mode];
}

void describe_rows(OptionSet& set, const std::string& prefix, RowOptions& options) {
  const std::string section = prefix.empty() ? "" : prefix + ".";
  describe(set, section + "init", options.init);
  describe(set, section + "optimizer", options.optimizer);
  set.add(section + "precision", &options.precision, all_named<RowPrecision>(),
          {.help = "Of rows where they live; 16 and 8 bit round stochastically."});
  set.add(section + "admission.filter", &options.admission.filter,
          all_named<RowAdmission::Filter>(), {.help = "What counts ids that have no row yet."});
  set.add(section + "admission.threshold", &options.admission.threshold,
          {.help = "Steps with an id before it gets a row.",
           .unit = "steps",
           .minimum = 1,
           .maximum = 1e6});
  set.add(section + "eviction.policy", &options.eviction.policy, all_named<RowEviction::Policy>(),
          {.help = "Which row goes when memory is short."});
  set.add(section + "eviction.steps_to_live", &options.eviction.steps_to_live,
          {.help = "Rows go that were not updated for so long; 0: none do.",
           .unit = "steps",
           .minimum = 0,
           .maximum = kMostSteps});
}

void describe(OptionSet& set, const std::string& prefix, EmbeddingOptions& options) {
  set.add(prefix + ".mode", &options.mode, all_named<EmbeddingMode>(),
          {.help = "What may be stale: nothing, rows, or rows and the dense net."});
  set.add(prefix + ".servers", &options.servers,
          {.help = "local: rows live in the ranks' own process; or the addresses of servers, "
                   "HOST:PORT or unix:PATH, one a shard."});
  set.add(prefix + ".shards", &options.shards,
          {.help = "Shards of local rows.", .minimum = 1, .maximum = kMostShards});
  describe_staleness(set, prefix + ".staleness", options.rows);
  describe_rows(set, prefix, options.rows);
  const auto wire = all_named<WirePrecision>();
  set.add(prefix + ".wire.rows", &options.wire.rows, wire,
          {.help = "Of rows on their way to ranks; local ones are rounded alike."});
  set.add(prefix + ".wire.gradients", &options.wire.gradients, wire,
          {.help = "Of gradients on their way to rows; local ones are rounded alike."});
  set.add(prefix + ".memory", &options.memory,
          {.help = "Budget of a shard's rows, everything about them included; 0: no limit."});
  set.add(prefix + ".cold", &options.cold,
          {.help = "Folder for rows that memory has no room for; empty: they are forgotten."});
  set.add(prefix + ".folder", &options.folder,
          {.help = "Where shards keep log and snapshots; empty: next to checkpoints."});
  set.add(
      prefix + ".log_limit", &options.log_limit,
      {.help = "Of a server's log of updates, or the size of its snapshot if that is more: beyond "
               "it the server makes a snapshot by itself; 0: no limit."});
  set.add(prefix + ".reread", &options.reread,
          {.help = "Go on without what steps after the checkpoint had read before it, as where its "
                   "files rows/ahead-* are lost: losses are others then."});
}

FeatureSpec feature_spec(const std::string& name, std::int64_t width, const RowOptions& options) {
  return {.name = name,
          .width = static_cast<int>(width),
          .init = options.init,
          .optimizer = options.optimizer,
          .precision = options.precision,
          .admission = options.admission,
          .eviction = options.eviction};
}

RowOptions row_options(const RowOptions& defaults, const YamlSection& kept) {
  RowOptions options = defaults;
  OptionSet set;
  set.add("table", &options.table,
          {.help = "Features that name the same table share its rows; empty: one of its own."});
  describe_staleness(set, "staleness", options);
  describe_rows(set, "", options);
  if (kept.is_set()) set.load_section(kept, "");
  return options;
}

}  // namespace strata
