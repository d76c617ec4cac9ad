// Tests that a recommender's recipe or plan refuses what its run cannot do, with the field and its
// place, and that no recipe and no log ends the program in another way.
#include "strata/task/recommender/recommender_task.h"

#include <gtest/gtest.h>

#include <fstream>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/run/training_run.h"

namespace strata {
namespace {

using Overrides = std::vector<std::string>;

class RecommenderLimits : public testing::Test {
 protected:
  RecommenderLimits() {
    std::string log = "click\tprice\tuser\twords\n";
    for (int i = 0; i < 60; ++i)
      log += std::to_string(i % 2) + "\t" + std::to_string(i) + ".5\t" + std::to_string(i % 7) +
             "\t" + std::to_string(i % 5) + ":1 " + std::to_string(i % 3) + "\n";
    write("clicks.tsv", log);
  }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path(name), std::ios::binary) << text;
    return folder_.path(name);
  }

  /// Line 4 has the features.
  std::string text(const std::string& features = "{name: user, width: 8}") const {
    return "model: {kind: dlrm, bottom: [8], top: [8]}\n"
           "data:\n  train: " +
           folder_.path("clicks.tsv") + "\n  label: click\n  numeric: [price]\n  categorical: [" +
           features + "]\ntrain: {steps: 2, mini_batch: 16}\nmesh: {threads: 1}\n";
  }

  Recipe recipe(const Overrides& overrides = {}) const {
    return parse_recipe(text(), "recipe.yaml", overrides);
  }

  void train(const Recipe& recipe) const { strata::train(resolve(recipe)); }

  /// The refusal of `action`; "" if there is none. Any error but a UserError is a bug.
  template <typename Action>
  static ErrorText refusal(const Action& action) {
    try {
      action();
    } catch (const UserError& error) {
      EXPECT_FALSE(error.text().fix.empty()) << error.what();
      return error.text();
    }
    return {};
  }

  ErrorText refusal_of(const Overrides& overrides) const {
    return refusal([&] { recipe(overrides); });
  }

