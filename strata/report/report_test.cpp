#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <map>
#include <regex>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/base/units.h"
#include "strata/report/example_report_test.h"
#include "strata/report/idle.h"
#include "strata/report/report.h"

namespace strata {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool contains(const nlohmann::json& list, const nlohmann::json& value) {
  return std::ranges::find(list, value) != list.end();
}

// The styles of a legend by their words.
std::map<std::string, std::string> legend_of(const nlohmann::json& card) {
  std::map<std::string, std::string> styles;
  for (const nlohmann::json& key : card["legend"]) styles[key["words"]] = key["style"];
  return styles;
}

// The row of a table that has that name.
nlohmann::json row_of(const nlohmann::json& card, const std::string& name) {
  for (const nlohmann::json& row : card["table"]["rows"])
    if (row[0] == name) return row;
  return nullptr;
}

Tile tile_of(const ReportInput& input, const std::string& name) {
  for (const Tile& tile : page_of(input).tiles)
    if (tile.name == name) return tile;
  return {};
}

TEST(Report, HasNoExternalResources) {
  const std::string html = to_html(example_report());
  for (const char* reference :
       {"http://", "https://", "src=", "@import", "<link", "url(\"", "fetch("}) {
    EXPECT_FALSE(contains(html, reference)) << reference;
  }
}

TEST(Report, ClosesEveryTag) {
  const std::string html = to_html(example_report());
  for (const std::string tag : {"html", "head", "title", "body", "main", "header", "div", "svg",
                                "style", "script", "noscript"}) {
    EXPECT_GE(count(html, "</" + tag + ">"), 1u) << tag;
    EXPECT_EQ(count(html, "<" + tag + ">") + count(html, "<" + tag + " "),
              count(html, "</" + tag + ">"))
        << tag;
  }
}

TEST(Report, HoldsOneJsonOfItsPage) {
  const ReportInput input = example_report();
  const std::string html = to_html(input);
  const std::string begin = "<script id=\"run\" type=\"application/json\">";
  ASSERT_EQ(count(html, begin), 1u);
  const std::size_t at = html.find(begin) + begin.size();
  EXPECT_EQ(nlohmann::json::parse(html.substr(at, html.find("</script>", at) - at)),
            nlohmann::json(page_of(input)));
}

TEST(Report, ShowsResultTables) {
  ReportInput input = example_report();
  input.tables = {{.title = "Hot ids of <user>",
                   .note = "7 rows & more.",
                   .columns = {"id", "updates"},
                   .rows = {{"42", "17"}, {"43", "<b>"}}}};
  const nlohmann::json card = card_of(input, "Hot ids of <user>");
  EXPECT_EQ(card["caption"], "7 rows & more.");
  EXPECT_EQ(card["table"],
            R"({"columns": ["id", "updates"], "rows": [["42", "17"], ["43", "<b>"]]})"_json);
  EXPECT_FALSE(contains(to_html(input), "<b>"));
}

TEST(Report, KindOfBytesHasSameColourInEveryReport) {
  ReportInput one = example_report(1), two = example_report(2);
  one.host_memory = {{.kinds = {{"weights", 1 << 20}, {"staging", 1 << 20}}}};
  auto some = legend_of(card_of(one, "memory")), all = legend_of(card_of(two, "memory"));
  EXPECT_FALSE(some.contains("tied copies")) << "no rank has any";
  EXPECT_EQ(all["tied copies"], "kind3");
  for (const char* kind : {"weights", "optimizer states", "values", "batch"})
    EXPECT_EQ(some[kind], all[kind]) << kind;
  EXPECT_EQ(some["staging"], "kind8");
}

TEST(Report, KindOfWorkHasOwnColourInBarsAndTimeline) {
  const std::string css(kReportStyleSheet);
  std::map<std::string, std::string> uses;
  const std::regex use(R"(\.(use\d+) \{ background: ([^}]+); \})");
  for (auto it = std::sregex_iterator(css.begin(), css.end(), use); it != std::sregex_iterator();
       ++it)
    EXPECT_TRUE(uses.emplace((*it)[2], (*it)[1]).second) << (*it)[0];
  ASSERT_EQ(uses.size(), static_cast<std::size_t>(kNumTimeUses));
  const auto style = [](TimeUse of) { return "use" + std::to_string(static_cast<int>(of)); };
  EXPECT_EQ(uses["var(--forward)"], style(TimeUse::kCompute));
  EXPECT_EQ(uses["var(--update)"], style(TimeUse::kUpdate));
  EXPECT_EQ(uses["var(--send)"], style(TimeUse::kTransfer));
  EXPECT_EQ(uses["var(--rows)"], style(TimeUse::kRows));
  for (const char* other : {"recompute", "backward", "offload", "validation"})
    EXPECT_FALSE(uses.contains(std::string("var(--") + other + ")")) << other;
}

TEST(Report, KeepsFactsInOrder) {
  ReportInput input = example_report();
  input.facts = {{"program", "strata 1.2.3"}, {"recipe", "a.yaml"}};
  EXPECT_EQ(nlohmann::json(page_of(input))["facts"],
            R"([["program", "strata 1.2.3"], ["recipe", "a.yaml"]])"_json);
}

TEST(Report, DrawsEveryComputeActionPredictedAndMeasured) {
  const nlohmann::json card = card_of(example_report(2, 8), "timeline");
  const std::vector<nlohmann::json> spans = spans_of(card);
  EXPECT_EQ(count_with(spans, "style", "forward"), 2 * 2 * 8);
  EXPECT_EQ(count_with(spans, "style", "recompute"), 2 * 8);  // one layer of rank 0
  EXPECT_EQ(count_with(spans, "style", "update"), 2 * 2);
  for (const nlohmann::json& rank : card["timeline"]["ranks"]) {
    ASSERT_EQ(rank["rows"].size(), 2u);
    EXPECT_EQ(rank["rows"][0]["name"], "predicted");
    EXPECT_EQ(rank["rows"][1]["name"], "measured");
  }
}

TEST(Report, DrawsTracksOfRankPredictedOverMeasured) {
  ReportInput input = example_report(1);
  input.predicted = example_offloaded_step(6, 1.0, 0);
  input.measured = example_offloaded_step(6, 1.05, 5000);
  const nlohmann::json card = card_of(input, "timeline");
  const std::vector<nlohmann::json> spans = spans_of(card);
  EXPECT_EQ(count_with(spans, "style", "fetch"), 2 * (6 + 4));
  EXPECT_EQ(count_with(spans, "style", "offload"), 2 * 6);
  EXPECT_EQ(count_with(spans, "style", "update"), 2 * 6);
  std::vector<std::string> tracks;  // without the idle ones of the disk
  for (const nlohmann::json& row : card["timeline"]["ranks"][0]["rows"]) {
    if (!row["is_track"]) continue;
    tracks.push_back(row["name"]);
    EXPECT_EQ(row["sides"][0]["name"], "predicted");
    EXPECT_EQ(row["sides"][1]["name"], "measured");
  }
  EXPECT_EQ(tracks, std::vector<std::string>({"link in", "link out", "host update"}));
  const auto has = [&](const char* side, const std::string& title) {
    return std::ranges::any_of(spans, [&](const auto& span) {
      return span["side"] == side && span["title"].template get<std::string>().starts_with(title);
    });
  };
  EXPECT_TRUE(has("predicted", "weights to the device\nlayer 0\n60 ms"));
  EXPECT_TRUE(has("measured", "weights to the device\nlayer 0\n63 ms"));
  EXPECT_TRUE(contains(card["caption"].get<std::string>(), "the numbers are layers"));
  const auto uses = legend_of(card_of(input, "idle"));
  EXPECT_TRUE(uses.contains("link"));
  EXPECT_FALSE(uses.contains("disk"));
  for (const nlohmann::json of = card_of(example_report(), "timeline");
       const nlohmann::json& rank : of["timeline"]["ranks"])
    for (const nlohmann::json& row : rank["rows"]) EXPECT_FALSE(row["is_track"]);
}

TEST(Report, DrawsPredictedAndMeasuredOnOneAxis) {
  const ReportInput input = example_report(2, 4);
  const nlohmann::json card = card_of(input, "timeline");
  const double axis = card["timeline"]["seconds"];
  EXPECT_GE(axis, input.measured.step_seconds);
  for (const nlohmann::json& span : spans_of(card)) {
    EXPECT_GE(span["begin"], 0.0);  // the measured clock started at 5000 s
    EXPECT_LE(span["end"], axis + 1e-5);
  }
  const nlohmann::json ends = card["timeline"]["ends"];
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_NEAR(ends[0]["at"], input.predicted.step_seconds, 1e-6);
  EXPECT_NEAR(ends[1]["at"], input.measured.step_seconds, 1e-6);
  EXPECT_EQ(ends[1]["words"], "measured " + format_seconds(input.measured.step_seconds));
}

TEST(Report, ShowsTimeOfEveryRankByUse) {
  ReportInput input = example_report(2, 8);
  const auto bars = [&](const std::string& side) {
    std::int64_t found = 0;
    for (const nlohmann::json of = card_of(input, "idle"); const nlohmann::json& row : of["bars"])
      found += count_with(row["bars"], "style", side);
    return found;
  };
  EXPECT_EQ(bars("predicted"), 2);
  EXPECT_EQ(bars("measured"), 2);
  const std::vector<nlohmann::json> segments = segments_of(card_of(input, "idle"));
  for (const std::string use : {"measured compute: ", "measured fill and drain: "})
    EXPECT_EQ(std::ranges::count_if(segments,
                                    [&](const auto& segment) {
                                      return contains(segment["title"].template get<std::string>(),
                                                      use);
                                    }),
              2)
        << use;
  input.measured.ranks[1].clear();  // a rank of another process
  EXPECT_EQ(bars("measured"), 1);
  input.measured = {};
  EXPECT_EQ(bars("measured"), 0);
}

TEST(Report, ComparesPlanWithRun) {
  ReportInput input = example_report();
  input.step_seconds = {.predicted = 0.128, .measured = 0.521};
  input.bubble = {.predicted = 0.10, .measured = 0.125};
  input.step_miss = "a miss of <50 ms>";
  input.memory = {{.predicted_peak = 95 << 20, .measured_peak = 100 << 20}};
  const nlohmann::json card = card_of(input, "comparison");
  EXPECT_TRUE(contains(card["caption"].get<std::string>(), "\na miss of <50 ms>"));
  EXPECT_EQ(card["table"]["rows"],
            nlohmann::json({{"Step time", "128 ms", "521 ms", "+307.0\u00a0%"},
                            {"Bubble", "10.0 %", "12.5 %", "+2.5 points"},
                            {"Peak memory, rank 0", "95.00 MiB", "100.00 MiB", "+5.3\u00a0%"}}));
  EXPECT_EQ(tile_of(input, "Step time").note, "predicted 128 ms, +307.0\u00a0%");
  EXPECT_EQ(card_of(input, "memory")["bars"][0]["figures"][1],
            nlohmann::json({{"value", "100.00 MiB"}, {"note", "measured, +5.3\u00a0%"}}));
}

TEST(Report, ShowsHostMemoryOfRankBelowItsDevice) {
  ReportInput input = example_report(2);
  for (const nlohmann::json of = card_of(input, "memory"); const nlohmann::json& row : of["bars"])
    EXPECT_NE(row["name"], "rank 0, host");
  constexpr std::int64_t kMiB = 1 << 20;
  for (int rank = 0; rank < 2; ++rank)
    input.host_memory.push_back({.kinds = {{"weights", 400 * kMiB}, {"staging", 200 * kMiB}},
                                 .predicted_peak = 600 * kMiB,
                                 .measured_peak = 500 * kMiB});
  const nlohmann::json card = card_of(input, "memory"), rows = card["bars"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[2]["name"], "rank 1");
  EXPECT_EQ(rows[3]["name"], "rank 1, host");
  EXPECT_EQ(count_with(segments_of(card), "title", "staging: 200.00 MiB of 600.00 MiB predicted"),
            2);
  EXPECT_GT(rows[2]["budget_percent"], 0);
  EXPECT_EQ(rows[3]["budget_percent"], 0);  // the budget is the device's
  const nlohmann::json row = row_of(card_of(input, "comparison"), "Peak memory, rank 1, host");
  EXPECT_EQ(row[1], "600.00 MiB");
  EXPECT_EQ(row[2], "500.00 MiB");
  EXPECT_EQ(row[3], "\u221216.7\u00a0%");
}

TEST(Report, KeepsSampleWithAnyBytesInsideItsScript) {
  ReportInput input = example_report();
  const std::string safe = to_html(input);
  input.sample = "</blockquote></script><script><!--\xFF\x01";
  input.title = input.prompt = "</script><img src=x onerror=alert(1)>";
  const std::string html = to_html(input);
  EXPECT_EQ(count(html, "</script"), count(safe, "</script"));
  EXPECT_EQ(count(html, "<script"), count(safe, "<script"));
  EXPECT_EQ(count(html, "<!--"), 0u);
  EXPECT_EQ(count(html, "<img"), 0u);
  EXPECT_FALSE(contains(html, "\xFF"));
  EXPECT_FALSE(contains(html, "\x01"));
  EXPECT_TRUE(contains(
      html, "\\u003c/blockquote>\\u003c/script>\\u003cscript>\\u003c!--\xEF\xBF\xBD\\u0001"));
}

// A recommender of two tables; the embeddings of each step are up to 5 updates stale.
ReportInput example_recommender() {
  ReportInput input = example_report();
  input.unit = "sample";
  input.prompt = input.sample = "";
  input.validation_metrics = {{"auc", 0.8125}, {"calibration", 1.01}};
  input.embeddings = {{"user <id>", {.rows = 1000, .bytes = 1 << 20, .parameters = 16'000}},
                      {"words",
                       {.rows = 5000,
                        .bytes = 6 << 20,
                        .cold_rows = 500,
                        .cold_bytes = 1 << 20,
                        .parameters = 44'000}}};
  input.rows_are_local = true;
  for (StepRecord& record : input.records) {
    record.unit = "sample";
    record.embedding =
        EmbeddingRecord{.wait_seconds = record.step == 7 ? 0.5 : 0.0,
                        .staleness = {{"user <id>", {1, 2, 3}}, {"words", {0, 0, 0, 0, 5, 6}}},
                        .size = sum_of(input.embeddings)};
    if (record.validation_loss)
      record.validation_metrics = {{"auc", 0.7 + 0.0001 * static_cast<double>(record.step)}};
  }
  return input;
}

TEST(Report, ShowsSizesOfRecommenderTables) {
  const ReportInput input = example_recommender();
  const nlohmann::json card = card_of(input, "embeddings"), rows = card["table"]["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0],
            R"(["all tables", "6 k", "7.00 MiB", "500", "1.00 MiB", "60 k", "100.0 %"])"_json);
  EXPECT_EQ(rows[1], R"(["words", "5 k", "6.00 MiB", "500", "1.00 MiB", "44 k", "87.5 %"])"_json);
  EXPECT_EQ(rows[2][0], "user <id>");
  EXPECT_EQ(rows[2][1], "1 k");
  EXPECT_TRUE(contains(card["caption"].get<std::string>(), "in the process of rank 0"));
  const Tile tile = tile_of(input, "Embeddings");
  EXPECT_EQ(tile.value, "8.00 MiB");
  EXPECT_EQ(tile.note, "6.5 k rows, 60 k parameters");
  const nlohmann::json memory = card_of(input, "memory")["bars"].back();
  EXPECT_EQ(memory["name"], "embeddings, host");
  EXPECT_EQ(memory["figures"], R"([{"value": "7.00 MiB", "note": "measured"}])"_json);
}

TEST(Report, DrawsLossAndAucOfEachValidation) {
  const nlohmann::json loss = card_of(example_recommender(), "loss");
  const nlohmann::json auc = card_of(example_recommender(), "auc");
  // After every fiftieth of 400 steps; the validation of the last step is the one at the end.
  ASSERT_EQ(loss["curves"].size(), 3u);
  EXPECT_EQ(loss["curves"][2]["points"].size(), 8u);
  EXPECT_EQ(loss["curves"][2]["dots"], true);
  ASSERT_EQ(auc["curves"].size(), 1u);
  EXPECT_EQ(auc["curves"][0]["points"].size(), 8u);
  EXPECT_TRUE(contains(auc["curves"][0]["points"], R"([350, 0.735])"_json));
  EXPECT_EQ(auc["curves"][0]["name"], "validation");
  EXPECT_EQ(loss["curves"][0]["name"], "training");
  EXPECT_EQ(loss["curves"][1]["name"], "");  // the smoothed one
  EXPECT_EQ(tile_of(example_recommender(), "AUC").value, "0.8125");
  EXPECT_TRUE(contains(loss["caption"].get<std::string>(), "Mean over the samples of a step"));
  ReportInput once = example_recommender();
  for (StepRecord& record : once.records)
    record.validation_loss = {}, record.validation_metrics = {};
  EXPECT_TRUE(contains(card_of(once, "auc")["caption"].get<std::string>(),
                       "set train.validate_every for more"));
  EXPECT_TRUE(card_of(example_report(), "auc").is_null());
}

TEST(Report, ShowsStalenessAndWaitsForEmbeddings) {
  const nlohmann::json card = card_of(example_recommender(), "staleness");
  // 400 steps; staleness of 4 and 5 updates is one class.
  EXPECT_EQ(card["table"]["columns"], R"(["rows read", "in all", "lacked 0", "lacked 1", "lacked 2",
                                          "lacked 4 to 7"])"_json);
  const nlohmann::json rows = card["table"]["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0], R"(["all tables", "6800", "400", "800", "1200", "4400"])"_json);
  EXPECT_EQ(rows[1], R"(["words", "4400", "0", "0", "0", "4400"])"_json);
  EXPECT_EQ(rows[2], R"(["user <id>", "2400", "400", "800", "1200", "0"])"_json);
  EXPECT_EQ(row_of(card, "words"), rows[1]);
  const nlohmann::json bars = card["bars"];
  EXPECT_EQ(bars[2]["figures"], R"([{"value": "1.33", "note": "lacked on average"}])"_json);
  EXPECT_EQ(
      bars[0]["bars"][0]["segments"].back(),
      R"({"style": "kind4", "title": "lacked 4 to 7: 4.4 k rows, 64.7 %", "percent": 64.706})"_json);
  EXPECT_TRUE(contains(card["caption"].get<std::string>(), "the longest was 500 ms, in step 7."));
  EXPECT_TRUE(card_of(example_report(), "staleness").is_null());
}

TEST(Report, OmitsLossesThatAreNotNumbers) {
  ReportInput input = example_report();
  input.records[3].loss = std::numeric_limits<double>::quiet_NaN();
  input.records[4].loss = std::numeric_limits<double>::infinity();
  EXPECT_EQ(card_of(input, "loss")["curves"][0]["points"].size(), 398u);
  EXPECT_FALSE(contains(script_json(page_of(input)), "null"));
}

TEST(Report, DrawsLongRunWithAtMostOnePointPerPixel) {
  ReportInput input = example_report();
  input.records = example_records(100'000);
  EXPECT_EQ(card_of(input, "loss")["curves"][0]["points"].size(), 1493u);  // means of 67 steps
  EXPECT_LT(to_html(input).size(), 200'000u);
}

TEST(Report, OmitsSectionsWithoutData) {
  const nlohmann::json page = page_of({.title = "empty"});
  EXPECT_EQ(page["title"], "empty");
  for (const char* part : {"facts", "tiles", "cards", "appendices"})
    EXPECT_TRUE(page[part].empty()) << part;
}

TEST(Report, ShowsPlanWithoutRun) {
  ReportInput input = example_report();
  input.measured = {};
  input.records.clear();
  input.step_seconds.measured = 0;
  for (ReportMemory& rank : input.memory) rank.measured_peak = 0;
  const std::vector<nlohmann::json> spans = spans_of(card_of(input, "timeline"));
  EXPECT_GT(count_with(spans, "side", "predicted"), 0);
  EXPECT_EQ(count_with(spans, "side", "measured"), 0);
  EXPECT_TRUE(card_of(input, "comparison").is_null());
}

TEST(Report, NamesBudgetFarAbovePeaksWithoutDrawingIt) {
  ReportInput input = example_report();
  EXPECT_GT(card_of(input, "memory")["bars"][0]["budget_percent"], 0);
  input.budget_bytes = std::int64_t{64} << 30;
  const nlohmann::json card = card_of(input, "memory");
  EXPECT_EQ(card["bars"][0]["budget_percent"], 0);
  EXPECT_TRUE(contains(card["caption"].get<std::string>(), "64.00 GiB"));
}

TEST(Report, ErrorNamesFileThatCannotBeWritten) {
  try {
    write_report("/nonexistent/report.html", {});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "/nonexistent/report.html");
  }
}

// A recommender whose names are all markup.
ReportInput hostile_report() {
  const std::string name = "</script><img src=x onerror=\"window.hacked = true\"><!--";
  ReportInput input = example_recommender();
  input.title = input.prompt = name;
  input.sample = name + "\xFF\x01";
  input.facts = {{name, name}, {"long", std::string(61, 'x')}};
  input.embeddings[0].table = name;
  for (StepRecord& record : input.records) record.embedding->staleness[0].first = name;
  for (ReportMemory& rank : input.memory) rank.kinds[0].first = name;
  input.tables = {{.title = name, .note = name, .columns = {name, name}, .rows = {{name, name}}}};
  input.appendices = {{name, name}};
  return input;
}

ReportInput example_named(const std::string& name) {
  ReportInput input = example_report();
  if (name == "recommender") return example_recommender();
  if (name == "hostile") return hostile_report();
  if (name == "offload") {
    input.predicted = example_offloaded_step(6, 1.0, 0);
    input.measured = example_offloaded_step(6, 1.05, 5000);
  }
  if (name == "devices") {
    input.predicted = example_device_step(12, 1.0, 0);
    input.measured = example_device_step(12, 1.1, 5000);
  }
  return input;
}

// For viewing, and for tests/report/page_test.py: STRATA_REPORT=/tmp/report.html report_test
// --gtest_filter=Report.*; STRATA_REPORT_EXAMPLE names another example.
TEST(Report, IsWrittenToFileForViewing) {
  const char* path = std::getenv("STRATA_REPORT");
  const char* name = std::getenv("STRATA_REPORT_EXAMPLE");
  const ScratchFolder folder;
  const std::string file = path ? path : folder.path("report.html");
  write_report(file, example_named(name ? name : ""));
  EXPECT_TRUE(path || std::remove(file.c_str()) == 0);
}

TEST(ScriptJson, ReplacesInvalidUtf8) {
  const std::string replacement = "\xEF\xBF\xBD";
  const auto written = [](const std::string& text) {
    return nlohmann::json::parse(script_json({.title = text}))["title"].get<std::string>();
  };
  EXPECT_EQ(written("a\xFFz"), "a" + replacement + "z");
  EXPECT_EQ(written("\x80"), replacement);                       // a continuation without a start
  EXPECT_EQ(written("\xC3"), replacement);                       // a start without continuation
  EXPECT_EQ(written("\xC0\xAF"), replacement + replacement);     // '/' in more bytes than it needs
  EXPECT_EQ(written("\xED\xA0\x80").substr(0, 3), replacement);  // half of a surrogate pair
  EXPECT_EQ(written("\xF5\x80\x80\x80").substr(0, 3), replacement);  // beyond the last character
  const std::string letters = "a\tb\ngr\u00fc\u00df \u05d0 \u4e2d \U0001F600 \"&'<>";
  EXPECT_EQ(written(letters), letters);
}

TEST(SignedPercent, AlwaysHasSign) {
  EXPECT_EQ(signed_percent(0.0312), "+3.1\u00a0%");
  EXPECT_EQ(signed_percent(-0.05), "\u22125.0\u00a0%");
  EXPECT_EQ(signed_percent(-0.0004), "0.0\u00a0%");
}

// The devices of both ranks, predicted and measured, with their numbers below the tracks.
TEST(Report, ShowsWorkOfDevices) {
  ReportInput input = example_report(2);
  input.predicted = example_device_step(12, 1.0, 0);
  input.measured = example_device_step(12, 1.1, 5000);
  std::map<std::string, int> tracks;
  for (const nlohmann::json of = card_of(input, "timeline");
       const nlohmann::json& rank : of["timeline"]["ranks"])
    for (const nlohmann::json& row : rank["rows"])
      if (row["is_track"]) ++tracks[row["name"]];
  EXPECT_EQ(tracks, (std::map<std::string, int>{{"device", 2}, {"collectives", 2}}));
  const nlohmann::json idle = card_of(input, "idle");
  EXPECT_TRUE(contains(idle["note"].get<std::string>(), "what those did stands below"));
  EXPECT_FALSE(idle.contains("table"));  // numbers of hosts that only launch
  // Twelve forwards of 4 ms, backwards of 8, and the update.
  const std::string busy = row_of(card_of(input, "devices"), "rank 0, predicted")[1];
  EXPECT_TRUE(busy.starts_with(format_seconds(12 * 0.012 + 0.004) + ", ")) << busy;
}

// A pipeline of two ranks waits and communicates, but not for memory.
TEST(Report, ShowsExposedTimeInNumbers) {
  const nlohmann::json card = card_of(example_report(2, 8), "idle");
  EXPECT_EQ(card["table"]["columns"],
            R"(["", "work", "exposed communication", "waits for other ranks"])"_json);
  std::vector<std::string> names;
  for (const nlohmann::json& row : card["table"]["rows"]) names.push_back(row[0]);
  EXPECT_EQ(names, std::vector<std::string>({"rank 0, predicted", "rank 0, measured",
                                             "rank 1, predicted", "rank 1, measured"}));
  // Rank 1's step has 8 x (60 + 126 ms) of work and 36 ms of update.
  EXPECT_EQ(row_of(card, "rank 1, predicted")[1], format_seconds(8 * (0.06 + 0.126) + 0.036));
}

}  // namespace
}  // namespace strata
