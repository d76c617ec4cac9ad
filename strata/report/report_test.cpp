#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <map>
#include <regex>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/base/units.h"
#include "strata/report/example_report_test.h"
#include "strata/report/html.h"
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

TEST(Report, HasNoExternalResources) {
  const std::string html = to_html(example_report());
  for (const char* reference :
       {"http://", "https://", "src=", "@import", "<link", "url(\"", "fetch("}) {
    EXPECT_FALSE(contains(html, reference)) << reference;
  }
}

TEST(Report, ClosesEveryTag) {
  const std::string html = to_html(example_report());
  for (const std::string tag : {"html", "body", "main", "section", "div", "svg", "g", "table", "dl",
                                "details", "script", "style", "text", "title", "span", "button"}) {
    EXPECT_EQ(count(html, "<" + tag + ">") + count(html, "<" + tag + " "),
              count(html, "</" + tag + ">"))
        << tag;
  }
}

TEST(Report, ShowsResultTables) {
  ReportInput input = example_report();
  input.tables = {{.title = "Hot ids of <user>",
                   .note = "7 rows & more.",
                   .columns = {"id", "updates"},
                   .rows = {{"42", "17"}, {"43", "<b>"}}}};
  EXPECT_TRUE(contains(to_html(input), "<td data-name=\"updates\">17</td>"));
  const std::string html = without_names(to_html(input));
  EXPECT_TRUE(contains(html, "<h2>Hot ids of &lt;user&gt;</h2><p>7 rows &amp; more.</p>"));
  EXPECT_TRUE(contains(html, "<th scope=\"col\">id</th><th scope=\"col\">updates</th>"));
  EXPECT_TRUE(contains(html, "<tr><th scope=\"row\">42</th><td>17</td></tr>"));
  EXPECT_TRUE(contains(html, "<td>&lt;b&gt;</td>"));
  EXPECT_EQ(count(html, "<table>"), count(html, "</table>"));
}

// The class of the box before a word of a legend.
std::string colour_of(const std::string& html, const std::string& word) {
  std::smatch match;
  const std::regex key("<i class=\"box ([a-z0-9]+)\"></i>" + word + "</span>");
  return std::regex_search(html, match, key) ? match[1].str() : "none";
}

