#include "strata/base/options.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr const char* kRecipe =
    R"(model:  {kind: gpt, layers: 6, width: 384, heads: 6, vocab: 256, context: 256, dropout: 0.1}
data:   {train: kjv.txt, tokenizer: bytes, validation_fraction: 0.05}
train:  {steps: 400, mini_batch: 32, micro_batch: 4, optimizer: {kind: adamw, learning_rate: 1e-3}, warmup: 40, clip: 1.0, seed: 1}
mesh:   {pp: 2, schedule: 1f1b}
memory: {device: 2GiB, recompute: auto}
)";

/// The fields of the recipe above, described as the components do.
class OptionSetTest : public testing::Test {
 protected:
  struct Options {
    std::string model_kind = "gpt", train_file, tokenizer = "bytes", optimizer = "sgd";
    std::string schedule = "gpipe", recompute = "cheap";
    std::int64_t layers = 1, width = 64, heads = 1, vocab = 256, context = 128;
    std::int64_t steps = 100, mini_batch = 8, micro_batch = 8, warmup = 0, seed = 1, pp = 1;
    double dropout = 0, validation_fraction = 0.1, learning_rate = 3e-4, clip = 0;
    Bytes device;
    bool tied = true;
  };

  static void describe(OptionSet& set, Options& o) {
    set.add("model.kind", &o.model_kind, {.help = "Architecture.", .choices = {"gpt", "llama"}});
    set.add("model.layers", &o.layers, {.help = "Blocks.", .unit = "layers", .minimum = 1});
    set.add("model.width", &o.width, {.help = "Size of a token's vector.", .minimum = 1});
    set.add("model.heads", &o.heads, {.help = "Attention heads.", .minimum = 1});
    set.add("model.vocab", &o.vocab, {.help = "Number of tokens.", .unit = "tokens"});
    set.add("model.context", &o.context, {.help = "Longest sequence.", .unit = "tokens"});
    set.add("model.dropout", &o.dropout,
            {.help = "Fraction set to zero.", .unit = "ratio", .minimum = 0, .maximum = 0.9});
    set.add("model.tied", &o.tied, {.help = "Whether the head reuses the embedding."});
    set.add("data.train", &o.train_file, {.help = "Text to learn."});
    set.add("data.tokenizer", &o.tokenizer, {.help = "Tokenizer.", .choices = {"bytes"}});
    set.add("data.validation_fraction", &o.validation_fraction, {.help = "Fraction held out."});
    set.add("train.steps", &o.steps, {.help = "Updates.", .unit = "steps", .minimum = 1});
    set.add("train.optimizer.kind", &o.optimizer,
            {.help = "Update rule.", .choices = {"adamw", "sgd"}});
    set.add("train.optimizer.learning_rate", &o.learning_rate, {.help = "Step size."});
    set.add("train.mini_batch", &o.mini_batch, {.help = "Sequences a step."});
    set.add("train.micro_batch", &o.micro_batch, {.help = "Sequences a micro-batch."});
    set.add("train.warmup", &o.warmup, {.help = "Steps of rising learning rate."});
    set.add("train.clip", &o.clip, {.help = "Largest gradient norm."});
    set.add("train.seed", &o.seed, {.help = "Key of all random numbers."});
    set.add("mesh.pp", &o.pp,
            {.help = "Pipeline ranks.", .unit = "ranks", .minimum = 1, .maximum = 64});
    set.add("mesh.schedule", &o.schedule,
            {.help = "Order of micro-batches.", .choices = {"gpipe", "1f1b", "interleaved"}});
    set.add("memory.device", &o.device, {.help = "Budget; 0: no limit.", .maximum = 0x1p50});
    set.add("memory.recompute", &o.recompute,
            {.help = "What backward recomputes.", .choices = {"none", "cheap", "full", "auto"}});
  }

  OptionSetTest() { describe(set_, options_); }

