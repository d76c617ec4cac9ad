// Every claim, with its source; then the cells that a claim stands for, by name.
#include "strata/claim/claims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "strata/base/errors.h"

namespace strata {
namespace {

const Claim& claim_named(const std::string& name) {
  static std::map<std::string, Claim> made;
  auto [place, is_new] = made.try_emplace(name);
  if (is_new) place->second = make_claims(name).front();
  return place->second;
}

const ClaimRow& row_named(const std::string& claim, const std::string& what) {
  for (const ClaimRow& row : claim_named(claim).rows)
    if (row.what == what) return row;
  throw std::out_of_range(claim + " has no row '" + what + "'");
}

int rows_with(const std::string& claim, const std::string& part, Verdict verdict) {
  int count = 0;
  for (const ClaimRow& row : claim_named(claim).rows)
    count += row.what.find(part) != std::string::npos && verdict_of(row) == verdict;
  return count;
}

class PublishedClaim : public testing::TestWithParam<std::string> {};

TEST_P(PublishedClaim, IsReproducedOrExplained) {
  const Claim& claim = claim_named(GetParam());
  SCOPED_TRACE("source: " + claim.source);
  EXPECT_EQ(claim.name, GetParam());
  for (const std::string& text :
       {claim.system, claim.statement, claim.source, claim.method, claim.strata})
    EXPECT_GT(text.size(), 4U);
  EXPECT_FALSE(claim.rows.empty());
  std::set<std::string> names;
  for (const ClaimRow& row : claim.rows) {
    SCOPED_TRACE(row.what);
    EXPECT_TRUE(names.insert(row.what).second) << "two rows have one name";
    EXPECT_NE(verdict_of(row), Verdict::kMissed)
        << "published " << row.published << ", reproduced " << row.reproduced;
    // An explanation that is no longer needed must go, and it must not cover any number.
    if (verdict_of(row) == Verdict::kReproduced || verdict_of(row) == Verdict::kConsistent) {
      EXPECT_EQ(row.explanation.text, "");
    }
    EXPECT_LE(row.tolerance.relative, 0.2);
    EXPECT_LE(row.explanation.up_to, 1.3 * std::abs(difference_of(row)) + 0.1)
        << "the explanation covers too much";
  }
}

TEST_P(PublishedClaim, SaysWhatStrataWouldDo) {
  const Claim& claim = claim_named(GetParam());
  EXPECT_FALSE(claim.plans.empty() && claim.figures.empty());
  for (const StrataPlan& plan : claim.plans) {
    SCOPED_TRACE(plan.model);
    EXPECT_GT(plan.bytes, 0.1 * plan.device_bytes);
    EXPECT_LE(plan.bytes, plan.device_bytes);
    EXPECT_GT(plan.step_seconds, 0);
    EXPECT_GT(plan.utilisation, 0.25);
    EXPECT_LT(plan.utilisation, 0.8);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PublishedClaim, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const ClaimEntry& entry : claim_entries())
                             names.emplace_back(entry.name);
                           return names;
                         }()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// arXiv 2104.04473, table 1: ten models, and each column of each.
TEST(Sc21, TenRowsAreReproduced) {
  for (const char* column : {"G: parameters, equation 2", "G: FLOP/s a GPU, simulated step"})
    EXPECT_EQ(rows_with("sc21", column, Verdict::kReproduced), 10) << column;
  EXPECT_EQ(rows_with("sc21", "1,008 G over 1.7 G", Verdict::kReproduced), 1);
  for (const char* column : {"PFLOP/s, from", "of the data sheet's 312"})
    EXPECT_EQ(rows_with("sc21", column, Verdict::kConsistent), 10) << column;
  EXPECT_NEAR(row_named("sc21", "1008.0 G: parameters, equation 2").reproduced, 1008.04, 0.01);
  EXPECT_NEAR(row_named("sc21", "1,008 G on 450 G tokens, 3,072 GPUs, equation 4").reproduced, 83.9,
              0.05);
  EXPECT_EQ(claim_named("sc21").plans.size(), 10U);
  for (const StrataPlan& plan : claim_named("sc21").plans)
    EXPECT_GT(plan.utilisation, plan.published_utilisation) << plan.model;
}

// arXiv 2401.10241, table 5: 30 cells to four decimals; interleaved ones within 0.004.
TEST(ZeroBubble, ThirtyCellsAreExact) {
  for (const char* schedule : {", 1F1B", "ZB-H1", "ZB-H2", "ZB-1p", "ZB-2p"}) {
    int exact = 0;
    for (const ClaimRow& row : claim_named("zero-bubble").rows)
      exact += row.what.ends_with(schedule) && std::abs(row.reproduced - row.published) <= 0.00005;
    EXPECT_EQ(exact, 6) << schedule;
  }
  EXPECT_EQ(rows_with("zero-bubble", "1F1B-I", Verdict::kReproduced), 6);
}

// arXiv 1811.06965, table 1: the column whose two kinds of memory are swapped.
TEST(GPipe, ErratumIsShown) {
  EXPECT_EQ(
      verdict_of(row_named("gpipe-memory", "Transformer Naive-1: parameter memory as printed")),
      Verdict::kExplained);
  const ClaimRow& swapped = row_named("gpipe-memory", "Transformer Naive-1: parameter memory");
  EXPECT_EQ(verdict_of(swapped), Verdict::kReproduced);
  EXPECT_NEAR(swapped.reproduced, 3.15, 0.005);
  EXPECT_NEAR(row_named("gpipe-memory", "Transformer Pipe-128: parameters").reproduced, 83877, 1);
}

// arXiv 1811.06965, table 2: 32 micro-batches of a Transformer.
TEST(GPipe, ThirtyTwoMicroBatchesAreReproduced) {
  EXPECT_EQ(rows_with("gpipe-throughput", "Transformer-48, K=2, M=32", Verdict::kReproduced), 1);
  EXPECT_EQ(rows_with("gpipe-throughput", "Transformer-48, K=4, M=32", Verdict::kReproduced), 1);
  EXPECT_EQ(rows_with("gpipe-throughput", "Transformer-48, K=8, M=32", Verdict::kReproduced), 1);
  EXPECT_EQ(rows_with("gpipe-throughput", "P100: Transformer", Verdict::kReproduced), 2);
}

// kakaobrain/torchgpipe, benchmarks/resnet101-speed and unet-speed: pipeline-1 has two chunks, and
// the last one does not run again.
TEST(Torchgpipe, OneRankIsReproducedWithThePublishedChunks) {
  for (const char* row : {"ResNet-101 against no pipeline, n=1, m=2",
                          "U-Net (5, 64) against no pipeline, n=1, m=2"}) {
    EXPECT_EQ(verdict_of(row_named("torchgpipe", row)), Verdict::kReproduced);
    EXPECT_NEAR(row_named("torchgpipe", row).reproduced, 6.0 / 7, 1e-9);
  }
}

// arXiv 1910.02054, figure 1.
TEST(Zero, FigureIsReproduced) {
  const auto gigabytes = [](int zero) {
    return row_named("zero", "7.5 G on 64 ranks, ZeRO " + std::to_string(zero)).reproduced;
  };
  EXPECT_NEAR(gigabytes(0), 120, 1e-6);
  EXPECT_NEAR(gigabytes(1), 31.41, 0.005);
  EXPECT_NEAR(gigabytes(2), 16.64, 0.005);
  EXPECT_NEAR(gigabytes(3), 1.875, 1e-6);
}

// arXiv 2306.10209: 3 M become 0.75 M. Scales are a 32nd more, and (n - 1) / n less than 1.
TEST(ZeroPlusPlus, SendsIntegers) {
  EXPECT_NEAR(row_named("zero-plus-plus", "ZeRO 3, sum of gradients").reproduced, 383 / 384.0,
              1e-9);
  EXPECT_NEAR(row_named("zero-plus-plus", "int8 weights, gather for forward").reproduced,
              (1 + 1 / 32.0) / 2 * 383 / 384, 1e-6);
  EXPECT_NEAR(row_named("zero-plus-plus", "int4 gradients, sum").reproduced,
              (0.5 + 1 / 32.0) / 2 * 383 / 384, 1e-6);
}

// Microsoft Research blog of September 2020.
TEST(DeepSpeed3d, TrillionParametersFit800V100) {
  const Claim& claim = claim_named("deepspeed-3d");
  double bytes = 0;
  for (const StrataFigure& figure : claim.figures)
    if (figure.what.starts_with("published mesh of 800 V100")) bytes = std::stod(figure.value);
  EXPECT_GT(bytes, 20);
  EXPECT_LT(bytes, 34.4);  // 32 GiB
  EXPECT_EQ(row_named("deepspeed-3d", "TFLOP/s a V100, simulated step of 16 tp x 50 pp").published,
            47);
  EXPECT_EQ(claim.plans.back().device_bytes, 40e9);
}

// arXiv 2205.05198, table 4: the rate of products of machines/a100-selene.yaml.
TEST(ActivationMemory, MachinesRateIsThatOfThePublishedLayer) {
  const ClaimRow& row =
      row_named("activation-memory", "22 G: forward of a layer (the machine's rate comes from it)");
  EXPECT_NEAR(row.reproduced, 7.7, 0.05);
}

// SC22, artifact strongh2/sc22-ae.
TEST(Stronghold, HundredLayersAreReproduced) {
  EXPECT_NEAR(
      row_named("stronghold", "STRONGHOLD: most layers, its bytes in Strata's ledger").reproduced,
      101, 0);
}

// The table of strata plan, which counts the bytes of Strata's own layers.
TEST(Stronghold, LayersAreThoseOfThePublishedSizes) {
  std::ifstream file(STRATA_SOURCE_DIR "/bench/published_sizes/README.md");
  const std::string table{std::istreambuf_iterator<char>(file), {}};
  for (const std::string system : {"Megatron-LM", "ZeRO-Offload", "L2L", "STRONGHOLD"}) {
    SCOPED_TRACE(system);
    std::smatch found;
    ASSERT_TRUE(std::regex_search(table, found,
                                  std::regex("\\| " + system + " \\| [^|]*\\| (\\d+) blocks")));
    EXPECT_EQ(
        row_named("stronghold", system + ": most layers, its bytes in Strata's ledger").reproduced,
        std::stod(found[1]));
  }
}

TEST(Claims, UnknownNameIsRefusedWithTheNearest) {
  try {
    make_claims("zero-buble");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().operation, "claim.arguments");
    EXPECT_EQ(error.text().fix, "did you mean 'zero-bubble'?");
    EXPECT_NE(error.text().expected.find("sc21"), std::string::npos);
  }
  EXPECT_THROW(make_claims(""), UserError);
}

}  // namespace
}  // namespace strata
