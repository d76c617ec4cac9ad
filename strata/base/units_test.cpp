#include "strata/base/units.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(Bytes, AreReadWithIecSuffixesInPowersOf1024) {
  EXPECT_EQ(parse_bytes("0").count, 0);
  EXPECT_EQ(parse_bytes("824").count, 824);
  EXPECT_EQ(parse_bytes("824B").count, 824);
  EXPECT_EQ(parse_bytes("3KiB").count, 3072);
  EXPECT_EQ(parse_bytes("512MiB").count, 512 * kMiB);
  EXPECT_EQ(parse_bytes("2GiB").count, 2 * kGiB);
  EXPECT_EQ(parse_bytes("1TiB").count, 1024 * kGiB);
}

TEST(Bytes, AreReadWithDecimalSuffixesInPowersOf1000) {
  EXPECT_EQ(parse_bytes("3KB").count, 3'000);
  EXPECT_EQ(parse_bytes("3MB").count, 3'000'000);
  EXPECT_EQ(parse_bytes("3GB").count, 3'000'000'000);
  EXPECT_EQ(parse_bytes("3TB").count, 3'000'000'000'000);
}

TEST(Bytes, AcceptOneSpaceAndAFraction) {
  EXPECT_EQ(parse_bytes("1.5 MiB").count, kMiB + kMiB / 2);
  EXPECT_EQ(parse_bytes(".5GiB").count, kGiB / 2);
  EXPECT_EQ(parse_bytes("0.1KiB").count, 102);  // 102.4
}

TEST(Bytes, KeepEveryDigitOfAWholeNumber) {
  EXPECT_EQ(parse_bytes("9007199254740993").count, 9007199254740993);
  EXPECT_EQ(parse_bytes("9223372036854775807").count, std::numeric_limits<std::int64_t>::max());
}

TEST(Bytes, RefuseTextThatIsNoByteCount) {
  for (const char* text :
       {"", "GiB", "-1", "+1", "2Gib", "2 gib", "2G", "1  MiB", "1MiB ", "1.2.3MiB", ".", "1e3",
        "nan", "inf", "0x10", "1_000", "9223372036854775808", "9999999TiB", "9999999.5TiB"}) {
    EXPECT_THROW(parse_bytes(text), UserError) << text;
  }
}

TEST(Bytes, RefusalStatesExpectedForm) {
  try {
    parse_bytes("2Gigs");
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().what, "unknown unit 'Gigs'");
    EXPECT_EQ(error.text().got, "'2Gigs'");
    EXPECT_NE(error.text().expected.find("GiB"), std::string::npos);
  }
}

TEST(Bytes, ArePrintedInFittingUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(824), "824 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(kGiB + kGiB / 2), "1.50 GiB");
  EXPECT_EQ(format_bytes(5000 * 1024 * kGiB), "5000.00 TiB");
  EXPECT_EQ(format_bytes(-3 * kMiB), "-3.00 MiB");
}

TEST(Bytes, RoundIntoTheNextUnit) {
  EXPECT_EQ(format_bytes(kMiB - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(kMiB - 10 * 1024), "1014.00 KiB");
}

TEST(Bytes, AreWrittenExactlyAndReadBack) {
  EXPECT_EQ(format_bytes_exactly(0), "0");
  EXPECT_EQ(format_bytes_exactly(7), "7B");
  EXPECT_EQ(format_bytes_exactly(1000 * 1024), "1000KiB");
  EXPECT_EQ(format_bytes_exactly(2 * kGiB), "2GiB");
  for (const std::int64_t bytes : {std::int64_t{1}, kMiB - 1, kMiB, kGiB + 1, 3 * kGiB + kMiB,
                                   4096 * kGiB, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_EQ(parse_bytes(format_bytes_exactly(bytes)).count, bytes);
  }
}

TEST(Seconds, ArePrintedInFittingUnit) {
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(5e-9), "5 ns");
  EXPECT_EQ(format_seconds(3.4e-6), "3.4 us");
  EXPECT_EQ(format_seconds(0.812), "812 ms");
  EXPECT_EQ(format_seconds(1.234), "1.23 s");
  EXPECT_EQ(format_seconds(42), "42 s");
  EXPECT_EQ(format_seconds(65), "1 min 05 s");
  EXPECT_EQ(format_seconds(2 * 3600 + 5 * 60), "2 h 05 min");
  EXPECT_EQ(format_seconds(3 * 86400 + 4 * 3600), "3 d 04 h");
  EXPECT_EQ(format_seconds(-0.5), "-500 ms");
}

TEST(Seconds, RoundIntoTheNextUnit) {
  EXPECT_EQ(format_seconds(0.99996), "1 s");
  EXPECT_EQ(format_seconds(59.97), "1 min 00 s");
  EXPECT_EQ(format_seconds(3599.7), "1 h 00 min");
  EXPECT_EQ(format_seconds(86399), "1 d 00 h");
}

TEST(Count, KeepsThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(345), "345");
  EXPECT_EQ(format_count(999.6), "1 k");
  EXPECT_EQ(format_count(10'740'000), "10.7 M");
  EXPECT_EQ(format_count(45.2e9), "45.2 G");
  EXPECT_EQ(format_count(100e12), "100 T");
  EXPECT_EQ(format_count(-1500), "-1.5 k");
}

TEST(Double, IsPrintedWithRequestedDecimals) {
  EXPECT_EQ(format_double(1.8765, 2), "1.88");
  EXPECT_EQ(format_double(3, 0), "3");
  EXPECT_EQ(format_double(std::numeric_limits<double>::max(), 1).size(), 311u);
}

TEST(Double, IsWrittenInItsShortestExactForm) {
  EXPECT_EQ(format_double_exactly(0.1), "0.1");
  EXPECT_EQ(format_double_exactly(1), "1");
  EXPECT_EQ(format_double_exactly(1e-8), "1e-08");
  for (const double value : {0.1 + 0.2, 1.0 / 3, 5e-324, 1.7976931348623157e308, -2.5e-17}) {
    EXPECT_EQ(std::strtod(format_double_exactly(value).c_str(), nullptr), value);
  }
}

TEST(Double, IsWrittenInHexWithAllItsBits) {
  EXPECT_EQ(format_hex(1.0), "0x1p+0");
  EXPECT_EQ(format_hex(-0.15625), "-0x1.4p-3");
  EXPECT_EQ(std::strtod(format_hex(0.1).c_str(), nullptr), 0.1);
}

}  // namespace
}  // namespace strata