  static ErrorText refusal(const std::function<void()>& action) {
    try {
      action();
    } catch (const UserError& error) {
      return error.text();
    }
    ADD_FAILURE() << "no UserError";
    return {};
  }
  ErrorText refusal_of_yaml(const std::string& text) {
    return refusal([&] { set_.load_yaml(text, "recipe.yaml"); });
  }
  ErrorText refusal_of_set(const std::string& assignment) {
    return refusal([&] { set_.set(assignment); });
  }

  Options options_;
  OptionSet set_;
};

TEST_F(OptionSetTest, ReadsTheRecipe) {
  set_.load_yaml(kRecipe, "recipe.yaml");
  EXPECT_EQ(options_.model_kind, "gpt");
  EXPECT_EQ(options_.layers, 6);
  EXPECT_EQ(options_.dropout, 0.1);
  EXPECT_EQ(options_.train_file, "kjv.txt");
  EXPECT_EQ(options_.optimizer, "adamw");
  EXPECT_EQ(options_.learning_rate, 1e-3);
  EXPECT_EQ(options_.clip, 1.0);
  EXPECT_EQ(options_.schedule, "1f1b");
  EXPECT_EQ(options_.device, (Bytes{std::int64_t{2} << 30}));
  EXPECT_EQ(options_.recompute, "auto");
  EXPECT_TRUE(options_.tied) << "a field that is not given keeps its default";
}

TEST_F(OptionSetTest, ReportsWhichFieldsAreSetAndWhere) {
  set_.load_yaml(kRecipe, "recipe.yaml");
  set_.set("train.steps=10");
  EXPECT_EQ(options_.steps, 10);
  EXPECT_TRUE(set_.is_set("mesh.pp"));
  EXPECT_EQ(set_.where("mesh.pp"), "recipe.yaml:4:14");
  EXPECT_EQ(set_.where("train.steps"), "--set");
  EXPECT_FALSE(set_.is_set("model.tied"));
  EXPECT_EQ(set_.where("model.tied"), "default");
}

TEST_F(OptionSetTest, ReadsBlocksFlagsAndZeroBytes) {
  set_.load_yaml("# a comment\nmodel:\n  tied: false\nmemory:\n  device: 0\ntrain:\n", "r.yaml");
  EXPECT_FALSE(options_.tied);
  EXPECT_EQ(options_.device.count, 0);
  EXPECT_TRUE(set_.is_set("memory.device"));
}

TEST_F(OptionSetTest, AnEmptyRecipeChangesNothing) {
  const std::string before = set_.to_yaml();
  for (const char* text : {"", "# nothing\n", "---\n", "{}\n"}) set_.load_yaml(text, "r.yaml");
  EXPECT_EQ(set_.to_yaml(), before);
}

TEST_F(OptionSetTest, ALaterRecipeOverridesAnEarlierOne) {
  set_.load_yaml("train: {steps: 5, seed: 7}", "base.yaml");
  set_.load_yaml("train: {steps: 6}", "more.yaml");
  EXPECT_EQ(options_.steps, 6);
  EXPECT_EQ(options_.seed, 7);
}

TEST_F(OptionSetTest, SetKeepsEverythingAfterTheFirstEqualsSign) {
  set_.set("data.train=a=b c.txt");
  EXPECT_EQ(options_.train_file, "a=b c.txt");
}