TEST(Report, KindOfBytesHasSameColourInEveryReport) {
  ReportInput one = example_report(1), two = example_report(2);
  one.host_memory = {{.kinds = {{"weights", 1 << 20}, {"staging", 1 << 20}}}};
  const std::string some = to_html(one), all = to_html(two);
  EXPECT_EQ(colour_of(some, "tied copies"), "none") << "no rank has any";
  EXPECT_EQ(colour_of(all, "tied copies"), "kind3");
  for (const char* kind : {"weights", "optimizer states", "values", "batch"})
    EXPECT_EQ(colour_of(some, kind), colour_of(all, kind)) << kind;
  EXPECT_EQ(colour_of(some, "staging"), "kind8");
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

TEST(Report, ShowsFactsAndLongOnesOnTheirOwnLine) {
  ReportInput input = example_report();
  input.facts = {{"program", "strata 1.2.3"}, {"recipe", "a.yaml " + std::string(60, 'x')}};
  const std::string html = to_html(input);
  EXPECT_TRUE(contains(html, "<div><dt>program</dt><dd>strata 1.2.3</dd></div>"));
  EXPECT_TRUE(contains(html, "<div class=\"wide\"><dt>recipe</dt><dd>a.yaml xxx"));
}

TEST(Report, DrawsEveryComputeActionPredictedAndMeasured) {
  const std::string html = to_html(example_report(2, 8));
  EXPECT_EQ(count(html, "class=\"span forward\""), 2u * 2 * 8);
  EXPECT_EQ(count(html, "class=\"span recompute\""), 2u * 8);  // one layer of rank 0
  EXPECT_EQ(count(html, "class=\"span update\""), 2u * 2);
  EXPECT_EQ(count(html, "<g class=\"predicted\">"), 2u);
  EXPECT_EQ(count(html, "<g class=\"measured\">"), 2u);
}

TEST(Report, DrawsTracksOfRankPredictedOverMeasured) {
  ReportInput input = example_report(1);
  input.predicted = example_offloaded_step(6, 1.0, 0);
  input.measured = example_offloaded_step(6, 1.05, 5000);
  const std::string html = to_html(input);
  EXPECT_EQ(count(html, "class=\"span fetch\""), 2u * (6 + 4));
  EXPECT_EQ(count(html, "class=\"span offload\""), 2u * 6);
  EXPECT_EQ(count(html, "class=\"span update\""), 2u * 6);
  EXPECT_EQ(count(html, "class=\"lane predicted\""), 3u);
  EXPECT_EQ(count(html, "class=\"lane measured\""), 3u);
  for (const char* lane : {">link in</text>", ">link out</text>", ">host update</text>"})
    EXPECT_EQ(count(html, lane), 1u) << lane;
  EXPECT_FALSE(contains(html, ">disk read</text>"));  // an idle track
  EXPECT_TRUE(contains(html, "rank 0, predicted: weights to the device\nlayer 0\n60 ms"));
  EXPECT_TRUE(contains(html, "rank 0, measured: weights to the device\nlayer 0\n63 ms"));
  EXPECT_TRUE(contains(html, "the numbers are layers"));
  EXPECT_TRUE(contains(html, "title=\"measured link: "));
  EXPECT_FALSE(contains(html, "title=\"measured disk: "));
  EXPECT_FALSE(contains(to_html(example_report()), "class=\"lane"));
}

TEST(Report, DrawsPredictedAndMeasuredOnOneAxis) {
  const ReportInput input = example_report(2, 4);
  const std::string html = to_html(input);
  std::smatch match;
  ASSERT_TRUE(std::regex_search(html, match, std::regex("data-seconds=\"([0-9.]+)\"")));
  const double axis = std::stod(match[1]);
  EXPECT_GE(axis, input.measured.step_seconds);
  const std::regex span("data-b=\"(-?[0-9.]+)\" data-e=\"([0-9.]+)\"");
  for (auto it = std::sregex_iterator(html.begin(), html.end(), span); it != std::sregex_iterator();
       ++it) {
    EXPECT_GE(std::stod((*it)[1]), 0);  // the measured clock started at 5000 s
    EXPECT_LE(std::stod((*it)[2]), axis + 1e-5);
  }
}

TEST(Report, ShowsTimeOfEveryRankByUse) {
  ReportInput input = example_report(2, 8);
  const std::string html = to_html(input);
  ASSERT_TRUE(contains(html, "id=\"idle\""));
  EXPECT_EQ(count(html, "<div class=\"bar predicted\">"), 2u);
  EXPECT_EQ(count(html, "<div class=\"bar measured\">"), 2u);
  EXPECT_EQ(count(html, "title=\"measured compute: "), 2u);
  EXPECT_EQ(count(html, "title=\"measured fill and drain: "), 2u);
  input.measured.ranks[1].clear();  // a rank of another process
  EXPECT_EQ(count(to_html(input), "<div class=\"bar measured\">"), 1u);
  input.measured = {};
  EXPECT_EQ(count(to_html(input), "<div class=\"bar measured\">"), 0u);
}

TEST(Report, ComparesPlanWithRun) {
  ReportInput input = example_report();
  input.step_seconds = {.predicted = 0.128, .measured = 0.521};
  input.bubble = {.predicted = 0.10, .measured = 0.125};
  input.step_miss = "a miss of <50 ms>";
  input.memory = {{.predicted_peak = 95 << 20, .measured_peak = 100 << 20}};
  const std::string html = without_names(to_html(input));
  EXPECT_TRUE(contains(html, "a miss of &lt;50 ms&gt;"));
  EXPECT_TRUE(contains(html, "<td>128 ms</td><td>521 ms</td><td>+307.0\u00a0%</td>"));
  EXPECT_TRUE(contains(html, "predicted 128 ms, +307.0\u00a0%"));
  EXPECT_TRUE(contains(html, "<td>10.0 %</td><td>12.5 %</td><td>+2.5 points</td>"));
  EXPECT_TRUE(contains(html, "<td>95.00 MiB</td><td>100.00 MiB</td><td>+5.3\u00a0%</td>"));
  EXPECT_TRUE(contains(html, "100.00 MiB <em>measured, +5.3\u00a0%</em>"));
}

TEST(Report, ShowsHostMemoryOfRankBelowItsDevice) {
  ReportInput input = example_report(2);
  EXPECT_FALSE(contains(to_html(input), "rank 0, host"));
  constexpr std::int64_t kMiB = 1 << 20;
  for (int rank = 0; rank < 2; ++rank)
    input.host_memory.push_back({.kinds = {{"weights", 400 * kMiB}, {"staging", 200 * kMiB}},
                                 .predicted_peak = 600 * kMiB,
                                 .measured_peak = 500 * kMiB});
  const std::string html = without_names(to_html(input));
  EXPECT_EQ(count(html, "<div class=\"rank\">rank 1, host</div>"), 1u);
  EXPECT_EQ(count(html, "staging: 200.00 MiB of 600.00 MiB predicted"), 2u * 2);  // tip and title
  EXPECT_EQ(count(html, "<div class=\"budget\""), 2u);                            // the device's
  EXPECT_TRUE(contains(
      html, "Peak memory, rank 1, host</th><td>600.00 MiB</td><td>500.00 MiB</td><td>\u221216.7"));
}

TEST(Report, EscapesSampleWithAnyBytes) {
  ReportInput input = example_report();
  input.sample = "</blockquote><script>\xFF\x01";
  const std::string html = to_html(input);
  EXPECT_FALSE(contains(html, "</blockquote><script>\xFF"));
  EXPECT_TRUE(contains(html, "&lt;/blockquote&gt;&lt;script&gt;"));
  EXPECT_FALSE(contains(html, "\xFF"));
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
  const std::string html = without_names(to_html(example_recommender()));
  EXPECT_TRUE(contains(html,
                       "<tr><th scope=\"row\">all tables</th><td>6 k</td><td>7.00 MiB</td>"
                       "<td>500</td><td>1.00 MiB</td><td>60 k</td><td>100.0 %</td></tr>"
                       "<tr><th scope=\"row\">words</th><td>5 k</td><td>6.00 MiB</td>"
                       "<td>500</td><td>1.00 MiB</td><td>44 k</td><td>87.5 %</td></tr>"
                       "<tr><th scope=\"row\">user &lt;id&gt;</th><td>1 k</td>"));
  EXPECT_TRUE(contains(html, "in the process of rank 0"));
  EXPECT_TRUE(contains(html,
                       "<div class=\"name\">Embeddings</div><div class=\"value\">8.00<small> "
                       "MiB</small></div><div class=\"note\">6.5 k rows, 60 k parameters"));
  EXPECT_TRUE(contains(html, "<div class=\"rank\">embeddings, host</div>"));
  EXPECT_TRUE(contains(html, "<span>7.00 MiB <em>measured</em></span>"));
}

TEST(Report, DrawsLossAndAucOfEachValidation) {
  const std::string html = to_html(example_recommender());
  const auto section = [&](const std::string& name) {
    const std::size_t begin = html.find("id=\"" + name + "\"");
    return html.substr(begin, html.find("</section>", begin) - begin);
  };
  // After every fiftieth of 400 steps; the validation of the last step is the one at the end.
  EXPECT_EQ(count(section("loss"), "<circle"), 8u);
  EXPECT_EQ(count(section("auc"), "<circle"), 8u);
  EXPECT_TRUE(contains(section("auc"), "[350.0,0.735]"));
  EXPECT_FALSE(contains(section("auc"), "training"));
  EXPECT_TRUE(contains(html, "<div class=\"name\">AUC</div><div class=\"value\">0.8125</div>"));
  EXPECT_TRUE(contains(html, "Mean over the samples of a step"));
  ReportInput once = example_recommender();
  for (StepRecord& record : once.records)
    record.validation_loss = {}, record.validation_metrics = {};
  EXPECT_TRUE(contains(to_html(once), "set train.validate_every for more"));
  EXPECT_FALSE(contains(to_html(example_report()), "id=\"auc\""));
}

TEST(Report, ShowsStalenessAndWaitsForEmbeddings) {
  const std::string html = without_names(to_html(example_recommender()));
  // 400 steps; staleness of 4 and 5 updates is one class.
  EXPECT_TRUE(contains(html,
                       "<th scope=\"col\">lacked 0</th><th scope=\"col\">lacked 1</th>"
                       "<th scope=\"col\">lacked 2</th><th scope=\"col\">lacked 4 to 7</th>"));
  EXPECT_TRUE(contains(html,
                       "<th scope=\"row\">all tables</th><td>6800</td><td>400</td><td>800</td>"
                       "<td>1200</td><td>4400</td></tr>"
                       "<tr><th scope=\"row\">words</th><td>4400</td><td>0</td><td>0</td>"
                       "<td>0</td><td>4400</td></tr>"
                       "<tr><th scope=\"row\">user &lt;id&gt;</th><td>2400</td><td>400</td>"));
  EXPECT_TRUE(contains(html, "<span>1.33 <em>lacked on average</em></span>"));
  EXPECT_TRUE(contains(html, "width:64.706%\" data-tip=\"lacked 4 to 7: 4.4 k rows, 64.7 %"));
  EXPECT_TRUE(contains(html, "the longest was 500 ms, in step 7."));
  EXPECT_FALSE(contains(to_html(example_report()), "id=\"staleness\""));
}

TEST(Report, OmitsLossesThatAreNotNumbers) {
  ReportInput input = example_report();
  input.records[3].loss = std::numeric_limits<double>::quiet_NaN();
  input.records[4].loss = std::numeric_limits<double>::infinity();
  const std::string html = to_html(input);
  EXPECT_FALSE(std::regex_search(html, std::regex("[\" ,L]-?(nan|inf)\\b")));
  EXPECT_FALSE(contains(html, ",null"));
}

TEST(Report, DrawsLongRunWithAtMostOnePointPerPixel) {
  ReportInput input = example_report();
  input.records = example_records(100'000);
  EXPECT_LT(to_html(input).size(), 400'000u);
}

TEST(Report, OmitsSectionsWithoutData) {
  const std::string html = to_html({.title = "empty"});
  EXPECT_TRUE(contains(html, "<h1>empty</h1>"));
  EXPECT_EQ(count(html, "<section"), 0u);
  EXPECT_EQ(count(html, "<details"), 0u);
}

TEST(Report, ShowsPlanWithoutRun) {
  ReportInput input = example_report();
  input.measured = {};
  input.records.clear();
  input.step_seconds.measured = 0;
  for (ReportMemory& rank : input.memory) rank.measured_peak = 0;
  const std::string html = to_html(input);
  EXPECT_EQ(count(html, "<g class=\"predicted\">"), 2u);
  EXPECT_EQ(count(html, "<g class=\"measured\">"), 0u);
  EXPECT_FALSE(contains(html, "id=\"comparison\""));
}

TEST(Report, NamesBudgetFarAbovePeaksWithoutDrawingIt) {
  ReportInput input = example_report();
  EXPECT_TRUE(contains(to_html(input), "class=\"budget\""));
  input.budget_bytes = std::int64_t{64} << 30;
  EXPECT_FALSE(contains(to_html(input), "class=\"budget\""));
  EXPECT_TRUE(contains(to_html(input), "64.00 GiB"));
}

TEST(Report, ErrorNamesFileThatCannotBeWritten) {
  try {
    write_report("/nonexistent/report.html", {});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "/nonexistent/report.html");
  }
}

// For viewing: STRATA_REPORT=/tmp/report.html report_test --gtest_filter=Report.*; with
// STRATA_REPORT_DEVICES=1 for ranks with devices of their own.
TEST(Report, IsWrittenToFileForViewing) {
  const char* path = std::getenv("STRATA_REPORT");
  const ScratchFolder folder;
  const std::string file = path ? path : folder.path("report.html");
  const char* ranks = std::getenv("STRATA_REPORT_RANKS");
  ReportInput input = example_report(ranks ? std::atoi(ranks) : 2, 8);
  if (std::getenv("STRATA_REPORT_DEVICES")) {
    input.predicted = example_device_step(12, 1.0, 0);
    input.measured = example_device_step(12, 1.1, 5000);
  }
  write_report(file, input);
  EXPECT_TRUE(path || std::remove(file.c_str()) == 0);
}

const std::string kReplacement = "\xEF\xBF\xBD";

TEST(Escape, MarkupBecomesText) {
  EXPECT_EQ(escape_html("<script>\"a\" & 'b'"), "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;");
}

TEST(Escape, KeepsLinesAndLettersOfAllAlphabets) {
  const std::string text = "a\tb\ngr\u00fc\u00df \u05d0 \u4e2d \U0001F600";
  EXPECT_EQ(escape_html(text), text);
}

TEST(Escape, ReplacesInvalidUtf8) {
  EXPECT_EQ(escape_html("a\xFFz"), "a" + kReplacement + "z");
  EXPECT_EQ(escape_html("\x80"), kReplacement);  // a continuation without a start
  EXPECT_EQ(escape_html("\xC3"), kReplacement);  // a start without continuation
  EXPECT_EQ(escape_html("\xC0\xAF"),
            kReplacement + kReplacement);  // '/' in more bytes than it needs
  EXPECT_EQ(escape_html("\xED\xA0\x80").substr(0, 3), kReplacement);  // half of a surrogate pair
  EXPECT_EQ(escape_html("\xF5\x80\x80\x80").substr(0, 3),
            kReplacement);  // beyond the last character
}

TEST(Escape, ReplacesControlCharacters) {
  EXPECT_EQ(escape_html(std::string_view("a\0b\x1b", 4)), "a" + kReplacement + "b" + kReplacement);
}

TEST(Ticks, AreRoundAndCoverRange) {
  EXPECT_EQ(axis_ticks(0, 10, 5), std::vector<double>({0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(1, 400, 7), std::vector<double>({100, 200, 300, 400}));
  const std::vector<double> fine = axis_ticks(1.61, 1.69, 4);
  ASSERT_EQ(fine.size(), 4u);
  EXPECT_NEAR(fine.front(), 1.62, 1e-12);
  EXPECT_NEAR(fine.back(), 1.68, 1e-12);
}

TEST(Ticks, OfAnEmptyRangeAreOne) { EXPECT_EQ(axis_ticks(3, 3, 5), std::vector<double>({3})); }

TEST(TickDecimals, DistinguishAdjacentTicks) {
  EXPECT_EQ(tick_decimals({0, 20, 40}), 0);
  EXPECT_EQ(tick_decimals({0, 0.5, 1}), 1);
  EXPECT_EQ(tick_decimals({1.62, 1.64}), 2);
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
  const std::string html = without_names(to_html(input));
  EXPECT_EQ(count(html, "class=\"lane measured\""), 2u * 2);
  EXPECT_EQ(count(html, ">device</text>"), 2u);
  EXPECT_EQ(count(html, ">collectives</text>"), 2u);
  EXPECT_TRUE(contains(html, "what those did stands below"));
  // numbers of hosts that only launch
  EXPECT_FALSE(contains(html, "exposed communication</th>"));
  const std::string devices = html.substr(html.find("id=\"devices\""));
  // Twelve forwards of 4 ms, backwards of 8, and the update.
  EXPECT_TRUE(
      contains(devices, "rank 0, predicted</th><td>" + format_seconds(12 * 0.012 + 0.004) + ", "));
}

// A pipeline of two ranks waits and communicates, but not for memory.
TEST(Report, ShowsExposedTimeInNumbers) {
  const std::string html = without_names(to_html(example_report(2, 8)));
  EXPECT_TRUE(contains(html, "<th scope=\"col\">exposed communication</th>"));
  EXPECT_TRUE(contains(html, "<th scope=\"col\">waits for other ranks</th>"));
  EXPECT_FALSE(contains(html, "<th scope=\"col\">waits for memory</th>"));
  for (const char* row : {"rank 0, predicted", "rank 0, measured", "rank 1, predicted"})
    EXPECT_EQ(count(html, std::string("<th scope=\"row\">") + row + "</th>"), 1u) << row;
  // Rank 0's step has 8 x (60 + 126 ms) of work and 36 ms of update.
  EXPECT_TRUE(contains(html, "<th scope=\"row\">rank 1, predicted</th><td>" +
                                 format_seconds(8 * (0.06 + 0.126) + 0.036) + "</td>"));
}

}  // namespace
}  // namespace strata