  /// Whether it trains; any error but a refusal is a bug.
  bool trains(const std::string& features, const Overrides& overrides = {}) const {
    SCOPED_TRACE(features + " " + (overrides.empty() ? "" : overrides[0]));
    try {
      train(parse_recipe(text(features), "recipe.yaml", overrides));
      return true;
    } catch (const UserError& error) {
      EXPECT_FALSE(error.text().what.empty());
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    return false;
  }

  ScratchFolder folder_;
};

TEST_F(RecommenderLimits, RefuseSequenceWithoutLengthAtItsFeature) {
  for (const char* model : {"dlrm", "dcn", "deep_wide"}) {
    std::string recipe = text("{name: user, width: 8}, {name: words, width: 8, pool: sequence}");
    recipe.replace(recipe.find("dlrm, bottom: [8]"), 17, std::string(model) + ", bottom: []");
    const ErrorText refused = refusal([&] { parse_recipe(recipe, "recipe.yaml", {}); });
    EXPECT_EQ(refused.what, "data.categorical[1].last: a sequence has a length");
    EXPECT_EQ(refused.where, "recipe.yaml:6:48");
    EXPECT_NE(refused.fix.find("set last"), std::string::npos);
  }
}

TEST_F(RecommenderLimits, PlanOrRefuseEveryPoolWithAnyOtherFields) {
  int planned = 0;
  for (const char* pool : {"sum", "mean", "sqrtn", "max", "weighted", "last", "sequence"})
    for (const char* beside : {"", ", separator: ' '", ", last: 1", ", last: 65536",
                               ", separator: '::', last: 3", ", ids: vocabulary", ", ids: number"})
      for (const char* width : {"1", "8", "65536"}) {
        const std::string feature =
            std::string("{name: words, width: ") + width + ", pool: " + pool + beside + "}";
        for (const char* interaction : {"dot", "cat"})
          refusal([&] {
            const Recipe made = parse_recipe(text("{name: user, width: 8}, " + feature), "r.yaml",
                                             {std::string("model.interaction=") + interaction});
            plan_run(resolve(made), /*probe=*/false);
            ++planned;
          });
      }
  EXPECT_GT(planned, 100);
}

// Through the C++ interface the net's makers have no place in a recipe.
TEST_F(RecommenderLimits, RefuseNetOfEmptyFeatures) {
  for (const RecommenderKind kind :
       {RecommenderKind::kDlrm, RecommenderKind::kDcn, RecommenderKind::kDeepWide}) {
    const RecommenderOptions options{.kind = kind, .interaction = Interaction::kDefault};
    for (const std::int64_t width : {std::int64_t{0}, std::int64_t{-8}})
      EXPECT_EQ(refusal([&] { make_recommender(options, {.row_widths = {8, width}}); }).what,
                "a feature whose rows have no elements");
    EXPECT_EQ(refusal([&] { make_recommender(options, {.row_widths = {1 << 24, 8}}); }).what,
              "a sample has more numbers and elements of rows than a layer reads");
  }
}

struct Nonsense {
  const char* field;
  std::vector<const char*> refused, taken;
};

TEST_F(RecommenderLimits, RefuseImpossibleNumbers) {
  const std::vector<const char*> never = {"nan", "inf", "-inf", "1e400", "text", "''", "[1]", "-1"};
  std::vector<Nonsense> fields;
  for (const char* section : {"embedding.optimizer.", "train.optimizer."}) {
    const bool rows = section[0] == 'e';
    static std::vector<std::string> names;
    const auto name = [&](const char* member) {
      names.reserve(64);
      return names.emplace_back(std::string(section) + member).c_str();
    };
    for (const char* share : {"beta1", "beta2", "momentum"})
      fields.push_back({name(share), {"1", "3", "5", "1e30"}, {"0", "0.5", "0.9999"}});
    fields.push_back({name("epsilon"), {"0", "1e-300", "1e300"}, {"1e-12", "0.1"}});
    fields.push_back(
        {name("learning_rate"), {"1e300", rows ? "1e7" : "1e31"}, {"0", "1e-8", "10"}});
    fields.push_back({name("weight_decay"), {"1e300"}, {"0", "0.1"}});
    if (rows)
      for (const char* penalty : {"l1", "l2", "initial_accumulator"})
        fields.push_back({name(penalty), {"1e300", "1e7"}, {"0", "0.1"}});
  }
  for (const Nonsense& more : std::vector<Nonsense>{
           {"embedding.init.scale", {"1e300", "1e5"}, {"0", "0.5"}},
           {"embedding.shards", {"0", "1e3", "1025", "1.5"}, {"1", "3"}},
           {"embedding.staleness", {"0", "4097", "99999999999999999999"}, {"1", "8"}},
           {"embedding.admission.threshold", {"0", "1000001"}, {"1", "1000"}},
           {"embedding.eviction.steps_to_live", {"1e20", "9223372036854775808"}, {"0", "10"}},
           {"embedding.memory", {"8G", "-1MiB", "99999999TiB"}, {"0", "1MiB"}},
           {"embedding.log_limit", {"8G", "-1MiB"}, {"0", "1GiB"}},
           {"data.validation_fraction", {"0.6", "1", "1e300"}, {"0", "0.5"}},
           {"data.fit_samples", {"1e3", "1000000000000000000"}, {"0", "10"}},
           {"data.categorical[0].width", {"0", "65537", "1.5"}, {"8"}},
           {"data.categorical[0].last", {"65537"}, {"0", "3"}},
           {"data.categorical[0].min_count", {"0"}, {"1"}},
           {"data.categorical[0].buckets", {"1", "0", "65537"}, {"2", "100"}},
           {"data.numeric[0].buckets", {"1", "0", "65537"}, {"2", "100"}},
           {"data.synthetic.samples", {"0", "1000000000001"}, {"1000"}},
           {"data.synthetic.numeric", {"4097"}, {"0", "3"}},
           {"data.synthetic.positive", {"0", "1"}, {"0.5"}},
           {"data.synthetic.linear", {"101", "1e300"}, {"0", "2"}},
           {"data.synthetic.noise", {"1.5"}, {"0", "1"}},
           {"train.epochs", {"1e9", "1000001"}, {"0", "2"}},
           {"model.dropout", {"1", "5"}, {"0", "0.5"}},
           {"model.rank", {"16777217", "1.5"}, {"0"}},
           {"model.cross_layers", {"0", "1025"}, {"3"}}})
    fields.push_back(more);
  for (const Nonsense& field : fields) {
    std::vector<const char*> refused = never;
    refused.insert(refused.end(), field.refused.begin(), field.refused.end());
    for (const char* value : refused) {
      const ErrorText text = refusal_of({std::string(field.field) + "=" + value});
      EXPECT_EQ(text.where, "--set") << field.field << "=" << value;
      EXPECT_NE(text.what.find(field.field), std::string::npos) << text.what;
    }
    for (const char* value : field.taken)
      EXPECT_EQ(refusal_of({std::string(field.field) + "=" + value}).what, "")
          << field.field << "=" << value;
  }
  for (const char* widths : {"[0]", "[-1]", "[16777217]", "[nan]", "[[8]]"})
    EXPECT_NE(refusal_of({std::string("model.top=") + widths}).what, "") << widths;
  EXPECT_EQ(
      refusal_of({"embedding.optimizer.kind=ftrl", "embedding.optimizer.learning_rate=0"}).what,
      "embedding.optimizer.learning_rate: ftrl divides by its learning rate");
}

// Limits also hold in a feature's own section, with its place.
TEST_F(RecommenderLimits, RefuseNumbersOfFeaturesRowsAtItsPlace) {
  const ErrorText text = refusal([&] {
    parse_recipe(this->text("{name: user, width: 8, embedding: {optimizer: {beta1: 5}}}"),
                 "recipe.yaml", {});
  });
  EXPECT_EQ(text.what, "'optimizer.beta1' is out of range");
  EXPECT_TRUE(text.where.starts_with("recipe.yaml:6:")) << text.where;
}

TEST_F(RecommenderLimits, RefuseImpossibleRunsAtParsing) {
  for (const auto& [overrides, field] : std::vector<std::pair<Overrides, std::string>>{
           {{"memory.disk.path=" + folder_.path("disk")}, "memory.disk.path"},
           {{"memory.states=disk"}, "memory.states"},
           {{"memory.weights=disk", "memory.states=disk"}, "memory.weights"},
           {{"train.precision=bf16"}, "precision"},
           {{"embedding.mode=synchronous", "embedding.staleness=2"}, "embedding.mode"},
           {{"embedding.mode=asynchronous", "train.optimizer.kind=onebit-adam"},
            "train.optimizer.kind"},
           {{"embedding.mode=asynchronous", "train.optimizer.kind=onebit-lamb"},
            "train.optimizer.kind"},
           {{"train.outer_steps.every=4"}, "train.outer_steps.every"},
           {{"train.optimizer.kind=zero-one-adam"}, "train.optimizer.kind"},
           {{"model.kind=dcn", "model.bottom=[8]"}, "model.bottom"},
           {{"model.bottom=[9]"}, "model.interaction"},
           {{"embedding.servers=[]"}, "embedding.servers"},
           {{"data.categorical=[]"}, "model.kind"},
           {{"data.label=price"}, "data.numeric[0].name"},
           {{"data.train=", "data.format=synthetic", "data.synthetic.features=[{name: user}]",
             "data.synthetic.samples=100", "data.numeric=[]", "model.bottom=[]",
             "model.interaction=cat", "data.last_batch=drop", "train.mini_batch=101"},
            "data.last_batch"}}) {
    const ErrorText text = refusal_of(overrides);
    EXPECT_NE((text.what + " " + text.where + " " + text.expected).find(field), std::string::npos)
        << overrides[0] << ": " << text.what;
  }
}

TEST_F(RecommenderLimits, RefuseDecisionsOfPlanAtPlanning) {
  const auto planned = [&](const Overrides& overrides) {
    return refusal([&] { plan_run(resolve(recipe(overrides)), /*probe=*/false); }).what;
  };
  EXPECT_EQ(planned({}), "");
  EXPECT_NE(planned({"mesh.tp=2"}), "");
  EXPECT_EQ(planned({"embedding.mode=asynchronous", "memory.states=host"}),
            "embedding.mode: gradients of an asynchronous net stay on the device");
  const StepDecisions none;
  const std::shared_ptr<const Task> local = recipe().task;
  EXPECT_NO_THROW(local->check_plan(none, 1));
  EXPECT_EQ(refusal([&] { local->check_plan(none, 2); }).what,
            "embedding.servers: local rows live in one process, and the run has several");
}

// The fix for a plan that does not fit is possible for a recommender.
TEST_F(RecommenderLimits, ProposeOnlyFixesThatWork) {
  const ErrorText text =
      refusal([&] { plan_run(resolve(recipe({"memory.device=1KiB"})), /*probe=*/false); });
  EXPECT_NE(text.what, "");
  EXPECT_EQ(text.fix.find("memory.disk"), std::string::npos) << text.fix;
}

TEST_F(RecommenderLimits, RefuseRunWithoutStepsBeforePlanning) {
  const auto opened = [&](const Overrides& overrides) {
    return refusal([&] { open_data(recipe(overrides)); });
  };
  EXPECT_EQ(opened({}).what, "");
  EXPECT_EQ(opened({"train.epochs=1", "train.mini_batch=55"}).what,
            "train.epochs: its samples are fewer than one mini-batch");
  EXPECT_EQ(opened({"train.epochs=1", "train.mini_batch=54"}).what, "");
  EXPECT_EQ(opened({"train.epochs=2", "train.mini_batch=55"}).what, "");
  EXPECT_EQ(opened({"data.last_batch=drop", "train.mini_batch=55"}).what,
            "data.last_batch: every mini-batch would be dropped");
}

TEST_F(RecommenderLimits, AcceptManyFeatures) {
  std::string features;
  for (int i = 0; i < 1000; ++i)
    features += (i == 0 ? "" : ", ") + std::string("{name: f") + std::to_string(i) +
                ", column: user, width: 4}";
  const Recipe many = parse_recipe(text(features), "r.yaml",
                                   {"model.interaction=cat", "data.numeric=[]", "model.bottom=[]"});
  EXPECT_EQ(inputs_of(*recommender_fields(many)).rows(), 4000);
  train(many);
}

// Bad recipes and logs are refused, or trained for two steps.
const std::string kUser = "{name: user, width: 8}", kWords = "{name: words, width: 8, ";
const std::string kBoth = kUser + ", " + kWords + "separator: ' '}";
const std::string kGood = "click\tprice\tuser\twords\n1\t2\ta\tb\n0\t3\tc\td e\n1\t1\ta\te\n";

const std::vector<std::string> kFeatures = {
    "",
    kUser,
    kUser + ", " + kUser,
    kUser + ", user",
    "{width: 8}",
    "{name: ''}",
    "{}",
    "[]",
    "~",
    "5",
    "{name: user, width: 8, embedding: {table: t}}, {name: words, width: 4, embedding: "
    "{table: t}}",
    "{name: user, width: 8, embedding: {table: t}}, {name: words, width: 8, embedding: "
    "{table: t}}",
    "{name: user, width: 8, embedding: {table: words}}, {name: words, width: 8}",
    "{name: user, width: 8, embedding: 5}",
    "{name: user, width: 8, embedding: {nothing: 1}}",
    "{name: user, width: 8, column: nowhere}",
    "{name: user, width: 8, column: click}",
    "{name: click, width: 8}",
    "{name: \"a b\\n\\0c\", column: user, width: 8}",
    kWords + "separator: ' '}",
    kWords + "separator: ', ; ', pool: max}",
    kWords + "separator: \"\\t\", pool: sequence, last: 2}",
    kWords + "pool: weighted}",
    kWords + "pool: sequence, last: 3, separator: ' '}",
    kWords + "ids: number}",
    kWords + "ids: vocabulary, min_count: 1000}",
    kWords + "ids: buckets}",
    "{name: price, width: 8, ids: buckets, buckets: 65536}"};

const std::vector<Overrides> kOverrides = {
    {"model.kind=dcn"},
    {"model.kind=dcn", "model.bottom=[]", "model.rank=5"},
    {"model.kind=deep_wide"},
    {"model.kind=deep_wide", "model.bottom=[4, 4]"},
    {"model.kind=gpt"},
    {"model.top=[]"},
    {"model.bottom=[]"},
    {"data.numeric=[]"},
    {"data.numeric=[]", "model.bottom=[]"},
    {"data.numeric=[price, price]"},
    {"data.numeric=[words]"},
    {"data.numeric=5"},
    {"data.label="},
    {"data.label=words"},
    {"data.label=words", "data.positive=b"},
    {"data.positive=1"},
    {"data.positive=9"},
    {"data.group=user"},
    {"data.group=nowhere"},
    {"data.format=csv"},
    {"data.format=criteo"},
    {"data.format=libsvm"},
    {"data.format=records"},
    {"data.format=synthetic"},
    {"data.header=false"},
    {"data.columns=[a, b]"},
    {"data.columns=[click, price, user, words]"},
    {"data.columns=[click, click, user, words]"},
    {"data.train=/dev/null"},
    {"data.train=."},
    {"data.validation_fraction=0"},
    {"data.validation=nowhere.tsv"},
    {"data.last_batch=short"},
    {"data.last_batch=drop"},
    {"train.epochs=1", "data.last_batch=short"},
    {"train.mini_batch=1"},
    {"train.micro_batch=1"},
    {"mesh.dp=2"},
    {"mesh.dp=3", "train.mini_batch=2"},
    {"mesh.pp=2"},
    {"mesh.pp=9"},
    {"mesh.tp=2"},
    {"mesh.dp=2", "mesh.zero=3"},
    {"embedding.shards=7"},
    {"embedding.memory=1B"},
    {"embedding.memory=200B"},
    {"embedding.cold=/dev/null/cold"},
    {"embedding.precision=int8"},
    {"embedding.mode=asynchronous", "embedding.staleness=4"},
    {"embedding.staleness=4096"},
    {"embedding.servers=[local, local]"},
    {"embedding.servers=[local, 'unix:a']"},
    {"embedding.admission.filter=bloom", "embedding.admission.threshold=3"},
    {"embedding.eviction.steps_to_live=1"},
    {"memory.states=host"},
    {"memory.device=1KiB"},
    {"train.clip=0"},
    {"train.optimizer.kind=sgd"},
    {"train.optimizer.learning_rate=1e30"},
    {"embedding.optimizer.learning_rate=1000000"},
    {"train.label_smoothing=1"},
    {"train.graph=on"}};

const std::vector<std::string> kLogs = {"",
                                        "\n",
                                        "\n\n\n",
                                        "click\tprice\tuser\twords\n",
                                        "click\tprice\tuser\twords\n1\t2\ta\tb",
                                        "\xEF\xBB\xBF" + kGood,
                                        kGood + "1\t2\n",
                                        kGood + "1\t2\ta\tb\tc\n",
                                        kGood + std::string("1\t2\t\0\tb\n", 9),
                                        kGood + "\r\n\r\n",
                                        "1\t2\ta\tb\n",
                                        "click;price;user;words\n1;2;a;b\n",
                                        kGood + "x\t2\ta\tb\n",
                                        kGood + "1\tNA\ta\tb\n",
                                        kGood + "1\tnan\ta\tb\n",
                                        kGood + "1\t1e300\ta\tb\n",
                                        "click\tclick\tuser\twords\n1\t2\ta\tb\n",
                                        std::string(1000, '\t') + "\n",
                                        std::string(4096, '\0')};

TEST_F(RecommenderLimits, TrainOrRefuseAllFeatures) {
  int trained = 0;
  for (const std::string& features : kFeatures) trained += trains(features);
  EXPECT_GT(trained, 5);
}

TEST_F(RecommenderLimits, TrainOrRefuseAllFields) {
  int trained = 0;
  for (const Overrides& overrides : kOverrides) trained += trains(kBoth, overrides);
  EXPECT_GT(trained, 20);
}

TEST_F(RecommenderLimits, TrainOrRefuseAllLogs) {
  int trained = 0;
  for (const std::string& log : kLogs)
    trained += trains(kBoth, {"data.train=" + write("log.tsv", log), "train.mini_batch=2"});
  EXPECT_GT(trained, 1);
}

}  // namespace
}  // namespace strata