TEST_F(OptionSetTest, WritesYamlThatItReadsBackExactly) {
  set_.load_yaml(kRecipe, "recipe.yaml");
  options_.learning_rate = 0.1 + 0.2;
  options_.clip = 5e-324;
  options_.seed = std::numeric_limits<std::int64_t>::min();
  options_.device.count = (std::int64_t{1} << 33) + 7;
  for (const std::string text : {"", "null", "~", "true", "a: b", "# x", "two\nlines", " padded ",
                                 "\"quoted\"", "über", "{", "-", "1e3"}) {
    options_.train_file = text;
    Options read;
    OptionSet other;
    describe(other, read);
    other.load_yaml(set_.to_yaml(), "effective.yaml");
    EXPECT_EQ(read.train_file, text);
    EXPECT_EQ(read.learning_rate, options_.learning_rate);
    EXPECT_EQ(read.clip, options_.clip);
    EXPECT_EQ(read.seed, options_.seed);
    EXPECT_EQ(read.device, options_.device);
    EXPECT_EQ(other.to_yaml(), set_.to_yaml());
  }
}

// Recipes in checkpoints name all fields of their version.
TEST(OptionSet, IgnoresRetiredFieldWithItsLastDefault) {
  std::int64_t steps = 5;
  OptionSet set;
  set.add("train.disk.steps", &steps, {.help = "Updates."});
  set.retire("train.disk.io", "auto", "remove it: io_uring is used where the kernel permits it");
  set.load_yaml("train: {disk: {io: auto, steps: 6}}", "old.yaml");
  EXPECT_EQ(steps, 6);
  set.set("train.disk.io=auto");
  EXPECT_EQ(set.to_yaml(), "train:\n  disk:\n    steps: 6\n");
  EXPECT_EQ(set.to_table().find("io_uring"), std::string::npos);
}

