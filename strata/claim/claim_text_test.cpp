#include "strata/claim/claim_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "strata/claim/claims.h"

namespace strata {
namespace {

Claim example() {
  Claim claim{.name = "example",
              .system = "System",
              .statement = "It is twice as fast.",
              .source = "Paper, table 1",
              .method = "Simulated.",
              .strata = "The same machines."};
  claim.rows = {{.what = "speed",
                 .unit = "times",
                 .published = 2,
                 .reproduced = 2.02,
                 .tolerance = within(0.05)},
                {.what = "memory",
                 .unit = "GB",
                 .decimals = 0,
                 .published = 10,
                 .reproduced = 12,
                 .tolerance = within(0.05),
                 .explanation = {"<b>Buffers</b> are not counted.", 0.3}},
                {.what = "days", .published = 3, .reproduced = 4, .tolerance = within(0.05)},
                {.what = "share",
                 .unit = "%",
                 .decimals = 0,
                 .published = 44,
                 .reproduced = 44,
                 .from_published = true}};
  claim.plans = {{.model = "1 G, 8 A100, 64 samples",
                  .mesh = "pp 2, dp 2, tp 2, zero 1",
                  .schedule = "1f1b",
                  .bytes = 40e9,
                  .device_bytes = 80e9,
                  .step_seconds = 1.5,
                  .utilisation = 0.5,
                  .published_utilisation = 0.4,
                  .their_mesh_utilisation = 0.45}};
  claim.figures = {{"size", "12 G"}};
  return claim;
}

TEST(ClaimText, PrintsEveryRowWithItsVerdict) {
  EXPECT_EQ(text_of(example()), R"(example: System
It is twice as fast.
source  Paper, table 1
method  Simulated.

        published  reproduced         difference
speed         2.0         2.0  times      +1.0 %  reproduced
memory         10          12  GB        +20.0 %  explained
days          3.0         4.0            +33.3 %  missed
share          44          44  %           0.0 %  consistent
  explained: <b>Buffers</b> are not counted.

1 row reproduced, 1 consistent, 1 explained, 0 not explained, 1 missed

Strata on the same machines
The same machines.

Of peak: simulated. Published mesh: the paper's mesh and kernels in the same simulator. Published: measured.

                         mesh                      schedule   a rank   step  of peak  published mesh  published
1 G, 8 A100, 64 samples  pp 2, dp 2, tp 2, zero 1  1f1b      40.0 GB  1.5 s   50.0 %          45.0 %     40.0 %

size  12 G
)");
}

TEST(ClaimText, SumsUpAllClaims) {
  EXPECT_EQ(summary_of({example(), example()}),
            "2 claims: 2 rows reproduced, 2 consistent, 2 explained, 0 not explained, 2 missed");
  EXPECT_EQ(summary_of({example()}),
            "1 claim: 1 row reproduced, 1 consistent, 1 explained, 0 not explained, 1 missed");
}

TEST(ClaimText, ListsEveryEntry) {
  const std::string list = claim_list();
  for (const ClaimEntry& entry : claim_entries())
    EXPECT_NE(list.find(std::string(entry.name) + " "), std::string::npos) << entry.name;
}

TEST(ClaimJson, HoldsNumbersAndVerdicts) {
  const auto json = nlohmann::json::parse(claims_json({example()}));
  ASSERT_EQ(json.size(), 1U);
  const auto& rows = json[0]["rows"];
  EXPECT_EQ(rows[0]["verdict"], "reproduced");
  EXPECT_EQ(rows[1]["explanation"], "<b>Buffers</b> are not counted.");
  EXPECT_EQ(rows[2]["verdict"], "missed");
  EXPECT_NEAR(rows[2]["difference"].get<double>(), 1 / 3.0, 1e-12);
  EXPECT_EQ(rows[3]["verdict"], "consistent");
  EXPECT_EQ(json[0]["plans"][0]["their_mesh_utilisation"], 0.45);
  EXPECT_EQ(json[0]["plans"][0]["mesh"], "pp 2, dp 2, tp 2, zero 1");
}

TEST(ClaimPage, HoldsEveryClaimAndNeedsNoNetwork) {
  const std::string page = claims_page({example()});
  for (const char* part : {"It is twice as fast.", "Paper, table 1", "pp 2, dp 2, tp 2, zero 1",
                           "+33.3 %", "\"missed\"", "explained, a", "12 G"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(page.find("<b>Buffers"), std::string::npos);
  EXPECT_EQ(page.find("src=\"http"), std::string::npos);
  EXPECT_EQ(page.find("href=\"http"), std::string::npos);
}

// The longer of two bars fills the same part of the row whatever the numbers are.
TEST(ClaimPage, BarsAreRelativeToTheLargest) {
  const std::string page = claims_page({example()});
  EXPECT_NE(page.find("\"percent\":90.0"), std::string::npos);
  EXPECT_NE(page.find("\"percent\":72.0"), std::string::npos);
}

}  // namespace
}  // namespace strata