TEST(OptionSet, RefusesRetiredFieldWithAnotherValue) {
  std::int64_t steps = 5;
  OptionSet set;
  set.add("train.steps", &steps, {.help = "Updates."});
  set.retire("train.io", "auto", "set train.steps");
  const auto refusal = [](const auto& read) {
    try {
      read();
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::string text = refusal([&] { set.load_yaml("train: {io: threads}", "old.yaml"); });
  EXPECT_NE(text.find("old.yaml:1:13: 'train.io' is no longer a field"), std::string::npos) << text;
  for (const char* part : {"nothing, or its last default, auto", "'threads'", "set train.steps"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_NE(refusal([&] { set.set("train.io=threads"); }).find("--set"), std::string::npos);
  for (const char* value : {"{auto: auto}", "[auto]", "''", "~"})
    EXPECT_NE(refusal([&] { set.load_yaml(std::string("train: {io: ") + value + "}", "r.yaml"); }),
              "accepted")
        << value;
  EXPECT_THROW(set.add("train.io", &steps, {.help = "Again."}), InternalError);
  EXPECT_THROW(set.retire("train.steps", "5", ""), InternalError);
}

enum class Colour { kRed, kGreen, kBlue };
const char* name_of(Colour colour) {
  constexpr const char* kNames[] = {"red", "green", "blue"};
  return kNames[static_cast<int>(colour)];
}

// An enum has the same refusal, table and YAML as a text with choices.
TEST(OptionSet, ReadsAndWritesAnEnumByTheNamesOfItsValues) {
  Colour colour = Colour::kGreen;
  std::string text = "green";
  OptionSet set, texts;
  set.add("a.colour", &colour, named({Colour::kRed, Colour::kGreen}), {.help = "Of it."});
  texts.add("a.colour", &text, {.help = "Of it.", .choices = {"red", "green"}});
  EXPECT_EQ(set.to_table(), texts.to_table());
  EXPECT_EQ(set.to_yaml(), texts.to_yaml());
  const auto refusal = [](OptionSet& of) -> std::string {
    try {
      of.set("a.colour=blue");
      return "accepted";
    } catch (const UserError& error) {
      return error.what();
    }
  };
  EXPECT_NE(refusal(set), "accepted");
  EXPECT_EQ(refusal(set), refusal(texts));
  EXPECT_EQ(colour, Colour::kGreen);
  set.load_yaml("a: {colour: red}", "r.yaml");
  EXPECT_EQ(colour, Colour::kRed);
  EXPECT_NE(set.to_yaml().find("red"), std::string::npos);
  Colour unnamed = Colour::kBlue;
  EXPECT_THROW(set.add("a.other", &unnamed, named({Colour::kRed}), {.help = "Of it."}),
               InternalError);
}

TEST(OptionSet, WritesNestedYamlInTheOrderOfDescription) {
  double rate = 1e-3;
  std::int64_t steps = 400;
  Bytes budget{std::int64_t{2} << 30};
  OptionSet set;
  set.add("train.steps", &steps, {.help = "Updates."});
  set.add("memory.device", &budget, {.help = "Budget."});
  set.add("train.optimizer.learning_rate", &rate, {.help = "Step size."});
  EXPECT_EQ(set.to_yaml(),
            "train:\n"
            "  steps: 400\n"
            "  optimizer:\n"
            "    learning_rate: 0.001\n"
            "memory:\n"
            "  device: 2GiB\n");
}

TEST(OptionSet, ListsFieldsBySectionInAlignedColumns) {
  std::string kind = "adamw", file;
  std::int64_t steps = 400;
  double dropout = 0.1;
  OptionSet set;
  set.add("train.steps", &steps, {.help = "Updates.", .unit = "steps", .minimum = 1});
  set.add("train.optimizer.kind", &kind, {.help = "Update rule.", .choices = {"adamw", "sgd"}});
  set.add("model.dropout", &dropout,
          {.help = "Fraction set to zero.", .unit = "ratio", .minimum = 0, .maximum = 0.9});
  set.add("train.file", &file, {.help = "Text."});
  set.set("train.steps=7");  // the table shows defaults, not values
  EXPECT_EQ(set.to_table(),
            "field                 default  unit   what it does\n"
            "\n"
            "train.steps           400      steps  Updates. [at least 1]\n"
            "train.file            \"\"              Text.\n"
            "\n"
            "train.optimizer.kind  adamw           Update rule. [adamw | sgd]\n"
            "\n"
            "model.dropout         0.1      ratio  Fraction set to zero. [0 to 0.9]\n");
}

TEST_F(OptionSetTest, RefusesAnUnknownFieldWithPlaceFieldsAndNearestName) {
  const ErrorText text = refusal_of_yaml("# GPT\n\nmodel: {widht: 384}\n");
  EXPECT_EQ(text.operation, "base.options");
  EXPECT_EQ(text.where, "recipe.yaml:3:9");
  EXPECT_EQ(text.what, "unknown field 'model.widht'");
  EXPECT_EQ(text.expected, "kind, layers, width, heads, vocab, context, dropout, tied");
  EXPECT_EQ(text.fix, "did you mean 'model.width'?");
}

TEST_F(OptionSetTest, RefusesARecipeThatIsNotUtf8AtItsPlace) {
  const ErrorText text = refusal_of_yaml(
      "# größe\nmodel: {width: 8} # gr\xF6\xDF"
      "e\n");
  EXPECT_EQ(text.where, "recipe.yaml:2:23");
  EXPECT_EQ(text.what, "the text is not UTF-8");
  EXPECT_EQ(text.got, "'model: {width: 8} # gr\\xf6\\xdfe'");
  EXPECT_EQ(refusal_of_yaml("ö\xFF").where, "recipe.yaml:1:2");
  EXPECT_NO_THROW(set_.set("data.train=gr\xF6")) << "paths are bytes";
}

TEST_F(OptionSetTest, FindsTheFieldInAnotherSection) {
  EXPECT_EQ(refusal_of_yaml("train: {layers: 6}").fix, "did you mean 'model.layers'?");
  EXPECT_EQ(refusal_of_yaml("pp: 2").fix, "did you mean 'mesh.pp'?");
  EXPECT_EQ(refusal_of_yaml("train: {learning_rate: 1}").fix,
            "did you mean 'train.optimizer.learning_rate'?");
}

TEST_F(OptionSetTest, PointsToTheListWhenNothingIsNear) {
  const ErrorText text = refusal_of_yaml("train: {zebra: 6}");
  EXPECT_EQ(text.fix, "run `strata options` for the list of all fields");
  EXPECT_EQ(text.expected, "steps, optimizer, mini_batch, micro_batch, warmup, clip, seed");
}

TEST_F(OptionSetTest, RefusesAnUnknownSection) {
  const ErrorText text = refusal_of_yaml("modle: {width: 384}\n");
  EXPECT_EQ(text.where, "recipe.yaml:1:1");
  EXPECT_EQ(text.what, "unknown section 'modle'");
  EXPECT_EQ(text.expected, "model, data, train, mesh, memory");
  EXPECT_EQ(text.fix, "did you mean 'model'?");
  EXPECT_EQ(refusal_of_yaml("optimizer: {kind: sgd}").fix, "did you mean 'train.optimizer'?");
}

TEST_F(OptionSetTest, RefusesTheWrongTypeAtItsPlace) {
  const ErrorText text = refusal_of_yaml("train: {steps: many}");
  EXPECT_EQ(text.where, "recipe.yaml:1:16");
  EXPECT_EQ(text.what, "wrong type of value for 'train.steps'");
  EXPECT_EQ(text.expected, "a whole number (steps)");
  EXPECT_EQ(text.got, "'many'");
  EXPECT_EQ(options_.steps, 100) << "a refused value leaves the field alone";
}

TEST_F(OptionSetTest, RefusesNumbersInOtherForms) {
  for (const char* value : {"1_000", "1e3", "4.0", "0x10", "+4", "4 ", "", "9223372036854775808"}) {
    EXPECT_EQ(refusal_of_set("train.steps=" + std::string(value)).what,
              "wrong type of value for 'train.steps'");
  }
  for (const char* value : {"nan", "inf", ".inf", "1,5", "0.1x", "1e999"}) {
    EXPECT_EQ(refusal_of_set("train.clip=" + std::string(value)).what,
              "wrong type of value for 'train.clip'");
  }
  for (const char* value : {"yes", "True", "1", "on"}) {
    EXPECT_EQ(refusal_of_set("model.tied=" + std::string(value)).expected, "true or false");
  }
  EXPECT_EQ(refusal_of_set("memory.device=2 gigs").got, "'2 gigs'");
  EXPECT_EQ(refusal_of_set("memory.device=2 gigs").fix, "write it like 2GiB, 512MiB or 0");
  EXPECT_EQ(refusal_of_set("memory.device=8G").fix, "did you mean '8GiB'?");
}

TEST_F(OptionSetTest, RefusesAValueOutOfRangeWithTheNearestLegalOne) {
  const ErrorText low = refusal_of_yaml("model: {layers: 0}");
  EXPECT_EQ(low.what, "'model.layers' is out of range");
  EXPECT_EQ(low.expected, "at least 1 (layers)");
  EXPECT_EQ(low.got, "0");
  EXPECT_EQ(low.fix, "the nearest legal value is 1");
  const ErrorText high = refusal_of_set("mesh.pp=65");
  EXPECT_EQ(high.expected, "1 to 64 (ranks)");
  EXPECT_EQ(high.fix, "the nearest legal value is 64");
  EXPECT_EQ(refusal_of_set("model.dropout=0.95").expected, "0 to 0.9 (ratio)");
  EXPECT_EQ(refusal_of_set("memory.device=2000TiB").fix, "the nearest legal value is 1024TiB");
  EXPECT_NO_THROW(set_.set("model.dropout=0.9"));
}

TEST_F(OptionSetTest, RefusesAValueThatIsNoChoiceAndNamesTheNearest) {
  const ErrorText text = refusal_of_yaml("mesh: {schedule: 1f1}");
  EXPECT_EQ(text.what, "'1f1' is not a choice of 'mesh.schedule'");
  EXPECT_EQ(text.expected, "gpipe, 1f1b, interleaved");
  EXPECT_EQ(text.fix, "did you mean '1f1b'?");
  EXPECT_EQ(refusal_of_set("mesh.schedule=zigzag").fix, "set 'mesh.schedule' to one of these");
  EXPECT_EQ(refusal_of_set("memory.recompute=ful").fix, "did you mean 'full'?");
}

TEST_F(OptionSetTest, RefusesAFieldOrSectionGivenTwice) {
  const ErrorText field = refusal_of_yaml("train:\n  steps: 1\n  steps: 2\n");
  EXPECT_EQ(field.where, "recipe.yaml:3:3");
  EXPECT_EQ(field.what, "'train.steps' is given twice");
  EXPECT_EQ(field.got, "first at recipe.yaml:2:3");
  EXPECT_EQ(refusal_of_yaml("train: {seed: 2}\ntrain: {steps: 2}\n").what,
            "'train' is given twice");
  EXPECT_EQ(refusal_of_yaml("train: {seed: 2}\ntrain.seed: 3\n").what,
            "'train.seed' is given twice");
}

TEST_F(OptionSetTest, RefusesAValueWhereASectionIsExpected) {
  const ErrorText text = refusal_of_yaml("train: {optimizer: adamw}");
  EXPECT_EQ(text.where, "recipe.yaml:1:20");
  EXPECT_EQ(text.what, "'train.optimizer' is a section and takes no value of its own");
  EXPECT_EQ(text.expected, "its fields: kind, learning_rate");
  EXPECT_EQ(text.got, "'adamw'");
  EXPECT_EQ(text.fix, "set a field of it, such as 'train.optimizer.kind'");
  EXPECT_EQ(refusal_of_yaml("train: [1, 2]").got, "a list");
  EXPECT_EQ(refusal_of_set("train=5").expected.substr(0, 17), "its fields: steps");
}

TEST_F(OptionSetTest, RefusesASectionListOrNothingWhereAValueIsExpected) {
  const ErrorText text = refusal_of_yaml("model: {layers: {count: 6}}");
  EXPECT_EQ(text.where, "recipe.yaml:1:17");
  EXPECT_EQ(text.what, "'model.layers' takes one value");
  EXPECT_EQ(text.got, "a section");
  EXPECT_EQ(text.fix, "write it like `layers: 1`");
  EXPECT_EQ(refusal_of_yaml("model: {layers: [6]}").got, "a list");
  const ErrorText nothing = refusal_of_yaml("model:\n  layers:\n");
  EXPECT_EQ(nothing.got, "nothing");
  EXPECT_EQ(nothing.where, "recipe.yaml:2:3");
}

TEST_F(OptionSetTest, RefusesMalformedYamlAtItsPlace) {
  const ErrorText text = refusal_of_yaml("train: {steps: 1}\nmesh: {pp: 2\n");
  EXPECT_TRUE(text.where.starts_with("recipe.yaml:3:")) << text.where;
  EXPECT_TRUE(text.what.starts_with("malformed YAML: ")) << text.what;
  EXPECT_EQ(refusal_of_yaml("train: {steps: 1}\n  mesh: 2\n").where.substr(0, 14),
            "recipe.yaml:2:");
}

TEST_F(OptionSetTest, RefusesYamlThatIsNoRecipe) {
  EXPECT_EQ(refusal_of_yaml("just text").what, "a recipe is made of sections");
  EXPECT_EQ(refusal_of_yaml("- train\n- mesh\n").got, "a list");
  EXPECT_EQ(refusal_of_yaml("train: {steps: 1}\n---\ntrain: {steps: 2}\n").what,
            "a recipe is one YAML document");
  EXPECT_EQ(refusal_of_yaml("train: {[a, b]: 1}").what, "a name must be plain text");
}

TEST_F(OptionSetTest, ParserTerminatesForEveryShortText) {
  // yaml-cpp consumes nothing of some of these texts and reports empty documents forever.
  EXPECT_EQ(refusal_of_yaml(",").what, "malformed YAML: a character that begins nothing");
  EXPECT_EQ(refusal_of_yaml(",").where, "recipe.yaml:1:1");
  EXPECT_TRUE(refusal_of_yaml("train: {steps: 1}\n,\n").what.starts_with("malformed YAML"));
  const std::string alphabet = ",:-?[]{}&*!|>'\"%@`#~ \na";
  for (const char first : alphabet) {
    for (const char second : alphabet) {
      try {
        set_.load_yaml({first, second}, "recipe.yaml");
      } catch (const UserError&) {
      }
    }
  }
}

TEST_F(OptionSetTest, RefusesALongOrDeepRecipe) {
  EXPECT_EQ(refusal_of_yaml(std::string(2'000'000, 'a')).what, "the recipe is too long");
  std::string deep = "train: ";
  for (int i = 0; i < 100; ++i) deep += "[";
  for (int i = 0; i < 100; ++i) deep += "]";
  EXPECT_EQ(refusal_of_yaml(deep).what, "lists and sections are nested too deeply");
  EXPECT_TRUE(refusal_of_yaml(std::string(100'000, '[')).what.starts_with("malformed YAML"));
}

TEST_F(OptionSetTest, QuotesAtMostOneLineOfRefusedText) {
  const std::string long_text(200'000, 'x');
  for (const ErrorText& text :
       {refusal_of_set(long_text), refusal_of_set(long_text + "=1"),
        refusal_of_set("train=" + long_text), refusal_of_set("train.steps=" + long_text),
        refusal_of_set("train.steps=" + long_text + "\n1"),
        refusal_of_set("train.steps=" + std::string(200'000, '0') + "-7"),
        refusal_of_set("mesh.schedule=" + long_text), refusal_of_set("memory.device=" + long_text),
        refusal_of_yaml("train: {steps: " + long_text + "}"), refusal_of_yaml(long_text),
        refusal_of_yaml("train: {" + long_text + ": 1}"),
        refusal_of_yaml(long_text + ": {a: 1}")}) {
    for (const std::string& part : {text.where, text.what, text.got, text.fix})
      EXPECT_LT(part.size(), 200u) << part.substr(0, 300);
  }
}

TEST_F(OptionSetTest, RefusesABadAssignment) {
  const ErrorText text = refusal_of_set("train.steps");
  EXPECT_EQ(text.where, "--set");
  EXPECT_EQ(text.expected, "PATH=VALUE");
  EXPECT_EQ(refusal_of_set("train.stepz=1").fix, "did you mean 'train.steps'?");
  EXPECT_EQ(refusal_of_set("modle.width=1").fix, "did you mean 'model.width'?");
  EXPECT_EQ(refusal_of_set("train.steps.x=1").what, "unknown field 'train.steps.x'");
  EXPECT_EQ(refusal_of_set("=1").expected, "model, data, train, mesh, memory");
}

TEST_F(OptionSetTest, ThrowsInternalErrorForInvalidDescription) {
  std::int64_t number = 0;
  EXPECT_THROW(set_.add("train.steps", &number, {.help = "Twice."}), InternalError);
  EXPECT_THROW(set_.add("train", &number, {.help = "A section."}), InternalError);
  EXPECT_THROW(set_.add("train.steps.more", &number, {.help = "Below a field."}), InternalError);
  EXPECT_THROW(set_.add("train.zero", &number, {.help = "Bad default.", .minimum = 1}),
               InternalError);
  for (const char* path : {"", ".a", "a.", "a..b"}) {
    EXPECT_THROW(set_.add(path, &number, {.help = "Bad path."}), InternalError) << path;
  }
  EXPECT_THROW(set_.where("train.nothing"), InternalError);
}

}  // namespace
}  // namespace strata
